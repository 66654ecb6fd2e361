package virtual_test

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sceneTTL outlives every fault of a test that tells its story step by step.
const sceneTTL = time.Minute

// open opens a session that is never cut off for long.
func open(l *ledger, cl *client.Client, name string) *client.Session {
	l.c.t.Helper()
	s, err := l.open(l.c.t.Context(), cl, name, sceneTTL, true)
	if err != nil {
		l.c.t.Fatal("open a session: ", err)
	}
	return s
}

// take locks, at once or when it is free.
func (l *ledger) take(s *client.Session, name string, opts ...client.LockOption) pin {
	l.c.t.Helper()
	return l.granted(l.taking(s, name, opts...))
}

// granted waits for a hold that has to come.
func (l *ledger) granted(taken <-chan pin) (p pin) {
	l.c.t.Helper()
	select {
	case p = <-taken:
	case <-time.After(time.Minute):
	}
	if p.hold == nil {
		l.c.t.Fatalf("not granted; %v", l.faults)
	}
	return p
}

// taking locks beside the test and sends the hold.
func (l *ledger) taking(s *client.Session, name string, opts ...client.LockOption) <-chan pin {
	taken := make(chan pin, 1)
	go func() {
		h, entry, err := l.locking(s, name, func() (*client.Hold, error) { return s.Lock(context.Background(), name, opts...) })
		if err != nil {
			l.fault("lock %s: %v", name, err)
		}
		taken <- pin{h, entry}
	}()
	return taken
}

func (l *ledger) must(what string, err error) {
	if err != nil {
		l.fault("%s: %v", what, err)
	}
}

func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	if !within(time.Minute, ok) {
		c.t.Fatalf("not within a minute: %s", what)
	}
}

// line are those who wait for a lock, in order, in the state of the node that serves.
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

// answer waits for an error that has to come.
func (c *cluster) answer(from <-chan error) error {
	select {
	case err := <-from:
		return err
	case <-time.After(time.Minute):
		return errUnanswered
	}
}
