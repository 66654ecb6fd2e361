package client

import (
	"context"
	"time"
)

// Hooks observe what a client does, for metrics and traces. They may call the SDK. A nil hook costs nothing.
type Hooks struct {
	// Acquire is called before a call acquires locks, in the goroutine of that call, and delays only it. A panic goes up
	// to the caller; if it comes from the function that Acquire has returned, the caller does not get the hold, which
	// then ends with its session. The contexts of the call and of its hold are derived from
	// the ctx that it returns, which can carry a span. The function that it returns is called with the outcome;
	// it may be nil.
	Acquire func(ctx context.Context, locks []string) (context.Context, func(hold *Hold, err error))
	// HoldEnded is called once for each hold that a call has returned, in order, one call at a time, in a goroutine of
	// its own: it delays neither the end of the hold nor anything else. While 16,384 ends wait for it, acquires wait as
	// well, for at most one second, and then return ErrResourceExhausted. A panic ends the program.
	HoldEnded func(HoldEnd)
}

// HoldEnd is the end of a hold.
type HoldEnd struct {
	// Context has the values of the ctx of the acquire.
	Context context.Context
	Locks   []string
	Token   uint64
	// Held is the time from the arrival of the grant until the end.
	Held time.Duration
	// Reason is ErrReleased if the hold was released, and otherwise why it was lost.
	Reason error
}

// acquire sends an acquire and waits for its outcome.
func (s *Session) acquire(ctx context.Context, k *acquireCall) (*Hold, error) {
	if err := s.client.awaitRoom(ctx); err != nil {
		return nil, err
	}
	hook := s.client.cfg.Hooks.Acquire
	if hook == nil {
		return s.send(ctx, k)
	}
	ctx, done := hook(ctx, k.names())
	k.ctx = ctx
	hold, err := s.send(ctx, k)
	if done != nil {
		done(hold, err)
	}
	return hold, err
}

// names returns the names of the locks that are requested.
func (k *acquireCall) names() []string {
	names := make([]string, len(k.acquire.Locks))
	for i, l := range k.acquire.Locks {
		names[i] = l.GetName()
	}
	return names
}

// observeEnd queues the call of the hook for the end of a hold.
func (c *Client) observeEnd(h *Hold, reason error) {
	if c.cfg.Hooks.HoldEnded == nil || h.asked == nil {
		return
	}
	granted := h.held.extra().grantedAt[h]
	delete(h.held.extra().grantedAt, h)
	end := HoldEnd{context.WithoutCancel(h.asked), h.held.allNames(), h.held.token.Load(), c.mu.now() - granted, reason}
	c.ends.waiting = append(c.ends.waiting, end)
	c.wake(&c.ends.outlet)
}
