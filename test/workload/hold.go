package workload

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// hold is a hold as its user sees it, recorded from its grant to its end.
type hold struct {
	*client.Hold
	actor  *actor
	booked *history.Held
}

// acquire makes one call for locks and records the outcome.
func (a *actor) acquire(s *client.Session, want []history.Share, call func() (*client.Hold, error)) (*hold, error) {
	asked := a.env.Log.Now()
	h, err := call()
	a.count(outcome(err))
	if err != nil {
		return nil, err
	}
	booked := a.env.Log.Grant(history.Hold{
		Client: a.client, Session: s.ID(), ID: h.ID(), Token: h.Token(), Revision: h.Revision(),
		Locks: want, Asked: asked, Unguarded: a.unguarded(),
	})
	booked.Follow(h.Context())
	return &hold{h, a, booked}, nil
}

// lock acquires one lock exclusively, waiting if necessary.
func (a *actor) lock(ctx context.Context, s *client.Session, name string, opts ...client.LockOption) (*hold, error) {
	return a.acquire(s, history.Exclusive(name), func() (*client.Hold, error) { return s.Lock(ctx, name, opts...) })
}

// briefly keeps a hold for a moment and releases it.
func (a *actor) briefly(h *hold, err error) error {
	if err != nil {
		return err
	}
	h.keep(a.some(1))
	return h.release()
}

// becomes records that the hold has another mode from now on.
func (h *hold) becomes(mode wire.Mode) { h.booked.Become(mode, h.Token(), h.Revision()) }

// keep holds for d, or until the hold is lost.
func (h *hold) keep(d time.Duration) { h.actor.pause(d, h.Context().Done()) }

// release releases the hold and records the acknowledgement.
func (h *hold) release() error {
	h.booked.End()
	err := h.Unlock(h.actor.ctx)
	if err == nil {
		h.booked.Acknowledge()
	}
	return err
}

// unguarded reports whether only tokens keep the actor from acting on a hold that is over.
func (a *actor) unguarded() bool { return a.opts.Unguarded && strings.HasPrefix(a.client, FrailClient) }

// outcome returns the name of a call's outcome, for the counts.
func outcome(err error) string {
	for _, known := range []struct {
		err  error
		name string
	}{
		{nil, Grants},
		{client.ErrTimeout, Timeouts},
		{context.DeadlineExceeded, Cancels},
		{client.ErrNotAcquired, Refusals},
		{client.ErrDeadlock, Deadlocks},
		{client.ErrUpgradeConflict, Conflicts},
		{client.ErrSessionLost, Losses},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	return Others
}
