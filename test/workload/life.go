package workload

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
)

// Life is one session as its user saw it.
type Life struct {
	ID  uint64
	TTL time.Duration
	// Steady is set if it must not be lost, Unguarded if its client was stalled beyond its TTL.
	Steady, Unguarded bool
	// Lost is when its user was notified of its end, or history.Never; Why is the reason.
	Lost time.Duration
	Why  error
}

// open opens a session and records its end.
func (a *actor) open(ctx context.Context, c *client.Client, ttl time.Duration, steady bool) (*client.Session, error) {
	s, err := c.NewSession(ctx, client.SessionOptions{TTL: ttl, Name: Prefix + a.name})
	if err != nil {
		return nil, err
	}
	l := &Life{ID: s.ID(), TTL: s.TTL(), Steady: steady, Unguarded: a.unguarded(), Lost: history.Never}
	a.mu.Lock()
	a.lives = append(a.lives, l)
	a.did[Opened]++
	a.mu.Unlock()
	a.following.Go(func() { a.follow(s, l) })
	return s, nil
}

// follow waits for the end of a session, at the latest when its client is closed.
func (a *actor) follow(s *client.Session, l *Life) {
	<-s.Lost()
	at, why := a.env.Log.Now(), s.Err()
	a.mu.Lock()
	l.Lost, l.Why = at, why
	a.mu.Unlock()
	if errors.Is(why, client.ErrClosed) {
		return
	}
	if l.Steady {
		a.fault("%s: session %d was lost: %v", a.name, l.ID, why)
		return
	}
	a.count(LostLives)
}

// Lives returns all sessions that the load opened.
func (r *Run) Lives() []Life {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Life
	for _, l := range r.lives {
		all = append(all, *l)
	}
	return all
}
