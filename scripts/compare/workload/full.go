package workload

import (
	"context"
	"time"
)

// Who holds many locks is seldom heard of, so that nothing but the locks matters.
const (
	fullPerSession = 1_000
	fullTTL        = time.Minute
	fullClients    = 128 // lock and unlock beside them
	fullWindows    = 20  // make one: what goes over all locks does so about once a minute
)

// full takes locks that stay held to the end of the stage, and then has clients lock and
// unlock locks of their own: does it matter how many there are?
func full(name string, locks int) Workload {
	return Workload{name, func(ctx context.Context, b *Bed) error { return b.full(ctx, locks) }}
}

func (b *Bed) full(ctx context.Context, locks int) error {
	c, err := b.open(b.stage, (locks+fullPerSession-1)/fullPerSession, connections, fullTTL)
	if err != nil {
		return err
	}
	b.parked = append(b.parked, c)
	if err := b.take(ctx, c, locks); err != nil {
		return err
	}
	longer := *b
	longer.Window *= fullWindows
	if err := longer.pairs(ctx, fullClients, fullClients); err != nil {
		return err
	}
	return b.rollCall(ctx, c)
}
