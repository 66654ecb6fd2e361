package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// width is how many sessions are opened or closed in parallel.
const width = 256

// openGrace is how long an interrupted request to open a session may still take.
const openGrace = 500 * time.Millisecond

// Runner carries out plans.
type Runner struct {
	// Connect opens another connection to the cluster.
	Connect func() (Connection, error)
	// Sample reads the nodes' metrics: before sessions are opened, before held locks are acquired, and at
	// the start and the end of the measured window. It must bound its own duration.
	Sample func(context.Context) Sample
	// Progress is kept up to date.
	Progress *Progress

	alarm func() alarm // nil means newAlarm
}

// run is the execution of one plan.
type run struct {
	*Runner
	plan     Plan
	conns    []Connection
	sessions []Session // by worker; once all are open, each worker alone replaces its own

	from, until   time.Time // the window
	took          time.Duration
	schedule      *schedule
	recorder      *recorder
	stop          context.CancelCauseFunc // ends all work
	before        Sample                  // the baseline for the memory of sessions or held locks
	first, last   Sample                  // at the start and end of the window
	cpuAt, cpuEnd time.Duration           // this program's
	interrupted   bool
	unclosed      int

	mu         sync.Mutex // guards the fields below
	openings   latencies
	sessionGap time.Duration // the longest of any session
}

// Run carries out a plan. If ctx ends it stops early and returns a report of what was measured so far, or
// ctx's error if nothing was. In any case it closes everything that it has opened. Other errors are
// ErrPlan, ErrBroken, and those of the SDK from opening sessions or acquiring held locks.
func (r *Runner) Run(ctx context.Context, plan Plan) (*Report, error) {
	if err := plan.Check(); err != nil {
		return nil, err
	}
	this := &run{Runner: r, plan: plan, sessions: make([]Session, plan.Sessions)}
	err := this.measure(ctx)
	this.close(ctx)
	if err != nil {
		return nil, err
	}
	return this.report(), nil
}

func (r *run) measure(ctx context.Context) error {
	r.before = r.Sample(ctx)
	started := time.Now()
	if err := r.open(ctx); err != nil {
		return err
	}
	r.took = time.Since(started)
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.stop = stop
	if r.plan.idle() {
		return r.runIdle(work)
	}
	return r.load(work)
}

// open makes the connections and opens the sessions.
func (r *run) open(ctx context.Context) error {
	r.Progress.enter(Opening, 0)
	for range r.plan.Connections {
		c, err := r.Connect()
		if err != nil {
			return err
		}
		r.conns = append(r.conns, c)
	}
	return parallel(ctx, r.plan.Sessions, width, func(ctx context.Context, i int) error {
		started := time.Now()
		s, err := r.openSession(ctx, i)
		if err != nil {
			return fmt.Errorf("open session %d of %d: %w", i+1, r.plan.Sessions, err)
		}
		r.sessions[i] = s
		r.mu.Lock()
		defer r.mu.Unlock()
		r.openings.add(time.Since(started))
		return nil
	})
}

// openSession opens a session for a worker. If ctx ends it waits a moment longer, because a session that
// was opened without an owner would live until its TTL has passed.
func (r *run) openSession(ctx context.Context, worker int) (Session, error) {
	interrupted := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.plan.Grace)
	defer cancel()
	defer context.AfterFunc(interrupted, func() { time.AfterFunc(openGrace, cancel) })()
	s, err := r.conns[worker%len(r.conns)].Open(ctx)
	if err == nil {
		r.Progress.opened.Add(1)
	}
	return s, err
}

// watch waits for the start and the end of the window. It returns an error if the window did not start.
func (r *run) watch(ctx context.Context) error {
	r.Progress.enter(WarmingUp, r.plan.WarmUp)
	if !(timer{}).sleep(ctx, r.from) {
		return context.Cause(ctx)
	}
	r.Progress.enter(Measuring, r.plan.Duration)
	r.cpuAt = ownCPU()
	r.first = r.Sample(ctx)
	if !(timer{}).sleep(ctx, r.until) {
		r.interrupted, r.until = true, time.Now()
	}
	r.cpuEnd = ownCPU()
	r.last = r.Sample(context.WithoutCancel(ctx))
	return nil
}

// close closes the sessions and then the connections, even if ctx has ended. It gives up when Grace has
// passed without any session being closed.
func (r *run) close(ctx context.Context) {
	r.Progress.enter(Closing, 0)
	ctx = context.WithoutCancel(ctx)
	closing, cancel := context.WithCancel(ctx)
	defer cancel()
	grace := time.AfterFunc(r.plan.Grace, cancel)
	defer grace.Stop()
	var unclosed atomic.Int64
	// do never returns an error, so all sessions are visited.
	_ = parallel(ctx, len(r.sessions), width, func(_ context.Context, i int) error {
		switch s := r.sessions[i]; {
		case s == nil:
		case s.Close(closing) != nil:
			unclosed.Add(1)
		default:
			grace.Reset(r.plan.Grace)
		}
		return nil
	})
	_ = parallel(ctx, len(r.conns), width, func(_ context.Context, i int) error {
		_ = r.conns[i].Close()
		return nil
	})
	r.unclosed = int(unclosed.Load())
}

// parallel calls do for 0 to n-1, at most width at a time, until one call fails or ctx ends.
func parallel(ctx context.Context, n, width int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, width) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
