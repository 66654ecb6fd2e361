package bench

import (
	"context"
	"math/rand/v2"
	"time"
)

// How long a worker leaves the cluster alone after a failure.
const (
	afterError   = 10 * time.Millisecond
	afterNotOpen = 100 * time.Millisecond
)

// worker is one session's goroutine.
type worker struct {
	*run
	id     int
	alarm  alarm
	random *rand.Rand
	guards []guard
	choose func() (lock int, as series) // what comes next
	gap    gap                          // between this session's answers
}

// work does what is due until nothing is, or ctx ends.
func (w *worker) work(ctx context.Context) {
	defer w.alarm.close()
	for ctx.Err() == nil {
		due, ok := w.schedule.take()
		if !ok || !w.alarm.sleep(ctx, due) {
			break
		}
		if err := w.operate(ctx, due); err != nil && ctx.Err() == nil {
			w.recover(ctx)
		}
	}
	w.gap.answered(w.recorder.until)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessionGap = max(w.sessionGap, w.gap.longest)
}

// readOrWrite draws a lock and what to do with it.
func (w *worker) readOrWrite() (int, series) {
	lock := w.random.IntN(len(w.guards))
	if w.random.IntN(100) < w.plan.Writes {
		return lock, writing
	}
	return lock, reading
}

// operate locks and unlocks, and counts what came of it.
func (w *worker) operate(ctx context.Context, due time.Time) error {
	lock, as := w.choose()
	o := operation{due: due, begun: time.Now(), as: as}
	err := w.pair(ctx, &o, lock)
	switch {
	case err == nil:
		w.recorder.succeeded(w.id, &o)
		if w.recorder.within(o.done) {
			w.gap.answered(o.done)
		}
	case ctx.Err() != nil:
		w.recorder.gaveUp(w.id, due, time.Now())
	default:
		w.recorder.failed(w.id, due, err)
	}
	return err
}

// pair locks and unlocks once.
func (w *worker) pair(ctx context.Context, o *operation, lock int) error {
	hold, err := w.sessions[w.id].Lock(ctx, w.plan.name(lock), o.as == reading)
	if err != nil {
		return err
	}
	o.granted = time.Now()
	w.lookOn(&w.guards[lock], hold, o)
	o.released = time.Now()
	w.guards[lock].leave(o.as == reading, o.released)
	err = hold.Unlock(ctx)
	o.done = time.Now()
	return err
}

// lookOn ends the whole run if the grant must not be. A hold that has ended already
// proves nothing.
func (w *worker) lookOn(g *guard, hold Hold, o *operation) {
	freed, handed, err := g.enter(o.as == reading, hold.Token(), o.granted)
	if err != nil && hold.Context().Err() == nil {
		w.stop(err)
	}
	if handed && w.plan.Workload == Hot && w.recorder.within(o.granted) {
		w.recorder.add(w.id, handOver, freed)
	}
}

// recover leaves the cluster alone for a moment, and opens another session in place of
// one that was lost.
func (w *worker) recover(ctx context.Context) {
	select {
	case <-w.sessions[w.id].Lost():
	default:
		timer{}.sleep(ctx, time.Now().Add(afterError))
		return
	}
	w.recorder.lostSession(w.id)
	for (timer{}).sleep(ctx, time.Now().Add(afterNotOpen)) {
		if s, err := w.openSession(ctx, w.id); err == nil {
			w.sessions[w.id] = s
			return
		}
	}
}
