package replica_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestFollowersCatchUp verifies that a follower has applied what the leader had acknowledged before the call, that the
// leader does not wait, and that a node without a leader gives up.
func TestFollowersCatchUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		for i := range 20 {
			sum := make([]byte, 32)
			sum[0] = byte(i)
			acknowledged := c.must(&wire.Command{Op: &wire.Command_CreateToken{CreateToken: &wire.CreateToken{Sha256: sum, Name: "ann", Reason: "r"}}})
			for _, f := range c.followers() {
				if !f.CatchUp() {
					t.Errorf("%s did not wait", f.id)
				}
				f.View(func(m *fsm.Machine) {
					if m.Revision() < acknowledged.GetRevision() || f.Access().Token(sum) == nil {
						t.Errorf("%s has applied revision %d of %d", f.id, m.Revision(), acknowledged.GetRevision())
					}
				})
			}
		}
		if leader.CatchUp() {
			t.Error("the leader waits")
		}
		last := c.followers()[0]
		for _, n := range c.nodes {
			if n.id != last.id {
				n.stop()
			}
		}
		c.eventually("no node leads", func() bool { return last.Leader().GetId() == "" && !last.Serving() })
		if started := time.Now(); !last.CatchUp() || time.Since(started) > 2*time.Second {
			t.Errorf("without a leader, it took %v", time.Since(started))
		}
	})
}
