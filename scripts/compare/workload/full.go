package workload

import (
	"context"
	"time"
)

// The sessions with many locks have a long TTL, so that only the locks matter.
const (
	fullPerSession = 1_000
	fullTTL        = time.Minute
	fullClients    = 128 // lock and unlock at the same time
	// Work over many locks happens about once a minute, so that fullWindows windows contain it. They are
	// measured after a pause of fullRest windows: the aftermath of taking the locks, above all a snapshot,
	// does not count.
	fullWindows, fullRest = 10, 20
)

// full takes locks that are held to the end of the stage, and then measures clients that use their own locks:
// does the number of locks matter?
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
