package workload

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// idleTTL makes sessions send a heartbeat about every three seconds.
const idleTTL = 10 * time.Second

// alive is how many of the idle sessions are verified at the end.
const alive = 100

// idle opens sessions that only send heartbeats. Their memory cost is the growth of all servers since before
// the first of them, their CPU cost what the servers use once all are open.
func idle(name string, sessions int) Workload {
	return Workload{name, func(ctx context.Context, b *Bed) error { return b.idle(ctx, sessions) }}
}

func (b *Bed) idle(ctx context.Context, sessions int) error {
	if err := sleep(ctx, b.WarmUp); err != nil {
		return err
	}
	before, err := b.Memory()
	if err != nil {
		return err
	}
	c, err := b.open(ctx, sessions, connections, idleTTL)
	if err != nil {
		return err
	}
	defer c.close()
	w, err := b.measure(ctx, max(2*b.Window, idleTTL))
	if err != nil {
		return err
	}
	after, err := b.Memory()
	if err != nil {
		return err
	}
	b.set("cpuMsPerSecond", inMs(w.cpu)/w.took().Seconds())
	b.set("bytesPerSession", float64(after-before)/float64(sessions))
	return b.rollCall(ctx, c)
}

// rollCall lets some of the sessions take a lock, which a lost session could not.
func (b *Bed) rollCall(ctx context.Context, c *sessionSet) error {
	few := min(alive, len(c.sessions))
	return parallel(ctx, few, width, func(i int) error {
		at := i * len(c.sessions) / few
		hold, err := c.sessions[at].Lock(ctx, b.lock(at))
		if err == nil {
			err = hold.Unlock(ctx)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("idle session %d is not alive", at+1), err)
		}
		return nil
	})
}
