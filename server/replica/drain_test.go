package replica_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// drain drains a node, or ends that, at the leader.
func (c *cluster) drain(id string, drained bool) {
	c.t.Helper()
	c.leader().mustAdmin(func(n *node) error {
		return n.SetDrained(c.t.Context(), &wire.SetDrainedRequest{Id: id, Drained: drained, Reason: "test"})
	})
}

// leads waits until a node leads, and lets time pass in which it must stay the leader.
func (c *cluster) leads(within time.Duration, n *node) {
	c.t.Helper()
	c.within(within, n.id+" leads", func() bool { return c.serving() == n })
	term := c.statusOf(n).Term
	time.Sleep(10 * time.Second)
	if now := c.leader(); now != n || c.statusOf(n).Term != term {
		c.t.Errorf("%s led in term %d, and now %s leads in term %d", n.id, term, now.id, c.statusOf(now).Term)
	}
}

// TestDrainedNodeDoesNotLead drains the leader, and tries to make it lead again: by transfers, by restarts, and by the
// end of the leader. It leads only while no other voter can.
func TestDrainedNodeDoesNotLead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		drained := c.waitForReports()
		c.drain(drained.id, true)
		c.within(200*time.Millisecond, "another node leads", func() bool { n := c.serving(); return n != nil && n != drained })
		leader := c.leader()
		c.leads(time.Second, leader)
		c.drain(drained.id, true) // once more
		if n := c.nodeStatus(drained.id); !n.Drained || !n.Voter || n.UnsafeToStop != "" {
			t.Errorf("%v", n)
		}
		c.refused("a transfer to it", "is drained", leader.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: drained.id, Reason: "test"}))

		for range 2 { // a transfer to the best node never chooses it
			leader = c.leader()
			leader.mustAdmin(func(n *node) error {
				return n.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"})
			})
			c.within(time.Second, "the third node leads", func() bool { n := c.serving(); return n != nil && n != leader && n != drained })
		}
		leader = c.leader()
		drained.stop()
		drained.start()
		c.leads(time.Second, leader)

		leader.crash()
		c.within(10*time.Second, "the third node leads", func() bool { n := c.serving(); return n != nil && n != drained })
		last := c.leader()
		leader.start()
		c.leads(time.Second, last)

		c.drain(drained.id, false)
		c.leader().mustAdmin(func(n *node) error {
			return n.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: drained.id, Reason: "test"})
		})
		c.leads(time.Second, drained)
	})
}

// refused expects that the state of the cluster does not allow a request.
func (c *cluster) refused(what, says string, err error) {
	c.t.Helper()
	if !errors.Is(err, status.ErrPrecondition) || !mentions(err, says) {
		c.t.Errorf("%s: %v", what, err)
	}
}

// TestDrainedNodesLeadIfNobodyElseCan drains all nodes but one. That one cannot be drained or removed. When it is gone,
// another one leads, and gives leadership back.
func TestDrainedNodesLeadIfNobodyElseCan(t *testing.T) {
	for name, ends := range map[string]func(*node){"stop": (*node).stop, "crash": (*node).crash} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				c := newCluster(t, 3).startAll()
				only := c.waitForReports()
				for _, other := range c.followers() {
					c.drain(other.id, true)
				}
				c.leads(time.Second, only)
				c.refused("draining the last one", "no voter is left", only.SetDrained(t.Context(), &wire.SetDrainedRequest{Id: only.id, Drained: true, Reason: "test"}))
				c.refused("removing the last one", "are drained", only.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: only.id, Reason: "test"}))
				c.refused("a transfer", "all other voters are drained", only.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"}))
				if err := only.SetDrained(t.Context(), &wire.SetDrainedRequest{Id: "n9", Drained: true, Reason: "test"}); !errors.Is(err, status.ErrNotFound) {
					t.Errorf("draining a stranger: %v", err)
				}

				ends(only)
				limit := 10 * time.Second
				if name == "stop" {
					limit = 200 * time.Millisecond // it hands over to a drained node
				}
				c.within(limit, "a drained node leads", func() bool { return c.serving() != nil })
				c.leads(time.Second, c.leader())
				only.start()
				c.leads(10*time.Second, only)
			})
		})
	}
}

// TestDrainedLeaderWaitsForItsSuccessor verifies that a drained leader serves while the only voter that may lead
// does not answer, and hands over once it does.
func TestDrainedLeaderWaitsForItsSuccessor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		others := c.followers()
		c.drain(others[0].id, true)
		c.net.Isolate(others[1].id, c.except(others[1])...)
		c.drain(leader.id, true)
		c.leads(time.Second, leader)
		if s := c.nodeStatus(leader.id); !strings.HasPrefix(s.UnsafeToStop, "it leads; the cluster would lose its majority") {
			t.Errorf("%v", s)
		}
		c.net.Heal()
		c.leads(10*time.Second, others[1])
	})
}
