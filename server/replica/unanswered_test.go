package replica_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// wellSaid verifies that an operator's request is refused within 2 s because a node does not answer, and that
// nothing else happened.
func (c *cluster) wellSaid(request func(leader *node) error, words ...string) {
	c.t.Helper()
	leader := c.leader()
	term, members := c.statusOf(leader).Term, len(c.statusOf(leader).Nodes)
	started := time.Now()
	err := request(leader)
	if took := time.Since(started); took >= 2*time.Second {
		c.t.Errorf("it took %v", took)
	}
	if status.Code(err) != wire.Status_FAILED_PRECONDITION || !mentions(err, append(words, "nothing was changed")...) || mentions(err, "no leader") {
		c.t.Errorf("it said: %v", err)
	}
	if s := c.statusOf(leader); s.Term != term || len(s.Nodes) != members || s.LeaderId != leader.id || !leader.Serving() {
		c.t.Errorf("term %d, %d members, %s leads; before term %d, %d members, %s", s.Term, len(s.Nodes), s.LeaderId, term, members, leader.id)
	}
}

// TestUnansweredMembershipChanges verifies that a change that needs a node which does not answer reports that,
// changes nothing, and takes less than 2 s, however the node fails to answer. A member that is gone is
// removed without being asked.
func TestUnansweredMembershipChanges(t *testing.T) {
	for name, silence := range map[string]func(c *cluster, n *node){
		"nobody listens": func(_ *cluster, n *node) { n.crash() },
		"cut off":        func(c *cluster, n *node) { c.net.Isolate(n.id, c.except(n)...) },
		"hears and cannot answer": func(c *cluster, n *node) {
			for _, other := range c.except(n) {
				c.net.Cut(n.id, other)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				c := newCluster(t, 3).startAll()
				c.waitForReports()
				fresh := c.newcomer("n4")
				silence(c, fresh)
				c.wellSaid(func(n *node) error {
					return n.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n4", PeerAddr: "n4:7401", Reason: "test"})
				}, "n4", "n4:7401", "does not answer")
				gone := c.followers()[0]
				if gone == fresh {
					gone = c.followers()[1]
				}
				silence(c, gone)
				c.wellSaid(func(n *node) error {
					return n.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: gone.id, Reason: "test"})
				}, gone.id, "does not answer")
				leader, started := c.leader(), time.Now()
				err := leader.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: gone.id, Reason: "test"})
				if took := time.Since(started); err != nil || took >= 2*time.Second || len(c.statusOf(leader).Nodes) != 2 {
					t.Errorf("removed after %v: %v", took, err)
				}
			})
		})
	}
}
