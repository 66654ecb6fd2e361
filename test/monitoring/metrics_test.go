package monitoring_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

var (
	// metricName matches a metric of a node in an expression.
	metricName = regexp.MustCompile(`\b(?:quorumlock|process|go)_[a-z0-9_]+`)
	// matchersOf matches what may follow it, label the matchers in that, and grouping the labels of an operator.
	matchersOf = regexp.MustCompile(`^\{([^}]*)\}`)
	label      = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping   = regexp.MustCompile(`\b(?:by|on|ignoring)\s*\(([^)]*)\)`)
	made       = regexp.MustCompile(`"(\w+)", "\w+", "", ""\)`) // by label_replace
)

// selector is a metric in an expression, with its matchers.
type selector struct{ metric, matchers string }

func selectors(expr string) (all []selector) {
	for _, at := range metricName.FindAllStringIndex(expr, -1) {
		s := selector{metric: expr[at[0]:at[1]]}
		if found := matchersOf.FindStringSubmatch(expr[at[1]:]); found != nil {
			s.matchers = found[1]
		}
		all = append(all, s)
	}
	return all
}

// scraped are labels that a scrape adds, or that belong to buckets.
var scraped = []string{"job", "instance", "le"}

// exported are the labels of all metrics that a node can have, by name. A metric need not have a value yet.
type exported map[string][]string

// of returns the labels of a metric, which may be a part of a histogram or of a summary.
func (e exported) of(name string) (labels []string, ok bool) {
	for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
		if labels, ok = e[strings.TrimSuffix(name, suffix)]; ok {
			return labels, true
		}
	}
	return nil, false
}

// findings returns the metrics and labels of an expression that no node has.
func (e exported) findings(expr string) (findings []string) {
	known := slices.Clone(scraped)
	for _, s := range selectors(expr) {
		labels, ok := e.of(s.metric)
		if !ok {
			findings = append(findings, fmt.Sprintf("no node has the metric %s", s.metric))
			continue
		}
		known = append(known, labels...)
		for _, found := range label.FindAllStringSubmatch(s.matchers, -1) {
			if !slices.Contains(labels, found[1]) && !slices.Contains(scraped, found[1]) {
				findings = append(findings, fmt.Sprintf("%s has no label %s", s.metric, found[1]))
			}
		}
	}
	for _, found := range made.FindAllStringSubmatch(expr, -1) {
		known = append(known, found[1])
	}
	for _, found := range grouping.FindAllStringSubmatch(expr, -1) {
		for name := range strings.SplitSeq(found[1], ",") {
			if name = strings.TrimSpace(name); !slices.Contains(known, name) {
				findings = append(findings, fmt.Sprintf("no metric of the expression has the label %s", name))
			}
		}
	}
	return findings
}

var (
	describedName   = regexp.MustCompile(`fqName: "([^"]+)"`)
	describedConst  = regexp.MustCompile(`constLabels: \{([^}]*)\}`)
	describedLabels = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
	constName       = regexp.MustCompile(`(\w+)="`)
)

// ofANode opens a node with everything that has metrics, and returns what it registers.
func ofANode(t *testing.T) exported {
	t.Helper()
	dir := t.TempDir()
	certs := filepath.Join(dir, "certs")
	if _, err := pki.Init(certs, "c1", []pki.Node{{ID: "n1", Hosts: []string{"127.0.0.1"}}}, nil); err != nil {
		t.Fatal(err)
	}
	files := func(name string) transport.TLSFiles {
		own := filepath.Join(certs, "nodes", "n1", name)
		return transport.TLSFiles{Cert: own + ".crt", Key: own + ".key", CA: filepath.Join(certs, "ca.crt")}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	node, err := server.Open(t.Context(), server.Config{
		ID: "n1", DataDir: filepath.Join(dir, "data"), RedisAddr: "127.0.0.1:0",
		Listen: server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0", HTTP: "127.0.0.1:0"},
		TLS:    files("server"), PeerTLS: files("peer"),
		AuditLog: filepath.Join(dir, "audit.log"), BackupDir: t.TempDir(), Registry: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), process.WaitTimeout)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		registry.Describe(descs)
	}()
	all := exported{}
	for desc := range descs {
		text := desc.String()
		var labels []string
		for _, found := range constName.FindAllStringSubmatch(describedConst.FindString(text), -1) {
			labels = append(labels, found[1])
		}
		if found := describedLabels.FindStringSubmatch(text); found != nil && found[1] != "" {
			labels = append(labels, strings.Split(found[1], ",")...)
		}
		all[describedName.FindStringSubmatch(text)[1]] = labels
	}
	return all
}

// TestMetricsExist checks that a node has every metric and label of the rules and of the dashboard.
func TestMetricsExist(t *testing.T) {
	node := ofANode(t)
	for _, r := range readRules(t).all() {
		for _, finding := range node.findings(r.Expr) {
			t.Errorf("alert %s: %s", r.Alert, finding)
		}
	}
	for _, expr := range readDashboard(t).expressions() {
		for _, finding := range node.findings(expr) {
			t.Errorf("dashboard: %s\n%s", finding, expr)
		}
	}
}

func TestMetricsExistCanFail(t *testing.T) {
	node := exported{"quorumlock_a_seconds": {"op"}, "quorumlock_b": nil}
	for expr, want := range map[string]int{
		`sum by (le, op) (rate(quorumlock_a_seconds_bucket{job="j",op="x"}[5m]))`:                          0,
		`max by (budget) (label_replace(quorumlock_b{job="j"}, "budget", "b", "", "")) / on (job) go_none`: 1,
		`quorumlock_c`:                                1,
		`quorumlock_b{kind="x"}`:                      1,
		`sum by (kind) (quorumlock_b{instance="n1"})`: 1,
	} {
		if findings := node.findings(expr); len(findings) != want {
			t.Errorf("%s: %q, want %d", expr, findings, want)
		}
	}
}
