package fairqueue

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// ErrFull is returned if the caller's line or the whole queue is full.
var ErrFull = errors.New("too many requests of this kind are waiting")

// Config bounds a Queue. All fields are required, except Rests.
type Config struct {
	// Workers is the number of workers. A caller gets at most half of them, but at least one.
	Workers int
	// PerCaller bounds the waiting jobs of one caller, and Total those of all callers.
	PerCaller, Total int
	// Rests makes a worker pause as long as its job took while others wait, so that a flood occupies the
	// workers' processors for at most half of the time.
	Rests bool
}

// Queue runs the jobs of many callers on few workers, serving the callers in turn. All methods are safe for
// concurrent use.
type Queue struct {
	cfg    Config
	ctx    context.Context // cancelled by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	wake    sync.Cond
	lines   map[any]*line
	turns   list.List // of *line: those with waiting jobs, in order of their turns
	waiting int
	closed  bool
}

// line holds the jobs of one caller.
type line struct {
	caller  any
	jobs    []job
	running int
	turn    *list.Element // element of turns; nil without jobs
}

type job struct {
	run     func(context.Context)
	refused func()
}

// New returns a running Queue. Close stops it.
func New(cfg Config) *Queue {
	q := &Queue{cfg: cfg, lines: map[any]*line{}}
	q.wake.L = &q.mu
	q.ctx, q.cancel = context.WithCancel(context.Background())
	for range cfg.Workers {
		q.wg.Go(q.work)
	}
	return q
}

// Submit queues run, which a worker calls when it is the caller's turn. It returns ErrFull if there is no
// room. A queued job may still be evicted in favor of a caller with a shorter line; then refused is called
// instead of run. Close cancels the context passed to run.
func (q *Queue) Submit(caller any, run func(context.Context), refused func()) error {
	q.mu.Lock()
	l := q.lines[caller]
	if l == nil {
		l = &line{caller: caller}
	}
	if q.closed || len(l.jobs) >= q.cfg.PerCaller {
		q.mu.Unlock()
		return ErrFull
	}
	var victim *job
	if q.waiting >= q.cfg.Total {
		if victim = q.evict(len(l.jobs) + 1); victim == nil {
			q.mu.Unlock()
			return ErrFull
		}
	}
	q.lines[caller] = l
	l.jobs = append(l.jobs, job{run, refused})
	q.waiting++
	if l.turn == nil {
		l.turn = q.turns.PushBack(l)
	}
	q.wake.Signal()
	q.mu.Unlock()
	if victim != nil {
		victim.refused()
	}
	return nil
}

// evict removes the last job of the longest line, among the lines with more jobs than the argument. It
// returns nil if there is no such line.
func (q *Queue) evict(than int) *job {
	var longest *line
	for e := q.turns.Front(); e != nil; e = e.Next() {
		if l := e.Value.(*line); len(l.jobs) > than {
			longest, than = l, len(l.jobs)
		}
	}
	if longest == nil {
		return nil
	}
	last := longest.jobs[len(longest.jobs)-1]
	longest.jobs = longest.jobs[:len(longest.jobs)-1]
	q.waiting--
	return &last
}

// Enter waits for the caller's turn, which lasts until leave is called. It returns ErrFull or ctx's error.
func (q *Queue) Enter(ctx context.Context, caller any) (leave func(), err error) {
	started, done, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
	run := func(context.Context) {
		close(started)
		<-done
	}
	if err := q.Submit(caller, run, func() { close(refused) }); err != nil {
		return nil, err
	}
	leave = sync.OnceFunc(func() { close(done) })
	select {
	case <-started:
		return leave, nil
	case <-refused:
		return nil, ErrFull
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

func (q *Queue) work() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		l := q.next()
		if l == nil {
			if q.closed && q.waiting == 0 {
				return
			}
			q.wake.Wait()
			continue
		}
		next := q.take(l)
		q.mu.Unlock()
		started := time.Now()
		next.run(q.ctx)
		took := time.Since(started)
		q.mu.Lock()
		q.finished(l)
		if q.cfg.Rests && q.waiting > 0 {
			q.mu.Unlock()
			q.rest(took)
			q.mu.Lock()
		}
	}
}

// longestRest bounds a rest, because a long job may have waited rather than used the processor.
const longestRest = 50 * time.Millisecond

// rest pauses as long as the last job took, at most longestRest, or until the queue closes.
func (q *Queue) rest(took time.Duration) {
	enough := time.NewTimer(min(took, longestRest))
	defer enough.Stop()
	select {
	case <-enough.C:
	case <-q.ctx.Done():
	}
}

// next returns the line whose turn it is, or nil if no waiting line may have another worker.
func (q *Queue) next() *line {
	for e := q.turns.Front(); e != nil; e = e.Next() {
		if l := e.Value.(*line); l.running < max(1, q.cfg.Workers/2) {
			return l
		}
	}
	return nil
}

func (q *Queue) take(l *line) job {
	next := l.jobs[0]
	l.jobs[0] = job{}
	l.jobs = l.jobs[1:]
	q.waiting--
	l.running++
	if len(l.jobs) > 0 {
		q.turns.MoveToBack(l.turn)
	} else {
		q.turns.Remove(l.turn)
		l.turn, l.jobs = nil, nil
	}
	return next
}

func (q *Queue) finished(l *line) {
	if l.running--; l.running == 0 && l.turn == nil {
		delete(q.lines, l.caller)
	}
	q.wake.Broadcast() // the line may have another worker, and the last job may be done
}

// Close accepts no more jobs, runs the waiting ones with a cancelled context, and waits for them.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.wake.Broadcast()
	q.mu.Unlock()
	q.cancel()
	q.wg.Wait()
}
