package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// How long a worker pauses after a failure.
const (
	afterError   = 10 * time.Millisecond
	afterNotOpen = 100 * time.Millisecond
)

// worker is the goroutine of one session.
type worker struct {
	*run
	id     int
	alarm  alarm
	random *rand.Rand
	choose func() (l *lock, as series) // chooses the next operation
	locks  []lock                      // to choose from
	gap    gap                         // between this session's answers
	free   time.Time                   // since when it could make its next request
}

// work performs operations as they fall due until none is left or ctx ends.
func (w *worker) work(ctx context.Context) {
	defer w.alarm.close()
	for w.free = time.Now(); ctx.Err() == nil; {
		due, ok := w.schedule.take(w.free)
		if !ok || due.After(w.free) && !w.alarm.sleep(ctx, due) {
			break
		}
		if err := w.operate(ctx, due); err != nil && ctx.Err() == nil {
			w.recover(ctx)
			w.free = time.Now()
		}
	}
	if now := time.Now(); w.recorder.within(now) {
		w.gap.answered(now) // the run was interrupted
	} else {
		w.gap.answered(w.recorder.until)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessionGap = max(w.sessionGap, w.gap.longest)
}

// readOrWrite draws a lock and the operation on it.
func (w *worker) readOrWrite() (*lock, series) {
	l := &w.locks[w.random.IntN(len(w.locks))]
	if w.random.IntN(100) < w.plan.Writes {
		return l, writing
	}
	return l, reading
}

// operate locks and unlocks, and counts the outcome.
func (w *worker) operate(ctx context.Context, due time.Time) error {
	l, as := w.choose()
	o := operation{due: due, started: w.free, as: as}
	if due.After(w.free) {
		o.started = time.Now()
	}
	err := w.pair(ctx, &o, l)
	switch {
	case err == nil:
		w.free = o.done
		w.recorder.succeeded(w.id, &o)
		if w.recorder.within(o.done) {
			w.gap.answered(o.done)
		}
	case ctx.Err() != nil:
		w.recorder.gaveUp(w.id, &o, time.Now(), context.Cause(ctx) != errOver)
	case refused(err):
		w.stop(fmt.Errorf("lock %s: %w", l.name, err))
	default:
		w.recorder.failed(w.id, due, err)
	}
	return err
}

// pair locks and unlocks once.
func (w *worker) pair(ctx context.Context, o *operation, l *lock) error {
	hold, err := w.sessions[w.id].Lock(ctx, l.name, o.as == reading)
	if err != nil {
		return err
	}
	o.granted = time.Now()
	o.released = o.granted
	w.lookOn(l, hold, o)
	if w.plan.Hold > 0 {
		w.stay(ctx, hold, o.granted.Add(w.plan.Hold))
		o.released = time.Now()
	}
	l.leave(hold, o.released)
	if err = hold.Unlock(ctx); err == nil {
		o.done = time.Now()
	}
	return err
}

// stay holds the lock for the planned time, or until the hold ends.
func (w *worker) stay(ctx context.Context, hold Hold, until time.Time) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(hold.Context(), cancel)()
	w.alarm.sleep(ctx, until)
}

// lookOn stops the whole run if the grant violates a guarantee.
func (w *worker) lookOn(l *lock, hold Hold, o *operation) {
	free, handed, err := l.enter(hold, o.as == reading, o.granted)
	if err != nil {
		w.stop(err)
	}
	if handed && w.plan.Workload == Hot && w.recorder.within(o.granted) {
		w.recorder.add(w.id, handOver, free)
	}
}

// recover pauses for a moment, and replaces a lost session.
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
