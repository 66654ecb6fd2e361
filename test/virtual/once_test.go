package virtual_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// holder is who holds the lock in the state of the node that serves.
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

// TestEveryReplyIsLost executes requests whose answers nobody hears, changes the leader,
// and lets their client ask again.
func TestEveryReplyIsLost(t *testing.T) {
	total := eachSeed(t, 10, everyReplyIsLost)
	if *onlySeed == 0 && (total.repeated < total.clusters || total.leaders < 2*total.clusters) {
		t.Errorf("too little happened: %v", total)
	}
}

func everyReplyIsLost(t *testing.T, seed uint64) counts {
	c := newCluster(t, seed, 3, nil)
	l := newLedger(c)
	c.leader()
	first, second := c.client(host(0)), c.client(host(1))
	deaf := open(l, first, "deaf")
	next := open(l, second, "next")
	for range 3 {
		x := l.take(deaf, "x")
		waiting := l.taking(next, "x")
		c.eventually("somebody waits", func() bool { return c.serving() != nil && len(c.line("x")) == 1 })

		leader := c.leader()
		for _, n := range c.nodes {
			c.net.Cut(n.id, host(0))
		}
		released := make(chan error, 1)
		go func() { released <- l.unlock(x.hold, x.entry) }()
		lost := l.taking(deaf, "y")
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

		got := l.granted(lost)
		if got.hold.Token() != want.GetToken() || got.hold.ID() != want.GetHoldId() {
			t.Errorf("asked again: hold %d, token %d; the first answer was %v", got.hold.ID(), got.hold.Token(), want)
		}
		if err := c.answer(released); err != nil {
			t.Errorf("released again: %v", err)
		}
		after := l.granted(waiting)
		if h := c.holder("x"); h.GetHoldId() != after.hold.ID() || after.hold.Context().Err() != nil {
			t.Errorf("the successor %d lost its hold to %v", after.hold.ID(), h)
		}
		for _, p := range []pin{got, after} {
			l.must("unlock", l.unlock(p.hold, p.entry))
		}
	}
	c.closeClients()
	return judge(c, l)
}
