package virtual_test

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/workload"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sceneTTL outlasts every fault of a test with a fixed sequence of steps.
const sceneTTL = time.Minute

// open opens a session that is never cut off for long.
func (c *cluster) open(cl *client.Client, name string) *client.Session {
	c.t.Helper()
	return c.openFor(cl, name, sceneTTL, true)
}

// openFor opens a session and records its end.
func (c *cluster) openFor(cl *client.Client, name string, ttl time.Duration, steady bool) *client.Session {
	c.t.Helper()
	s, err := cl.NewSession(c.t.Context(), client.SessionOptions{TTL: ttl, Name: name})
	if err != nil {
		c.t.Fatal("open a session: ", err)
	}
	l := &workload.Life{ID: s.ID(), TTL: s.TTL(), Steady: steady, Lost: history.Never}
	c.mu.Lock()
	c.lives = append(c.lives, l)
	c.mu.Unlock()
	go func() {
		<-s.Lost()
		at, why := c.now(), s.Err()
		c.mu.Lock()
		defer c.mu.Unlock()
		l.Lost, l.Why = at, why
	}()
	return s
}

// pin is a hold in such a test.
type pin struct {
	*client.Hold
	c      *cluster
	booked *history.Held
}

// take acquires a lock, waiting if necessary.
func (c *cluster) take(s *client.Session, name string, opts ...client.LockOption) pin {
	c.t.Helper()
	return c.granted(c.taking(s, name, opts...))
}

// granted waits for a hold that must be granted.
func (c *cluster) granted(taken <-chan pin) (p pin) {
	c.t.Helper()
	select {
	case p = <-taken:
	case <-time.After(time.Minute):
	}
	if p.Hold == nil {
		c.t.Fatal("not granted")
	}
	return p
}

// taking acquires a lock in the background and sends the hold.
func (c *cluster) taking(s *client.Session, name string, opts ...client.LockOption) <-chan pin {
	taken := make(chan pin, 1)
	go func() {
		asked := c.now()
		h, err := s.Lock(context.Background(), name, opts...)
		if err != nil {
			c.log.Fault("lock %s: %v", name, err)
			taken <- pin{}
			return
		}
		booked := c.log.Grant(history.Hold{
			Session: s.ID(), ID: h.ID(), Token: h.Token(), Revision: h.Revision(), Locks: history.Exclusive(name), Asked: asked,
		})
		booked.Follow(h.Context())
		taken <- pin{h, c, booked}
	}()
	return taken
}

// release releases the hold and records the acknowledgement.
func (p pin) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p.booked.End()
	err := p.Unlock(ctx)
	if err == nil {
		p.booked.Acknowledge()
	}
	return err
}

// drop releases a hold, which must succeed.
func (p pin) drop() { p.c.must("unlock "+p.Name(), p.release()) }

func (c *cluster) must(what string, err error) {
	if err != nil {
		c.log.Fault("%s: %v", what, err)
	}
}

func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	if !within(time.Minute, ok) {
		c.t.Fatalf("not within a minute: %s", what)
	}
}

// line returns the waiters of a lock, in order, in the state of the serving node.
func (c *cluster) line(lock string) (ids []uint64) {
	if n := c.serving(); n != nil {
		n.replica().View(func(m *fsm.Machine) {
			found, _ := m.GetLock(&wire.GetLockRequest{Name: lock})
			for _, w := range found.GetQueue() {
				ids = append(ids, w.GetWaitId())
			}
		})
	}
	return ids
}

var errUnanswered = errors.New("not answered within a minute")

// answer waits for an error that must arrive.
func (c *cluster) answer(from <-chan error) error {
	select {
	case err := <-from:
		return err
	case <-time.After(time.Minute):
		return errUnanswered
	}
}
