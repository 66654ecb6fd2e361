package replica_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestClusterOverTLS verifies that with TLS, the cluster id is that of the certificate, and that a node of
// another cluster cannot connect to any node, whatever it claims.
func TestClusterOverTLS(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		secure := func(n *node, dir string) {
			base := filepath.Join(dir, "nodes", n.id)
			n.cfg.PeerTLS = &transport.TLSFiles{Cert: filepath.Join(base, "peer.crt"), Key: filepath.Join(base, "peer.key"), CA: filepath.Join(dir, "ca.crt")}
		}
		make := func(cluster string) string {
			dir := filepath.Join(t.TempDir(), cluster)
			if _, err := pki.Init(dir, cluster, []pki.Node{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}, {ID: "n4"}}, nil); err != nil {
				t.Fatal(err)
			}
			return dir
		}
		payments, orders := make("payments"), make("orders")
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			secure(n, payments)
		}
		c.startAll()
		leader := c.waitForReports()
		if id := c.statusOf(leader).ClusterId; id != "payments" {
			t.Errorf("the cluster is %q", id)
		}
		s := c.openSession("a", time.Minute)
		c.expect(leader.do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)

		stray := c.machine("n4")
		stray.cfg.Cluster = append(c.peers, replica.Peer{ID: "n4", Addr: "n4:7401"})
		secure(stray, orders)
		stray.start()
		time.Sleep(5 * time.Second)
		if err := leader.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n4", PeerAddr: "n4:7401", Reason: "test"}); err == nil || len(c.statusOf(leader).Nodes) != 3 {
			t.Errorf("another authority's node was added: %v", err)
		}
		stray.stop()
		stray.cfg.ClusterID = "payments"
		if err := stray.open(); !errors.Is(err, status.ErrOtherCluster) {
			t.Errorf("a certificate of another cluster: %v", err)
		}
	})
}
