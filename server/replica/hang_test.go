package replica_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestHungDiskOfTheLeader verifies a write that never returns: it blocks raft's main loop, but not its
// heartbeats.
func TestHungDiskOfTheLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		old := c.waitForReports()
		s := c.openSession("a", time.Minute)
		release := sync.OnceFunc(old.disk.hang())
		defer release()
		answers := make(chan *wire.Result, 1)
		old.Propose(acquireCommand(s, 1, "l", 0), func(r *wire.Result) { answers <- r })
		c.within(2*time.Second, "another leader", func() bool { n := c.serving(); return n != nil && n != old })
		c.within(10*time.Second, "halted", func() bool { return old.haltedWith() != nil })
		if err := old.haltedWith(); !errors.Is(err, storage.ErrDiskHangs) {
			t.Errorf("halted with %v", err)
		}
		c.expect(c.must(acquireCommand(s, 2, "m", 0)), wire.Status_GRANTED)
		release() // the process would have ended long ago
		if r := <-answers; r.Status != wire.Status_UNCERTAIN {
			t.Errorf("an entry on its way to the disk was answered %v", r)
		}
	})
}

// TestHungDiskWithoutWatchdog shows that without watchdog and hand-over, such a leader would never be
// replaced.
func TestHungDiskWithoutWatchdog(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			n.cfg.DiskTimeout, n.cfg.NoFailoverHint = time.Hour, true
		}
		c.startAll()
		old := c.waitForReports()
		s := c.openSession("a", 10*time.Second)
		release := sync.OnceFunc(old.disk.hang())
		defer release()
		old.Propose(acquireCommand(s, 1, "l", 0), func(*wire.Result) {})
		for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(100 * time.Millisecond) {
			if n := c.serving(); n != nil && n != old {
				t.Fatalf("%s leads after %v: then the watchdog is not needed", n.id, time.Since(begin))
			}
		}
		release()
		c.expect(c.must(acquireCommand(s, 2, "m", 0)), wire.Status_SESSION_LOST)
	})
}

func TestHungDiskOfAFollower(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", time.Minute)
		victim := c.followers()[0]
		defer victim.disk.hang()()
		c.expect(leader.do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		c.within(10*time.Second, "halted", func() bool { return victim.haltedWith() != nil })
		if err := victim.haltedWith(); !errors.Is(err, storage.ErrDiskHangs) {
			t.Errorf("halted with %v", err)
		}
		if c.serving() != leader {
			t.Error("the leader was replaced because a follower's disk hangs")
		}
	})
}

// TestHungDiskAtAnElection verifies that a node whose disk hangs neither votes nor stands, because its vote
// is written to the disk.
func TestHungDiskAtAnElection(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		old := c.waitForReports()
		victim := c.followers()[0]
		defer victim.disk.hang()()
		old.crash()
		c.within(10*time.Second, "halted", func() bool { return victim.haltedWith() != nil })
		if err := victim.haltedWith(); !errors.Is(err, storage.ErrDiskHangs) {
			t.Errorf("halted with %v", err)
		}
		old.start()
		c.leader()
	})
}

// TestSlowDiskIsNoHungDisk verifies writes that take nearly all of the allowed time while other writes wait
// for them.
func TestSlowDiskIsNoHungDisk(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			n.cfg.NoFailoverHint = true // otherwise a healthier node would lead
		}
		c.startAll()
		leader := c.waitForReports()
		s := c.openSession("a", time.Minute)
		for i, n := range []*node{leader, c.followers()[0]} {
			n.disk.takeTime(6 * time.Second)
			for seq := range uint64(4) {
				c.expect(leader.do(acquireCommand(s, 10*uint64(i)+seq+1, fmt.Sprint(i, seq), 0)), wire.Status_GRANTED)
			}
			n.disk.takeTime(0)
		}
		for _, n := range c.nodes {
			if err := n.haltedWith(); err != nil {
				t.Errorf("%s: %v", n.id, err)
			}
		}
		if c.serving() != leader {
			t.Error("a leader with a slow disk was replaced")
		}
	})
}
