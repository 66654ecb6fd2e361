package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// Treatment of locks and unlocks that fail or hang.
const (
	afterError   = 10 * time.Millisecond // delay before the next attempt
	tolerated    = 0.01                  // fraction of all pairs; with more errors there is no figure
	grantTimeout = 5 * time.Minute       // for the first pair of all clients, and for the last
)

// pair is one lock and unlock.
type pair struct {
	done time.Time
	lock time.Duration // latency of the lock
}

// worker is one session in a closed loop: it sends the next request as soon as the previous one is answered.
type worker struct {
	session system.Session
	name    string // of the lock
	order   *order // nil for an uncontended lock
	pairs   []pair
	errors  int
	err     error // the last one
}

// loop lets each session lock and unlock, all the same lock if hot is not nil. The warm-up begins after every
// session has held a lock once: by then all connections are established, and a contended lock has its
// waiters.
func (b *Bed) loop(ctx context.Context, sessions []system.Session, hot *order) (*tally, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	over := make(chan struct{})
	workers := make([]*worker, len(sessions))
	var first, all sync.WaitGroup
	for i, s := range sessions {
		workers[i] = &worker{session: s, order: hot, name: b.lock(0)}
		if hot == nil {
			workers[i].name = b.lock(i)
		}
		first.Add(1)
		all.Go(func() { workers[i].work(working, over, first.Done) })
	}
	w, err := b.watch(ctx, &first)
	close(over)
	if err != nil {
		stop()
	}
	if late := !within(grantTimeout, all.Wait); late {
		stop()
		all.Wait()
		err = fmt.Errorf("locks were not granted within %v after the end", grantTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, last(workers))
	}
	if b.Check != nil {
		if err := b.Check(ctx); err != nil {
			return nil, err
		}
	}
	return sum(workers, w)
}

// last returns an error that a worker encountered, if any.
func last(workers []*worker) error {
	for _, w := range workers {
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// watch waits until every worker has held a lock, and measures a window.
func (b *Bed) watch(ctx context.Context, first *sync.WaitGroup) (*window, error) {
	if !within(grantTimeout, first.Wait) {
		return nil, fmt.Errorf("not everybody had a lock within %v", grantTimeout)
	}
	return b.measure(ctx, b.Window)
}

// within calls wait and reports whether it returned within the limit. Otherwise wait continues in the
// background.
func within(limit time.Duration, wait func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// work locks and unlocks until over is closed or ctx ends. It calls first once, after the first pair or when
// it ends.
func (w *worker) work(ctx context.Context, over <-chan struct{}, first func()) {
	first = sync.OnceFunc(first)
	defer first()
	for ctx.Err() == nil {
		select {
		case <-over:
			return
		default:
		}
		if err := w.pair(ctx); err != nil {
			w.errors, w.err = w.errors+1, err
			_ = sleep(ctx, afterError) // if ctx ends, so does the loop
			continue
		}
		first()
	}
}

// pair locks and unlocks once.
func (w *worker) pair(ctx context.Context) error {
	started := time.Now()
	hold, err := w.session.Lock(ctx, w.name)
	if err != nil {
		return err
	}
	took := time.Since(started)
	if w.order != nil {
		w.order.enter(hold)
		w.order.leave()
	}
	if err := hold.Unlock(ctx); err != nil {
		return err
	}
	w.pairs = append(w.pairs, pair{time.Now(), took})
	return nil
}

// tally is the work within a window.
type tally struct {
	*window
	pairs  int
	errors int             // in the whole time
	locks  []time.Duration // latencies, sorted
}

// sum returns the work of all workers, or an error if too much of it failed.
func sum(workers []*worker, in *window) (*tally, error) {
	t := &tally{window: in}
	all := 0
	for _, w := range workers {
		for _, p := range w.pairs {
			if in.has(p.done) {
				t.locks = append(t.locks, p.lock)
			}
		}
		all += len(w.pairs)
		t.errors += w.errors
	}
	slices.Sort(t.locks)
	t.pairs = len(t.locks)
	switch {
	case float64(t.errors) > tolerated*float64(all):
		return nil, fmt.Errorf("%d pairs and %d errors, such as: %w", all, t.errors, last(workers))
	case t.pairs == 0:
		return nil, fmt.Errorf("no pair in %v", in.took())
	}
	return t, nil
}

// perSecond returns the throughput.
func (t *tally) perSecond() float64 { return float64(t.pairs) / t.took().Seconds() }

// perThousand converts CPU time to milliseconds per thousand pairs.
func (t *tally) perThousand(used time.Duration) float64 {
	return inMs(used) * 1000 / float64(t.pairs)
}

// percentile returns the latency in milliseconds that this fraction of the locks did not exceed.
func (t *tally) percentile(share float64) float64 {
	rank := int(math.Ceil(share * float64(len(t.locks))))
	return inMs(t.locks[max(rank, 1)-1])
}

// note sets the figures of a loop.
func (b *Bed) note(t *tally, clients int) {
	b.set("perSecond", t.perSecond())
	b.set("pairMs", 1000*float64(clients)/t.perSecond())
	b.set("p50Ms", t.percentile(0.5))
	b.set("p99Ms", t.percentile(0.99))
	b.set("cpuMsPer1000", t.perThousand(t.cpu))
	b.set("loadCpuMsPer1000", t.perThousand(t.own))
	b.set("errors", float64(t.errors))
}
