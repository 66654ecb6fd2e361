package monitoring_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/test/process"
)

// substituted is what Grafana puts in the place of variables.
var substituted = strings.NewReplacer("$job", job, "$node", ".+", "$__rate_interval", "5s")

// valuesOf matches the query of a variable.
var valuesOf = regexp.MustCompile(`^label_values\((.*),\s*(\w+)\)$`)

// TestPanels verifies that every expression of the dashboard returns data, from a Prometheus that scrapes a cluster under
// load.
func TestPanels(t *testing.T) {
	inFull(t)
	needsPrometheus(t)
	s, d := stage(t), readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expr := substituted.Replace(target.Expr)
			s.Await(fmt.Sprintf("data of the panel %q, %s", p.Title, expr), 2*process.WaitTimeout, func(ctx context.Context) error {
				return s.hasData(ctx, expr)
			})
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		found := valuesOf.FindStringSubmatch(substituted.Replace(v.Definition))
		if found == nil {
			t.Fatalf("variable %s: %q is no label_values", v.Name, v.Definition)
		}
		values, err := s.monitor.labelValues(t.Context(), found[2], found[1])
		want := map[string][]string{"job": {job}, "node": s.IDs()}[v.Name]
		if err != nil || !slices.Equal(values, want) {
			t.Errorf("variable %s has the values %v, want %v: %v", v.Name, values, want, err)
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr == "" {
			continue
		}
		if _, err := s.monitor.query(t.Context(), substituted.Replace(a.Expr)); err != nil {
			t.Errorf("annotation %s: %v", a.Name, err)
		}
	}
	if err := s.hasData(t.Context(), `quorumlock_none{job="quorumlock-test"}`); err == nil {
		t.Error("a metric that nobody has has data")
	}
}

// hasData returns an error if an expression has no value that is a number.
func (s *scene) hasData(ctx context.Context, expr string) error {
	samples, err := s.monitor.query(ctx, expr)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(samples, func(one sample) bool { return !math.IsNaN(one.number()) }) {
		return errors.New("it has no data")
	}
	return nil
}

// inFull skips a test in the gate.
func inFull(t *testing.T) {
	t.Helper()
	if !full {
		t.Skip("make check has this, with QUORUMLOCK_CHECK=1")
	}
}
