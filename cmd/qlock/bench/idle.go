package bench

import (
	"context"
	"fmt"
	"time"
)

// runIdle only opens sessions and acquires locks, and then keeps them.
func (r *run) runIdle(ctx context.Context) error {
	started := time.Now()
	r.recorder = newRecorder(started, started.Add(maxLatency), false, r.Progress)
	if r.plan.Workload == Held {
		r.before.Nodes = r.Sample(ctx).Nodes // with sessions, without locks
		started = time.Now()
		if err := r.fill(ctx); err != nil {
			return err
		}
		r.took = time.Since(started)
	}
	r.from = time.Now().Add(r.plan.WarmUp)
	r.until = r.from.Add(r.plan.Duration)
	err := r.watch(ctx)
	for i, s := range r.sessions {
		select {
		case <-s.Lost():
			r.recorder.lostSession(i)
		default:
		}
	}
	return err
}

// fill acquires the locks, which stay held until the sessions are closed. Each session acquires its share
// one by one.
func (r *run) fill(ctx context.Context) error {
	r.Progress.enter(Filling, 0)
	return parallel(ctx, len(r.sessions), len(r.sessions), func(ctx context.Context, i int) error {
		for lock := i; lock < r.plan.Locks; lock += len(r.sessions) {
			if err := r.hold(ctx, i, lock); err != nil {
				return fmt.Errorf("take lock %d of %d: %w", lock+1, r.plan.Locks, err)
			}
		}
		return nil
	})
}

// hold acquires a lock and keeps it.
func (r *run) hold(ctx context.Context, session, lock int) error {
	ctx, cancel := context.WithTimeout(ctx, r.plan.Grace)
	defer cancel()
	started := time.Now()
	if _, err := r.sessions[session].Lock(ctx, r.plan.name(lock), false); err != nil {
		return err
	}
	r.recorder.add(session, locking, time.Since(started))
	r.recorder.finished.Add(1)
	r.Progress.done.Add(1)
	return nil
}
