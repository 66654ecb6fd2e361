package fairqueue

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/identity"
)

// ErrFull is returned if the sender's line or the whole queue is full.
var ErrFull = errors.New("too many requests of this kind are waiting")

// Config bounds a Queue. All fields are required, except Rests.
type Config struct {
	// Workers is the number of workers. A connection gets at most half of them and an identity all but one, but each
	// gets at least one.
	Workers int
	// PerCaller bounds the waiting jobs of one connection, and Total those of all.
	PerCaller, Total int
	// Rests makes a worker pause three times as long as its job took while others wait, so that a flood occupies the
	// workers' processors for at most a quarter of the time.
	Rests bool
}

// Queue runs the jobs of many senders on few workers. It serves the identities in turn, and the connections of each in
// turn. All methods are safe for concurrent use.
type Queue struct {
	cfg    Config
	ctx    context.Context // cancelled by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	wake    sync.Cond
	lines   map[identity.Sender]*line
	groups  map[string]*group
	turns   list.List // of *group: those with waiting jobs, in order of their turns
	waiting int
	closed  bool
}

// group holds the lines of one identity.
type group struct {
	identity         string
	turns            list.List // of *line: those with waiting jobs, in order of their turns
	waiting, running int
	turn             *list.Element // element of the queue's turns; nil without jobs
}

// line holds the jobs of one connection.
type line struct {
	sender  identity.Sender
	group   *group
	jobs    []job
	running int
	turn    *list.Element // element of the group's turns; nil without jobs
}

type job struct {
	run     func(context.Context)
	refused func()
}

// New returns a running Queue. Close stops it.
func New(cfg Config) *Queue {
	q := &Queue{cfg: cfg, lines: map[identity.Sender]*line{}, groups: map[string]*group{}}
	q.wake.L = &q.mu
	q.ctx, q.cancel = context.WithCancel(context.Background())
	for range cfg.Workers {
		q.wg.Go(q.work)
	}
	return q
}

// Submit queues run, which a worker calls when it is the sender's turn. It returns ErrFull if there is no
// room. A queued job may still be evicted in favor of a sender with fewer jobs; then refused is called
// instead of run. Close cancels the context passed to run.
func (q *Queue) Submit(from identity.Sender, run func(context.Context), refused func()) error {
	q.mu.Lock()
	l := q.lineOf(from)
	if q.closed || len(l.jobs) >= q.cfg.PerCaller {
		q.mu.Unlock()
		return ErrFull
	}
	var victim *job
	if q.waiting >= q.cfg.Total {
		if victim = q.evict(l); victim == nil {
			q.mu.Unlock()
			return ErrFull
		}
	}
	q.add(l, job{run, refused})
	q.wake.Signal()
	q.mu.Unlock()
	if victim != nil {
		victim.refused()
	}
	return nil
}

// lineOf returns the line of a sender, or a new one that is not part of the queue yet.
func (q *Queue) lineOf(from identity.Sender) *line {
	if l := q.lines[from]; l != nil {
		return l
	}
	g := q.groups[from.Identity]
	if g == nil {
		g = &group{identity: from.Identity}
	}
	return &line{sender: from, group: g}
}

func (q *Queue) add(l *line, j job) {
	g := l.group
	q.lines[l.sender], q.groups[g.identity] = l, g
	l.jobs = append(l.jobs, j)
	q.waiting++
	g.waiting++
	if l.turn == nil {
		l.turn = g.turns.PushBack(l)
	}
	if g.turn == nil {
		g.turn = q.turns.PushBack(g)
	}
}

// evict removes a job in favor of one of a line: the last one of the longest line of the identity with most jobs, if
// that has more than the line's own would have, and otherwise of its own identity's longest line, if that is longer
// than the line would be. It returns nil if there is no such job.
func (q *Queue) evict(in *line) *job {
	most, than := in.group, in.group.waiting+1
	for e := q.turns.Front(); e != nil; e = e.Next() {
		if g := e.Value.(*group); g.waiting > than {
			most, than = g, g.waiting
		}
	}
	least := 0
	if most == in.group {
		least = len(in.jobs) + 1
	}
	longest := most.longest(least)
	if longest == nil {
		return nil
	}
	last := longest.jobs[len(longest.jobs)-1]
	longest.jobs = longest.jobs[:len(longest.jobs)-1]
	q.waiting--
	most.waiting--
	if len(longest.jobs) == 0 {
		q.leave(longest)
	}
	return &last
}

// longest returns the longest line, among the lines with more jobs than the argument, or nil.
func (g *group) longest(than int) (found *line) {
	for e := g.turns.Front(); e != nil; e = e.Next() {
		if l := e.Value.(*line); len(l.jobs) > than {
			found, than = l, len(l.jobs)
		}
	}
	return found
}

// leave takes a line without jobs out of the turns.
func (q *Queue) leave(l *line) {
	l.group.turns.Remove(l.turn)
	l.turn, l.jobs = nil, nil
	if l.group.waiting == 0 {
		q.turns.Remove(l.group.turn)
		l.group.turn = nil
	}
	q.forget(l)
}

// forget drops a line, and its group, that neither runs nor waits.
func (q *Queue) forget(l *line) {
	if l.running == 0 && l.turn == nil {
		delete(q.lines, l.sender)
	}
	if l.group.running == 0 && l.group.turn == nil {
		delete(q.groups, l.group.identity)
	}
}

// Enter waits for the sender's turn, which lasts until leave is called. It returns ErrFull or ctx's error.
func (q *Queue) Enter(ctx context.Context, from identity.Sender) (leave func(), err error) {
	started, done, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
	run := func(context.Context) {
		close(started)
		<-done
	}
	if err := q.Submit(from, run, func() { close(refused) }); err != nil {
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
			q.rest(restFactor * took)
			q.mu.Lock()
		}
	}
}

const (
	// restFactor is how much longer a rest is than the job before it.
	restFactor = 3
	// longestRest bounds a rest, because a long job may have waited rather than used the processor.
	longestRest = 50 * time.Millisecond
)

// rest pauses for that long, at most longestRest, or until the queue closes.
func (q *Queue) rest(long time.Duration) {
	enough := time.NewTimer(min(long, longestRest))
	defer enough.Stop()
	select {
	case <-enough.C:
	case <-q.ctx.Done():
	}
}

// next returns the line whose turn it is, or nil if no waiting line may have another worker.
func (q *Queue) next() *line {
	for e := q.turns.Front(); e != nil; e = e.Next() {
		g := e.Value.(*group)
		if g.running >= max(1, q.cfg.Workers-1) {
			continue
		}
		for e := g.turns.Front(); e != nil; e = e.Next() {
			if l := e.Value.(*line); l.running < max(1, q.cfg.Workers/2) {
				return l
			}
		}
	}
	return nil
}

func (q *Queue) take(l *line) job {
	next, g := l.jobs[0], l.group
	l.jobs[0] = job{}
	l.jobs = l.jobs[1:]
	q.waiting--
	g.waiting--
	l.running++
	g.running++
	q.turns.MoveToBack(g.turn)
	g.turns.MoveToBack(l.turn)
	if len(l.jobs) == 0 {
		q.leave(l)
	}
	return next
}

func (q *Queue) finished(l *line) {
	l.running--
	l.group.running--
	q.forget(l)
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
