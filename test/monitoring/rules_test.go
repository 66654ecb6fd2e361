package monitoring_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// ops is the directory of what is tested.
const ops = "../../docs/ops"

// ruleFile is a file with alert rules for Prometheus.
type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// readRules reads alerts.yaml. Unknown keys are errors.
func readRules(t *testing.T) (f ruleFile) {
	t.Helper()
	file, err := os.Open(filepath.Join(ops, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	if err := decoder.Decode(&f); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f ruleFile) all() (rules []rule) {
	for _, g := range f.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// speedup is by what the durations of rules are divided, so that a test need not wait for minutes.
const speedup = 120

// waited are thresholds that are times for which a test would have to wait, by alert. They are divided as well. Other
// times, such as those of a disk, are measured and stay.
var waited = map[string]string{"QuorumlockOldestWait": "900", "QuorumlockBackupOverdue": "1800"}

// rangeOf matches the range of a selector or of a subquery.
var rangeOf = regexp.MustCompile(`\[(\d+[a-z]+)(?::(\d+[a-z]+))?\]`)

// shorten divides all durations of a rule.
func (r rule) shorten() (rule, error) {
	var err error
	if r.For != "" {
		if r.For, err = divided(r.For); err != nil {
			return r, fmt.Errorf("%s: for: %w", r.Alert, err)
		}
	}
	r.Expr = rangeOf.ReplaceAllStringFunc(r.Expr, func(found string) string {
		parts := rangeOf.FindStringSubmatch(found)
		for i, part := range parts[1:] {
			if part == "" {
				continue
			}
			short, e := divided(part)
			if e != nil {
				err = fmt.Errorf("%s: %s: %w", r.Alert, found, e)
			}
			parts[i+1] = short
		}
		return "[" + strings.Join(slices.DeleteFunc(parts[1:], func(s string) bool { return s == "" }), ":") + "]"
	})
	if seconds, ok := waited[r.Alert]; ok {
		number, e := strconv.ParseFloat(seconds, 64)
		if threshold := "> " + seconds; e != nil || strings.Count(r.Expr, threshold) != 1 {
			return r, fmt.Errorf("%s: %q is not once in %s", r.Alert, threshold, r.Expr)
		}
		r.Expr = strings.Replace(r.Expr, "> "+seconds, fmt.Sprintf("> %g", number/speedup), 1)
	}
	return r, err
}

// divided returns a duration of Prometheus, divided.
func divided(text string) (string, error) {
	d, err := time.ParseDuration(text)
	return fmt.Sprintf("%dms", (d / speedup).Milliseconds()), err
}

// shorten writes all rules with divided durations to a file.
func (f ruleFile) shorten(t *testing.T, path string) {
	t.Helper()
	for _, g := range f.Groups {
		for i := range g.Rules {
			short, err := g.Rules[i].shorten()
			if err != nil {
				t.Fatal(err)
			}
			g.Rules[i] = short
		}
	}
	text, err := yaml.Marshal(f)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestShortenedRules checks which parts of a rule are divided.
func TestShortenedRules(t *testing.T) {
	got, err := rule{
		Alert: "A", For: "10m", Expr: `x > 1.5 and rate(y{a="b"}[5m]) > 0.1 or avg_over_time((a > bool 0)[10m:15s]) > 900`,
	}.shorten()
	want := rule{
		Alert: "A", For: "5000ms", Expr: `x > 1.5 and rate(y{a="b"}[2500ms]) > 0.1 or avg_over_time((a > bool 0)[5000ms:125ms]) > 900`,
	}
	if err != nil || got.For != want.For || got.Expr != want.Expr {
		t.Errorf("%v, %+v, want %+v", err, got, want)
	}
	if got, err := (rule{Alert: "QuorumlockOldestWait", Expr: "x > 900"}).shorten(); err != nil || got.Expr != "x > 7.5" || got.For != "" {
		t.Errorf("%v, %+v", err, got)
	}
	for _, bad := range []rule{{Alert: "QuorumlockOldestWait", Expr: "x > 800"}, {Alert: "A", For: "soon"}, {Alert: "A", Expr: "x[1d]"}} {
		if _, err := bad.shorten(); err == nil {
			t.Errorf("%+v was divided", bad)
		}
	}
	for name := range waited {
		if !slices.ContainsFunc(readRules(t).all(), func(r rule) bool { return r.Alert == name }) {
			t.Errorf("there is no alert %s", name)
		}
	}
}
