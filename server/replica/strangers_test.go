package replica_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// replaceAllBut removes the members one by one and adds a new one for each, except keep and away. In the end,
// a new member leads.
func (c *cluster) replaceAllBut(keep, away *node) {
	c.t.Helper()
	for _, fresh := range []string{"n4", "n5"} {
		n := c.machine(fresh)
		n.cfg.Cluster = append(c.peers, replica.Peer{ID: fresh, Addr: fresh + ":7401"})
		n.start()
		c.leader().mustAdmin(func(n *node) error {
			return n.AddMember(c.t.Context(), &wire.AddMemberRequest{Id: fresh, PeerAddr: fresh + ":7401", Reason: "test"})
		})
		c.eventually(fresh+" votes", func() bool { return c.nodeStatus(fresh).GetVoter() })
	}
	c.hand("n4")
	for id, n := range c.nodes {
		if id == "n4" || id == "n5" || n == keep || n == away {
			continue
		}
		c.leader().mustAdmin(func(n *node) error {
			return n.RemoveMember(c.t.Context(), &wire.RemoveMemberRequest{Id: id, Reason: "test"})
		})
		n.crash()
	}
	c.hand("n4")
}

// hand transfers leadership to a node.
func (c *cluster) hand(id string) {
	c.t.Helper()
	c.leader().mustAdmin(func(n *node) error {
		return n.TransferLeadership(c.t.Context(), &wire.TransferLeadershipRequest{Id: id, Reason: "test"})
	})
	c.eventually(id+" leads", func() bool { return c.leader().id == id })
}

// TestReturningNodeLearnsItsLeaderFromAMember replaces all other members but one while a node is away.
// When the node returns, it knows neither the leader nor most members, and learns of them from the one that
// it knows.
func TestReturningNodeLearnsItsLeaderFromAMember(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		away, keep := c.followers()[0], c.followers()[1]
		away.crash()
		c.replaceAllBut(keep, away)
		s := c.openSession("a", time.Minute)
		hold := c.expect(c.must(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		started := time.Now()
		away.start()
		c.eventually("it has the state", func() bool { return away.holder("l") == s })
		t.Logf("it took %v", time.Since(started))
		// It votes with the others: without it there is no majority.
		keep.crash()
		c.expect(c.must(releaseCommand(s, 2, hold)), wire.Status_OK)
	})
}

// TestNodeWithReplacedMembersTrustsNone verifies that a node that knows no current member refuses all
// callers and takes no part.
func TestNodeWithReplacedMembersTrustsNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		away := c.followers()[0]
		away.crash()
		c.replaceAllBut(nil, away)
		s := c.openSession("a", time.Minute)
		c.expect(c.must(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		away.start()
		time.Sleep(time.Minute)
		if away.Leader().GetId() != "" || away.holder("l") == s {
			t.Errorf("it follows %v", away.Leader())
		}
		if err := away.haltedWith(); err != nil {
			t.Error(err)
		}
	})
}

// TestRemovedIncarnationDoesNotComeBack verifies that a removed incarnation cannot be added again, and that
// the node can return with a new one.
func TestRemovedIncarnationDoesNotComeBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		gone := c.followers()[0]
		c.leader().mustAdmin(func(n *node) error {
			return n.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: gone.id, Reason: "test"})
		})
		add := func(n *node) error {
			return n.AddMember(t.Context(), &wire.AddMemberRequest{Id: gone.id, PeerAddr: gone.id + ":7401", Reason: "test"})
		}
		term := c.statusOf(c.leader()).Term
		time.Sleep(10 * time.Second)
		if now := c.statusOf(c.leader()).Term; now != term {
			t.Errorf("the removed node brought term %d after %d", now, term)
		}
		if err := add(c.leader()); !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("a node with its old memory was added: %v", err)
		}
		// The node loses its log, but keeps its incarnation.
		gone.crash()
		incarnation := gone.cfg.Stores.Incarnation
		gone.wipe()
		fresh := gone.cfg.Stores.Incarnation
		gone.cfg.Stores.Incarnation = incarnation
		gone.start()
		time.Sleep(5 * time.Second)
		if err := add(c.leader()); !errors.Is(err, status.ErrPrecondition) || !mentions(err, "empty data directory") {
			t.Errorf("the removed incarnation was added: %v", err)
		}
		gone.crash()
		gone.wipe()
		gone.cfg.Stores.Incarnation = fresh
		gone.start()
		c.leader().mustAdmin(add)
		c.eventually("it votes again", func() bool { return c.nodeStatus(gone.id).GetVoter() })
	})
}
