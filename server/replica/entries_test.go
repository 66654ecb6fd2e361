package replica_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestLogEntriesOfTheMainPaths(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		a, b := c.openSession("a", time.Minute), c.openSession("b", time.Minute)
		count := func(what string, want int, f func()) {
			t.Helper()
			before := len(leader.entries())
			f()
			time.Sleep(time.Second)
			if n := len(leader.entries()) - before; n != want {
				t.Errorf("%s took %d entries, want %d", what, n, want)
			}
		}
		count("nothing", 0, func() { time.Sleep(time.Minute / 2) })
		count("a lone acquire and release", 2, func() {
			hold := c.expect(leader.do(acquireCommand(a, 1, "l", 0)), wire.Status_GRANTED)
			c.expect(leader.do(releaseCommand(a, 2, hold)), wire.Status_OK)
		})
		hold := c.expect(leader.do(acquireCommand(a, 3, "l", 0)), wire.Status_GRANTED)
		to := &sink{}
		leader.Bind(b, to)
		c.expect(leader.do(acquireCommand(b, 1, "l", forever)), wire.Status_QUEUED)
		count("the hand-over to a waiter", 1, func() {
			c.expect(leader.do(releaseCommand(a, 4, hold)), wire.Status_OK)
			c.eventually("granted", func() bool { return len(to.all()) == 1 })
		})
		if leader.holder("l") != b {
			t.Error("the waiter does not hold the lock")
		}
	})
}

func TestGroupCommit(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		for _, o := range c.except(leader) { // so that commits take time
			c.net.Delay(leader.id, o, time.Millisecond)
			c.net.Delay(o, leader.id, time.Millisecond)
		}
		s := make([]uint64, 4)
		for i := range s {
			s[i] = c.openSession(fmt.Sprint("s", i), time.Minute)
		}
		const proposals = 1000
		before := len(leader.entries())
		order := make(chan uint64, proposals)
		granted := make(chan *wire.Result, proposals)
		for i := range uint64(proposals) {
			leader.Propose(acquireCommand(s[i%4], i/4+1, fmt.Sprint("lock/", i), 0), func(r *wire.Result) {
				order <- r.Revision
				granted <- r
			})
		}
		last := uint64(0)
		for range proposals {
			c.expect(<-granted, wire.Status_GRANTED)
			revision := <-order
			if revision <= last {
				t.Fatalf("answered revision %d after %d", revision, last)
			}
			last = revision
		}
		n := len(leader.entries()) - before
		t.Logf("%d proposals took %d entries", proposals, n)
		if n > 20 {
			t.Errorf("%d proposals took %d entries", proposals, n)
		}
	})
}

// TestEntriesAreBounded verifies that commands that exceed the size of an entry go into several.
func TestEntriesAreBounded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1).startAll()
		leader := c.waitForReports()
		s := make([]uint64, 8)
		for i := range s {
			s[i] = c.openSession(fmt.Sprint("s", i), time.Minute)
		}
		const proposals = 2000
		granted := make(chan *wire.Result, proposals)
		before := len(leader.entries())
		for i := range uint64(proposals) {
			cmd := acquireCommand(s[i%8], i/8+1, fmt.Sprint("lock/", i), 0)
			cmd.GetAcquire().Value = make([]byte, 1000)
			leader.Propose(cmd, func(r *wire.Result) { granted <- r })
		}
		for range proposals {
			c.expect(<-granted, wire.Status_GRANTED)
		}
		if n := len(leader.entries()) - before; n < 8 {
			t.Errorf("2 MB went into %d entries", n)
		}
		huge := acquireCommand(s[0], 1000, "huge", 0)
		huge.GetAcquire().Value = make([]byte, 300<<10)
		c.expect(leader.do(huge), wire.Status_RESOURCE_EXHAUSTED)
		bad := acquireCommand(s[0], 1001, "bad\xff", 0)
		good := make(chan *wire.Result, 1)
		leader.Propose(acquireCommand(s[0], 1002, "good", 0), func(r *wire.Result) { good <- r })
		c.expect(leader.do(bad), wire.Status_INVALID_ARGUMENT)
		c.expect(<-good, wire.Status_GRANTED)
	})
}
