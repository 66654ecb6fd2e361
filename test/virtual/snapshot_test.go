package virtual_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/server"
)

// hasty takes snapshots often and keeps little of the log.
func hasty(_ int, cfg *server.Config) {
	cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 32, 8, time.Second
}

// outrun waits until the leader has discarded entries that a node that is down lacks.
func (c *cluster) outrun(lagging *node) (has uint64) {
	c.t.Helper()
	has, _ = lagging.disk.LastIndex()
	c.eventually("the leader forgets what a follower lacks", func() bool {
		first, _ := c.leader().disk.FirstIndex()
		return first > has+1
	})
	return has
}

// installed waits until a node has caught up by a snapshot, and fails the test if it got the log instead.
func (c *cluster) installed(lagging *node, has uint64) {
	c.t.Helper()
	c.eventually("the snapshot is installed", func() bool {
		all, _ := lagging.disk.snapshots.List()
		return len(all) > 0 && all[0].Index > has
	})
	if lagging.disk.at(has+1) != nil {
		c.t.Error("the follower got the log, not a snapshot")
	}
}

// TestSnapshotInstalledUnderLoad lets a follower lag until it needs a snapshot, and crashes the leader right
// after it has sent one.
func TestSnapshotInstalledUnderLoad(t *testing.T) {
	story{tune: hasty, fault: func(c *cluster, leader *node) {
		lagging := c.shuffled(leader)[0]
		lagging.crash()
		has := c.outrun(lagging)
		lagging.start()
		c.installed(lagging, has)
		if c.random.IntN(2) == 0 {
			leader.crash()
			c.successor(leader)
		}
	}}.tellEach(t, 10, usualLeast(0))
}

// TestKilledDuringSnapshot kills a node while it writes its own snapshot, receives the leader's, or restores
// that.
func TestKilledDuringSnapshot(t *testing.T) {
	story{tune: hasty, fault: func(c *cluster, leader *node) {
		victim, which := leader, writingSnapshot
		if c.random.IntN(3) > 0 {
			victim = c.shuffled(leader)[0]
			which = []string{writingSnapshot, readingSnapshot}[c.random.IntN(2)]
			victim.crash()
			has := c.outrun(victim)
			died := victim.diesWhile(which)
			victim.start()
			c.eventually("the node dies "+which, died)
			if last, _ := victim.disk.LastIndex(); last > has {
				c.t.Errorf("it died later: its log has %d entries, it had %d", last, has)
			}
			return
		}
		c.eventually("the node dies "+which, victim.diesWhile(which))
		c.successor(victim)
	}}.tellEach(t, 14, usualLeast(0))
}

// diesWhile makes the node crash during an operation on a snapshot. The function that it returns reports
// whether it has.
func (n *node) diesWhile(which string) (died func() bool) {
	var once sync.Once
	gone := make(chan struct{})
	n.disk.snapshots.on(func(now string) error {
		if now != which || n.process() == nil { // it is only starting
			return nil
		}
		once.Do(func() { go func() { n.crash(); n.disk.snapshots.on(nil); close(gone) }() })
		for !n.wire.dead.Load() {
			pause(time.Millisecond)
		}
		return errDead
	})
	return func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}
}

// TestFollowerFromASnapshotLeads stops a follower until the log that it lacks is discarded, so that it gets a
// snapshot, and makes it the leader: holds and waiters must be intact.
func TestFollowerFromASnapshotLeads(t *testing.T) {
	eachSeed(t, 3, followerFromASnapshotLeads)
}

func followerFromASnapshotLeads(t *testing.T, seed uint64) counts {
	c := newCluster(t, seed, 3, hasty)
	leader := c.leaderWithReports()
	cl := c.client("c0")
	a, b := c.open(cl, "a"), c.open(cl, "b")
	lagging := c.except(leader)[c.random.IntN(2)]
	lagging.crash()

	kept, head := c.take(a, "kept"), c.take(a, "line")
	var waiting []<-chan pin
	for i := range 6 {
		waiting = append(waiting, c.taking([]*client.Session{a, b}[i%2], "line"))
		c.eventually("queued", func() bool { return len(c.line("line")) == i+1 })
	}
	places := c.line("line")
	for range 60 {
		c.take(b, "churn").drop()
	}
	has := c.outrun(lagging)
	lagging.start()
	c.installed(lagging, has)
	c.eventually("the follower has caught up", func() bool {
		return lagging.replica().Fork().Revision() == leader.replica().Fork().Revision()
	})
	c.lead(lagging)
	if now := c.line("line"); !slices.Equal(now, places) {
		t.Errorf("the queue is %v, it was %v", now, places)
	}
	lagging.crash()
	lagging.start()
	c.lead(lagging)
	served := []uint64{}
	for _, w := range waiting {
		head.drop()
		head = c.granted(w)
		served = append(served, head.ID())
	}
	if !slices.Equal(served, places) {
		t.Errorf("served %v, they stood as %v", served, places)
	}
	if h := c.holder("kept"); h.GetToken() != kept.Token() || kept.Context().Err() != nil {
		t.Errorf("the hold with token %d became %v", kept.Token(), h)
	}
	head.drop()
	kept.drop()
	c.closeClients()
	return c.verdict(nil)
}
