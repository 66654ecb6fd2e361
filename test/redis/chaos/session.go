package chaos

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
)

// sessions is the number of sessions of the SDK.
const sessions = 3

// startSessions starts sessions of the SDK, each in a client of its own. They must never be lost.
func (l *Load) startSessions(seed uint64) {
	for i := range sessions {
		a := l.actor(fmt.Sprint("sdk-", i), seed, uint64(300+i))
		l.acting.Go(func() {
			if err := a.session(); err != nil {
				l.log.Fault("%s: %v", a.name, err)
			}
		})
	}
}

// session plays rounds with a session.
func (a *actor) session() error {
	c, err := client.New(client.Config{
		Endpoints: a.cluster.Endpoints(), Agent: a.name, Dial: a.log.Tap(a.name, a.cluster.Dialer()),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.NewSession(a.stop, client.SessionOptions{Name: prefix + a.name})
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	for a.stop.Err() == nil && err == nil {
		err = a.useSession(s, a.counter())
		a.pause(a.upTo(2 * pace))
	}
	if err == nil {
		err = s.Close(context.Background())
	}
	return err
}

// useSession acquires a lock, increments the counter and releases the lock.
func (a *actor) useSession(s *client.Session, d *counter) error {
	asked := a.log.Now()
	opts := []client.LockOption{client.WithWait(queueWait)}
	if a.oneIn(4) {
		opts = []client.LockOption{client.WithTry()}
	}
	h, err := s.Lock(context.Background(), d.name, opts...)
	if errors.Is(err, client.ErrTimeout) || errors.Is(err, client.ErrNotAcquired) {
		a.count(func(did *Counts) { did.Refused++ })
		return nil
	}
	if err != nil {
		return fmt.Errorf("acquire %s: %w", d.name, err)
	}
	a.count(func(did *Counts) { did.Holds++ })
	booked := a.log.Grant(history.Hold{
		Client: a.name, Session: s.ID(), ID: h.ID(), Token: h.Token(), Revision: h.Revision(),
		Locks: history.Exclusive(d.name), Asked: asked,
	})
	booked.Follow(h.Context())
	if err := d.increment(h.Token(), func() { a.pause(a.upTo(pace / 5)) }); err != nil {
		return err
	}
	if err := h.Unlock(context.Background()); err != nil {
		return fmt.Errorf("release %s: %w", d.name, err)
	}
	booked.Acknowledge()
	return nil
}
