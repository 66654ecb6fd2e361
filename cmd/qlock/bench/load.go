package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// errOver ends the work of those workers that still wait for an answer when no time is left.
var errOver = errors.New("the run is over")

// load makes every session lock and unlock according to the schedule.
func (r *run) load(ctx context.Context) error {
	begin := time.Now()
	r.from = begin.Add(r.plan.WarmUp)
	r.until = r.from.Add(r.plan.Duration)
	r.schedule = newSchedule(&r.plan, begin, r.until)
	r.recorder = newRecorder(r.from, r.until, r.plan.Rate > 0, r.Progress)
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	locks := make([]lock, r.plan.locks())
	for i := range locks {
		locks[i].name = r.plan.name(i)
	}
	var wg sync.WaitGroup
	for i := range r.plan.Sessions {
		w := r.worker(i, locks)
		wg.Go(func() { w.work(work) })
	}
	err := r.watch(ctx)
	r.schedule.cut(r.until)
	r.finish(ctx, &wg, stop)
	if cause := context.Cause(ctx); errors.Is(cause, ErrBroken) || refused(cause) {
		err = cause
	}
	r.took = r.until.Sub(r.from)
	return err
}

// finish gives operations in flight or overdue the time to be answered.
func (r *run) finish(ctx context.Context, wg *sync.WaitGroup, stop context.CancelCauseFunc) {
	r.Progress.enter(Finishing, r.plan.Grace)
	all := make(chan struct{})
	go func() {
		defer close(all)
		wg.Wait()
	}()
	grace := time.NewTimer(r.plan.Grace)
	defer grace.Stop()
	select {
	case <-all:
	case <-grace.C:
	case <-ctx.Done():
	}
	stop(errOver)
	<-all
	over, as := time.Now(), locking
	if r.plan.Workload == Readers {
		as = undecided
	}
	r.schedule.left(func(due time.Time) {
		r.recorder.gaveUp(0, &operation{due: due, as: as}, over, r.interrupted)
	})
	r.recorder.gap.answered(r.until)
}

// worker returns the worker of a session.
func (r *run) worker(i int, locks []lock) *worker {
	w := &worker{run: r, id: i, random: rand.New(rand.NewPCG(r.plan.Seed, uint64(i)+1)), gap: gap{last: r.from}}
	w.alarm = timer{}
	switch {
	case r.alarm != nil:
		w.alarm = r.alarm()
	case r.plan.Rate > 0 || r.plan.Hold > 0:
		w.alarm = newAlarm()
	}
	own := &locks[i%len(locks)]
	w.choose = func() (*lock, series) { return own, locking }
	if r.plan.Workload == Readers {
		w.locks, w.choose = locks, w.readOrWrite
	}
	return w
}
