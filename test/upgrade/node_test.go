package upgrade_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// nodeID and clusterID are those of the node that has the recorded data directory. Its state has a policy, so that it
// needs certificates.
const (
	nodeID    = "n1"
	clusterID = "recorded"
)

// openNode starts a node alone on a data directory, and waits until it serves. close stops it; only the first call has an
// effect.
func openNode(t *testing.T, dir string) (node *replica.Replica, term uint64, close func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificates := filepath.Join(t.TempDir(), "tls")
	if _, err := pki.Init(certificates, clusterID, []pki.Node{{ID: nodeID}}, nil); err != nil {
		t.Fatal(err)
	}
	of := func(name string) string { return filepath.Join(certificates, name) }
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	node, err = replica.Open(ctx, replica.Config{
		ID: nodeID, DataDir: dir, SegmentBytes: 64 << 10, Version: "test", PeerListener: l,
		PeerTLS:           &transport.TLSFiles{Cert: of("nodes/n1/peer.crt"), Key: of("nodes/n1/peer.key"), CA: of("ca.crt")},
		Advertise:         replica.Addresses{Peer: "n1:7401", Client: "n1:7400", HTTP: "n1:7402"},
		Cluster:           []replica.Peer{{ID: nodeID, Addr: "n1:7401"}},
		SnapshotThreshold: 20, SnapshotInterval: 20 * time.Millisecond, TrailingLogs: 1 << 20,
		Halt: func(err error) { t.Errorf("the node halted: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	close = func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(close)
	await(t, "the node serves", node.Serving)
	node.View(func(m *fsm.Machine) { term = m.Term() })
	return node, term, close
}
