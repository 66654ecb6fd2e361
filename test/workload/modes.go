package workload

import (
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Readers are readers and writers of one lock, with upgrades and downgrades.
var Readers = steadily("readers", 4, func(a *actor, s *client.Session) error {
	name := lock("readers", 0)
	switch a.rand.IntN(6) {
	case 0:
		return a.briefly(a.write(s, name))
	case 1:
		return a.downgraded(a.write(s, name))
	case 2:
		return a.upgraded(a.read(s, name))
	}
	return a.briefly(a.read(s, name))
})

func (a *actor) read(s *client.Session, name string) (*hold, error) {
	return a.acquire(s, history.Shared(name), func() (*client.Hold, error) { return s.Lock(a.ctx, name, client.WithShared()) })
}

func (a *actor) write(s *client.Session, name string) (*hold, error) {
	return a.acquire(s, history.Exclusive(name), func() (*client.Hold, error) { return s.Lock(a.ctx, name) })
}

// downgraded downgrades a writer to a reader.
func (a *actor) downgraded(h *hold, err error) error {
	if err != nil {
		return err
	}
	token := h.Token()
	h.becomes(wire.Mode_SHARED)
	if err := h.Downgrade(a.ctx); err != nil {
		return fmt.Errorf("downgrade: %w", err)
	}
	if h.Mode() != client.Shared || h.Token() != token {
		return fmt.Errorf("downgraded: %v, token %d; it was %d", h.Mode(), h.Token(), token)
	}
	a.count(Downgrades)
	return a.briefly(h, nil)
}

// upgraded upgrades a reader to a writer, unless another upgrade is waiting.
func (a *actor) upgraded(h *hold, err error) error {
	if err != nil {
		return err
	}
	token := h.Token()
	if a.rand.IntN(2) == 0 {
		err = h.Upgrade(a.ctx)
	} else {
		err = h.Upgrade(a.ctx, client.WithWait(a.some(4)))
	}
	switch {
	case errors.Is(err, client.ErrUpgradeConflict), errors.Is(err, client.ErrTimeout):
		a.count(outcome(err))
	case err != nil:
		return fmt.Errorf("upgrade: %w", err)
	case h.Mode() != client.Exclusive || h.Token() <= token:
		return fmt.Errorf("upgraded: %v, token %d; it was %d", h.Mode(), h.Token(), token)
	default:
		a.count(Upgrades)
		h.becomes(wire.Mode_EXCLUSIVE)
	}
	return a.briefly(h, nil)
}

const permits = 5

// Permits are actors that acquire between one and all permits of a semaphore.
var Permits = steadily("permits", 4, func(a *actor, s *client.Session) error {
	sem, n := s.Semaphore(lock("permits", 0), permits), 1+a.rand.Uint64N(permits)
	call := func() (*client.Hold, error) { return sem.Acquire(a.ctx, n) }
	if a.rand.IntN(4) == 0 {
		call = func() (*client.Hold, error) { return sem.Acquire(a.ctx, n, client.WithTry()) }
	}
	err := a.briefly(a.acquire(s, history.Permits(sem.Name(), n, permits), call))
	if errors.Is(err, client.ErrNotAcquired) {
		return nil
	}
	return err
})
