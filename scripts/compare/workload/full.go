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
	// What goes over many locks does so about once a minute. So many windows make one beside
	// them, and as many as fullRest pass before: what taking the locks leaves behind, a
	// snapshot first of all, is no part of the cost of others.
	fullWindows, fullRest = 10, 20
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
	if locks > few {
		longer.Window *= fullWindows
		if err := sleep(ctx, fullRest*b.Window); err != nil {
			return err
		}
	}
	if err := longer.pairs(ctx, fullClients, fullClients); err != nil {
		return err
	}
	return b.rollCall(ctx, c)
}
