package replica_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestRemovedNodeSaysSo verifies that a removed node reports its removal, also after a restart, and takes no part.
func TestRemovedNodeSaysSo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		gone := c.followers()[0]
		c.leader().mustAdmin(func(n *node) error {
			return n.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: gone.id, Reason: "test"})
		})
		for _, when := range []string{"removed", "started again"} {
			c.eventually(when+": it says so", func() bool { return gone.Removed() != "" })
			if s := c.statusOf(gone); s.Removed != gone.Removed() || s.LeaderId != "" {
				t.Errorf("%s: %q, leader %q", when, s.Removed, s.LeaderId)
			}
			if err := gone.haltedWith(); err != nil {
				t.Errorf("%s: halted with %v", when, err)
			}
			gone.stop()
			gone.start()
		}
		for _, n := range []*node{c.leader(), c.followers()[0]} {
			if n != gone && n.Removed() != "" {
				t.Errorf("%s: %q", n.id, n.Removed())
			}
		}
		term := c.statusOf(c.leader()).Term
		time.Sleep(20 * time.Second)
		if now := c.statusOf(c.leader()).Term; now != term || gone.Serving() {
			t.Errorf("term %d became %d", term, now)
		}
	})
}
