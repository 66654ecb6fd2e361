package server

import (
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestStatusWithAnExamination verifies that a node examines itself when it is asked to, and only then.
func TestStatusWithAnExamination(t *testing.T) {
	_, files, _ := certificates(t) // for localhost, 127.0.0.1 and ::1
	cfg := quick(t)
	cfg.TLS, cfg.Advertise.Client = files, "lock.example:7400"
	node := open(t, cfg)
	serving(t, node)
	seen := examined{node.replica, node.examiner}
	status, err := seen.Status(bounded(t), &wire.StatusRequest{Stale: true})
	if err != nil || status.GetExamination() != nil || status.GetStateUnits() == 0 {
		t.Errorf("%v, %v", status, err)
	}
	status, err = seen.Status(bounded(t), &wire.StatusRequest{Stale: true, Examine: true})
	e := status.GetExamination()
	if err != nil || e.GetSyncs() == 0 || e.GetMemoryLimitBytes() != uint64(node.cfg.MemoryLimit) || e.GetBufferLimitBytes() != uint64(node.cfg.MaxBufferBytes) ||
		e.GetHeartbeatTimeoutMs() != uint32(node.cfg.HeartbeatTimeout.Milliseconds()) || e.GetElectionTimeoutMs() != uint32(node.cfg.ElectionTimeout.Milliseconds()) {
		t.Errorf("%v, %v", e, err)
	}
	if !slices.Equal(e.GetUncertifiedAddrs(), []string{"lock.example:7400"}) {
		t.Errorf("addresses that the certificate does not name: %q", e.GetUncertifiedAddrs())
	}
}

// TestOpenFiles verifies that all connections are counted.
func TestOpenFiles(t *testing.T) {
	cfg := Defaults()
	cfg.Limits.MaxConnections, cfg.Limits.MaxTunnels, cfg.Limits.MaxHandshakes = 1, 20, 300
	cfg.HTTPLimits.MaxConnections, cfg.HTTPLimits.MaxHandshakes = 4_000, 50_000
	if got := cfg.OpenFiles(); got != 54_321+reservedFiles {
		t.Errorf("%d", got)
	}
}
