package replica

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/test/scrape"
)

// newMetrics registers the metrics of a node.
func newMetrics(r *Replica) (*metrics.Metrics, error) {
	m := metrics.New(r.cfg.Registry)
	return m, m.Register(r.gauges()...)
}

// TestMetricsAreUnregisteredOnce verifies that closing a node again does not unregister the metrics of the next
// one.
func TestMetricsAreUnregisteredOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	var r *Replica
	open := func() (*metrics.Metrics, error) {
		r = started(t)
		r.cfg.Registry, r.eventLog, r.checker = registry, eventlog.New(), r.newChecker()
		return newMetrics(r)
	}
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(); err == nil {
		t.Error("two nodes in one registry")
	}
	if err := errors.Join(first.AddPeers(nil), first.AddPeers(nil)); err == nil {
		t.Error("the peer port is shown twice")
	}
	first.Close()
	if left := scrape.Values(t, registry); len(left) != 0 {
		t.Errorf("left of the first: %v", left)
	}
	second, err := open()
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if shown := scrape.Values(t, registry); shown["applied_index"] != 1 || shown["term"] != 0 || shown["is_leader"] != 1 {
		t.Errorf("of the second: %v", shown)
	}
	r.leadership = nil
	if scrape.Values(t, registry)["is_leader"] != 0 {
		t.Error("a node that does not serve leads")
	}
	second.Close()
}
