package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
)

const leases = "leases"

// Leases are programs without a session that hold for a while, extend, and release the lease or let it lapse.
var Leases = Part{leases, func(r *Run) {
	c := r.client(leases)
	for range 3 {
		r.start(leases, func(a *actor) {
			for a.going() {
				a.must("a lease", a.lease(c))
				a.rest()
			}
		})
	}
}}

// lessee is a way to take one lease: with the SDK, or over HTTP.
type lessee interface {
	acquire(context.Context) (history.Hold, error)
	extend(context.Context) error
	release(context.Context) error
	// remaining returns the time for which the lock cannot be granted to another client.
	remaining() time.Duration
}

func (a *actor) lease(c *client.Client) error {
	name := lock(leases, a.rand.IntN(2))
	l := a.lessee(c, name)
	asked := a.env.Log.Now()
	h, err := l.acquire(a.ctx)
	gone := errors.Is(err, client.ErrNotHeld) || errors.Is(err, client.ErrSessionLost)
	if gone && a.env.Log.Now()-asked > a.opts.FrailTTL*9/10 {
		a.count(Lapsed) // the answer was late, or the wait could not be renewed in time
		return nil
	}
	if err != nil {
		return fmt.Errorf("acquire %s: %w", name, err)
	}
	a.count(Leased)
	h.Client, h.Locks, h.Asked = a.client, history.Exclusive(name), asked
	booked := a.env.Log.Grant(h)
	lapse := time.AfterFunc(l.remaining(), booked.End)
	defer lapse.Stop()
	a.pause(a.some(1), nil)
	if a.rand.IntN(3) == 0 {
		if err := a.timely(l, l.extend); err != nil {
			return fmt.Errorf("extend %s: %w", name, err)
		}
	}
	booked.End()
	if a.rand.IntN(8) == 0 {
		a.count(Lapsed)
		return nil // it is not released
	}
	if err := a.timely(l, l.release); err != nil {
		return fmt.Errorf("give back %s: %w", name, err)
	}
	return nil
}

func (a *actor) lessee(c *client.Client, name string) lessee {
	if a.env.HTTP != nil && a.rand.IntN(2) == 0 {
		return newHTTPLessee(a, name)
	}
	return &sdkLessee{client: c, name: name, ttl: a.opts.FrailTTL}
}

// timely makes a call that may fail only if the lease has lapsed by then: with NOT_HELD, or because its outcome is not
// known after the TTL.
func (a *actor) timely(l lessee, call func(context.Context) error) error {
	until := a.env.Log.Now() + l.remaining()
	err := call(a.ctx)
	late := errors.Is(err, client.ErrNotHeld) || errors.Is(err, client.ErrUncertain)
	if late && a.env.Log.Now() >= until {
		a.count(Lapsed)
		return nil
	}
	return err
}

type sdkLessee struct {
	client *client.Client
	name   string
	ttl    time.Duration
	lease  *client.Lease
}

func (l *sdkLessee) acquire(ctx context.Context) (history.Hold, error) {
	lease, err := l.client.AcquireLease(ctx, client.Names(l.name), client.WithTTL(l.ttl), client.WithDescription(Prefix+leases, nil))
	if err != nil {
		return history.Hold{}, err
	}
	l.lease = lease
	return history.Hold{Session: lease.Session(), ID: lease.ID(), Token: lease.Token()}, nil
}

func (l *sdkLessee) extend(ctx context.Context) error  { return l.lease.Extend(ctx, 0) }
func (l *sdkLessee) release(ctx context.Context) error { return l.lease.Release(ctx) }
func (l *sdkLessee) remaining() time.Duration          { return l.lease.Remaining() }
