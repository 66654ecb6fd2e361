package replica_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestWatchesWaitUntilANodeHasCaughtUp verifies that watches wait after a start. Before the node has heard
// from a leader, what it has applied says nothing about the cluster's events.
func TestWatchesWaitUntilANodeHasCaughtUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		c.grants(50)
		lineage, after := c.statusOf(leader).Lineage, leader.revision()-10
		n := c.followers()[0]
		c.eventually("all is applied", func() bool { return n.revision() == leader.revision() })
		n.stop()
		c.net.Isolate(n.id, c.except(n)...)
		n.start()

		req := &wire.WatchRequest{AfterRevision: after, Lineage: lineage}
		err := n.Watch(t.Context(), req, nil, func(r *wire.WatchResponse) error {
			t.Errorf("a node that has heard of nobody answers %v", r)
			return nil
		})
		if !errors.Is(err, status.ErrUnavailable) {
			t.Errorf("the watch ended with %v", err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Watch(soon, req, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a watch that gives up: %v", err)
		}
		if n.CaughtUp() {
			t.Error("a node that has heard of nobody has caught up")
		}
		resumed, started := n.watch(req, nil), n.watch(&wire.WatchRequest{}, nil)
		c.net.Heal()
		c.eventually("the watches are answered", func() bool { return resumed.last() != nil && started.last() != nil })
		if !n.CaughtUp() {
			t.Error("the node answers watches, and has not caught up")
		}
		if last := resumed.last(); last.Status != wire.Status_OK {
			t.Errorf("resumed: %v", last)
		}
		c.eventually("the events after that revision", func() bool {
			events := resumed.events()
			return len(events) > 0 && events[len(events)-1].Revision == leader.revision()
		})
		if first := resumed.events()[0]; first.Revision != after+1 {
			t.Errorf("the first event after revision %d has %d", after, first.Revision)
		}
		if first := started.all()[0]; first.Revision < after || len(started.events()) > 0 {
			t.Errorf("a watch from now on begins amid the log: %v, %d events", first, len(started.events()))
		}
		resumed.end(t)
		started.end(t)
	})
}

// TestStartedNodesCatchUp verifies that a node catches up even if it has nothing to apply, or is the only
// node of its cluster.
func TestStartedNodesCatchUp(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		inVirtualTime(t, func(t *testing.T) {
			c := newCluster(t, nodes).startAll()
			c.waitForReports()
			for range 2 { // the second time after a restart
				for _, n := range c.nodes {
					w := n.watch(&wire.WatchRequest{}, nil)
					c.within(time.Second, "a watch is answered", func() bool { return w.last() != nil })
					w.end(t)
				}
				c.stopAll()
				c.startAll()
				c.waitForReports()
			}
		})
	}
}
