package virtual_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// holder returns the holder of the lock in the state of the serving node.
func (c *cluster) holder(lock string) *wire.HolderInfo {
	var found *wire.HolderInfo
	if n := c.serving(); n != nil {
		n.replica().View(func(m *fsm.Machine) {
			if l, ok := m.GetLock(&wire.GetLockRequest{Name: lock}); ok && len(l.GetHolders()) > 0 {
				found = l.GetHolders()[0]
			}
		})
	}
	return found
}

// TestEveryReplyIsLost executes requests whose answers are lost, changes the leader, and lets their client
// retry.
func TestEveryReplyIsLost(t *testing.T) {
	total := eachSeed(t, 10, everyReplyIsLost)
	enough(t, total, counts{repeated: 1, leaderChanges: 2})
}

func everyReplyIsLost(t *testing.T, seed uint64) counts {
	c := newCluster(t, seed, 3, nil)
	c.leader()
	first, second := c.client("c0"), c.client("c1")
	deaf := c.open(first, "deaf")
	next := c.open(second, "next")
	for range 3 {
		x := c.take(deaf, "x")
		waiting := c.taking(next, "x")
		c.eventually("somebody waits", func() bool { return c.serving() != nil && len(c.line("x")) == 1 })

		leader := c.leader()
		for _, n := range c.nodes {
			c.net.Cut(n.id, "c0")
		}
		released := make(chan error, 1)
		go func() { released <- x.release() }()
		lost := c.taking(deaf, "y")
		c.eventually("both are executed", func() bool {
			return c.holder("x").GetSessionId() == next.ID() && c.holder("y").GetSessionId() == deaf.ID()
		})
		want := c.holder("y")
		if c.random.IntN(2) == 0 {
			leader.crash()
		} else {
			c.isolate(leader.id, c.nodes...)
		}
		c.successor(leader)
		pause(c.between(0, 7*time.Second))
		c.startAll()
		c.calm()

		got := c.granted(lost)
		if got.Token() != want.GetToken() || got.ID() != want.GetHoldId() {
			t.Errorf("asked again: hold %d, token %d; the first answer was %v", got.ID(), got.Token(), want)
		}
		if err := c.answer(released); err != nil {
			t.Errorf("released again: %v", err)
		}
		after := c.granted(waiting)
		if h := c.holder("x"); h.GetHoldId() != after.ID() || after.Context().Err() != nil {
			t.Errorf("the successor %d lost its hold to %v", after.ID(), h)
		}
		got.drop()
		after.drop()
	}
	c.closeClients()
	return c.verdict(nil)
}
