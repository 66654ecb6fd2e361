package replica_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/samples"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sum adds up what a node has counted, and returns its last sample.
func (n *node) sum() (grants, expirations uint64, last *wire.Sample) {
	for _, s := range n.Samples().GetSamples() {
		grants, expirations, last = grants+s.GetGrants(), expirations+s.GetExpirations(), s
	}
	return grants, expirations, last
}

// near reports whether a latency in microseconds is the given one, within the accuracy of medians.
func near(us uint32, want time.Duration) bool {
	got := time.Duration(us) * time.Microsecond
	return got > want-want/16-2*time.Microsecond && got < want+want/16+2*time.Microsecond
}

// TestSamplesOfEachNode verifies that all nodes count the same grants and expirations and have the same totals, that
// each has the latency of its own disk, and only the leader that of commits.
func TestSamplesOfEachNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		disks := map[string]time.Duration{"n1": 2 * time.Millisecond, "n2": 5 * time.Millisecond, "n3": 9 * time.Millisecond}
		c := newCluster(t, 3)
		for id, each := range disks {
			c.nodes[id].disk.takeTime(each)
		}
		leader := c.startAll().waitForReports()
		s, short := c.openSession("a", 5*time.Minute), c.openSession("b", 5*time.Second)
		c.expect(leader.do(acquire(s, 1, "a", &wire.Acquire{})), wire.Status_GRANTED)
		c.expect(leader.do(acquire(s, 2, "b", &wire.Acquire{MaxHoldMs: 1_000})), wire.Status_GRANTED)
		c.expect(leader.do(acquire(short, 1, "c", &wire.Acquire{})), wire.Status_GRANTED)
		c.expect(leader.do(acquire(s, 3, "c", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
		c.eventually("the waiter gets the lock", func() bool { return leader.holder("c") == s })
		c.expect(leader.do(acquire(c.openSession("w", time.Minute), 1, "c", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
		time.Sleep(2 * samples.Interval)
		for id, n := range c.nodes {
			grants, expirations, last := n.sum()
			if grants != 4 || expirations != 3 { // the hold of b, the session of c, and its hold
				t.Errorf("%s counts %d grants and %d expirations", id, grants, expirations)
			}
			if last.GetLocks() != 2 || last.GetSessions() != 2 || last.GetHolds() != 2 || last.GetWaiters() != 1 {
				t.Errorf("%s: the last sample is %v", id, last)
			}
			if all := n.Samples(); all.GetNodeId() != id || all.GetIntervalMs() != 5_000 {
				t.Errorf("%s: samples of %q, each %d ms", id, all.GetNodeId(), all.GetIntervalMs())
			}
		}
		for _, n := range c.statusOf(c.followers()[0]).GetNodes() {
			commits := n.GetCommitUs() != 0
			if !near(n.GetDiskSyncUs(), disks[n.GetId()]) || commits != n.GetLeader() {
				t.Errorf("status of %s: %v", n.GetId(), n)
			}
		}
	})
}

// TestReplayIsNotCounted verifies that a node that starts again counts only what it applies after it has caught up.
func TestReplayIsNotCounted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", 5*time.Minute)
		c.expect(leader.do(acquireCommand(s, 1, "before", 0)), wire.Status_GRANTED)
		away := c.followers()[0]
		away.crash()
		c.expect(leader.do(acquireCommand(s, 2, "meanwhile", 0)), wire.Status_GRANTED)
		away.start()
		c.eventually("it has caught up", func() bool { return away.CaughtUp() && away.holder("meanwhile") == s })
		c.expect(leader.do(acquireCommand(s, 3, "after", 0)), wire.Status_GRANTED)
		time.Sleep(2 * samples.Interval)
		if grants, _, last := away.sum(); grants != 1 || last.GetHolds() != 3 {
			t.Errorf("%d grants were counted, want the one after it had caught up; %v", grants, last)
		}
		if grants, _, _ := leader.sum(); grants != 3 {
			t.Errorf("the leader counts %d grants", grants)
		}
	})
}

// TestFormerLeaderHasNoCommits verifies that the status has no latency of commits for a node that leads no more.
func TestFormerLeaderHasNoCommits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			n.disk.takeTime(time.Millisecond)
		}
		former := c.startAll().waitForReports()
		if us := c.nodeStatus(former.id).GetCommitUs(); us == 0 {
			t.Error("the leader has no latency of commits")
		}
		former.mustAdmin(func(n *node) error {
			return n.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"})
		})
		c.eventually("another node leads", func() bool { return c.serving() != nil && c.serving() != former })
		for _, n := range c.statusOf(c.serving()).GetNodes() {
			if (n.GetCommitUs() != 0) != (n.GetId() != former.id && n.GetLeader()) {
				t.Errorf("status of %s, which led: %v; %v", former.id, n.GetId(), n)
			}
		}
	})
}
