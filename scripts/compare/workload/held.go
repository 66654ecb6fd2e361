package workload

import (
	"context"
	"fmt"
	"time"
)

// locksPerSession is how many locks a session holds.
const locksPerSession = 500

// held takes locks and keeps them. Their cost is the servers' growth compared with open sessions without
// locks.
func held(name string, locks int) Workload {
	return Workload{name, func(ctx context.Context, b *Bed) error { return b.held(ctx, locks) }}
}

func (b *Bed) held(ctx context.Context, locks int) error {
	c, err := b.open(ctx, (locks+locksPerSession-1)/locksPerSession, connections, ttl)
	if err != nil {
		return err
	}
	defer c.close()
	if err := sleep(ctx, b.WarmUp); err != nil {
		return err
	}
	before, err := b.Memory()
	if err != nil {
		return err
	}
	started := time.Now()
	if err := b.take(ctx, c, locks); err != nil {
		return err
	}
	took := time.Since(started)
	if err := sleep(ctx, b.WarmUp+b.Window); err != nil {
		return err
	}
	after, err := b.Memory()
	if err != nil {
		return err
	}
	b.set("perSecond", float64(locks)/took.Seconds())
	b.set("bytesPerLock", float64(after-before)/float64(locks)/float64(b.Servers()))
	return b.rollCall(ctx, c)
}

// take acquires a number of locks in total, divided among the sessions. Each session acquires its share one
// after the other.
func (b *Bed) take(ctx context.Context, c *sessionSet, locks int) error {
	return parallel(ctx, len(c.sessions), len(c.sessions), func(i int) error {
		for lock := i; lock < locks && ctx.Err() == nil; lock += len(c.sessions) {
			if _, err := c.sessions[i].Lock(ctx, fmt.Sprintf("%s/held/%d", b.name, lock)); err != nil {
				return fmt.Errorf("take lock %d of %d: %w", lock+1, locks, err)
			}
		}
		return context.Cause(ctx)
	})
}
