package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
)

// Lone are actors that each have a lock to themselves.
var Lone = steadily("lone", 2, func(a *actor, s *client.Session) error {
	name := lock("lone", a.number)
	switch a.rand.IntN(4) {
	case 0:
		return a.bounded(s, name)
	case 1:
		return a.twice(s, name)
	case 2:
		return a.doing(s, name)
	}
	return a.briefly(a.lock(a.ctx, s, name))
})

const (
	hotLocks = 2
	// leastBound is the minimum max_hold.
	leastBound = 100 * time.Millisecond
)

func hot(a *actor) string { return lock("hot", a.rand.IntN(hotLocks)) }

// Hot are actors that contend for the same few locks, one of which is unfair.
var Hot = steadily("hot", 4, func(a *actor, s *client.Session) error {
	switch a.rand.IntN(6) {
	case 0:
		return a.briefly(a.lock(a.ctx, s, lock("unfair", 0), client.WithUnfair()))
	case 1:
		return a.try(s, hot(a))
	}
	return a.briefly(a.lock(a.ctx, s, hot(a)))
})

// try acquires a lock if it is free.
func (a *actor) try(s *client.Session, name string) error {
	err := a.briefly(a.acquire(s, history.Exclusive(name), func() (*client.Hold, error) { return s.Lock(a.ctx, name, client.WithTry()) }))
	if errors.Is(err, client.ErrNotAcquired) {
		return nil
	}
	return err
}

// bounded keeps a hold beyond its max_hold, perhaps extended once.
func (a *actor) bounded(s *client.Session, name string) error {
	limit := a.between(leastBound, a.opts.Pace+leastBound)
	h, err := a.lock(a.ctx, s, name, client.WithMaxHold(limit))
	if errors.Is(err, client.ErrHoldExpired) {
		return nil // the answer came too late
	}
	if err != nil {
		return err
	}
	if a.rand.IntN(2) == 0 {
		if err := h.Extend(a.ctx, limit); err != nil && !errors.Is(err, client.ErrHoldExpired) {
			return fmt.Errorf("extend: %w", err)
		}
	}
	<-h.Context().Done()
	a.count(Bounded)
	if why := context.Cause(h.Context()); !errors.Is(why, client.ErrHoldExpired) {
		return fmt.Errorf("a hold bounded by %v ended: %w", limit, why)
	}
	if err := h.Unlock(a.ctx); !errors.Is(err, client.ErrHoldExpired) {
		return fmt.Errorf("unlock of a hold that expired: %w", err)
	}
	return nil
}

// twice acquires a lock twice as one owner, and verifies that it is refused without the reentrant option.
func (a *actor) twice(s *client.Session, name string) error {
	h, err := a.lock(a.ctx, s, name)
	if err != nil {
		return err
	}
	if _, err := s.Lock(h.Context(), name); !errors.Is(err, client.ErrAlreadyHeld) {
		return fmt.Errorf("locked again: %w", err)
	}
	again, err := s.Lock(h.Context(), name, client.Reentrant())
	if err != nil {
		return fmt.Errorf("entered again: %w", err)
	}
	if again.Token() != h.Token() || again.ID() != h.ID() {
		return fmt.Errorf("entered again: hold %d, token %d instead of %d, %d", again.ID(), again.Token(), h.ID(), h.Token())
	}
	if err := again.Unlock(a.ctx); err != nil {
		return fmt.Errorf("left again: %w", err)
	}
	if err := h.Context().Err(); err != nil {
		return fmt.Errorf("left once of twice: %w", context.Cause(h.Context()))
	}
	return h.release()
}

// doing holds the lock with Do.
func (a *actor) doing(s *client.Session, name string) error {
	var last uint64
	err := s.Do(a.ctx, name, func(ctx context.Context, token uint64) error {
		a.pause(a.some(1), ctx.Done())
		last = token
		return ctx.Err()
	})
	if err == nil && last == 0 {
		return errors.New("done without a token")
	}
	return err
}
