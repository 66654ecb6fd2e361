package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// series is one kind of latency.
type series int

const (
	undecided series = iota // an operation that never began and whose kind was not chosen yet
	opening                 // of a session
	late                    // from when an operation was due until it began
	locking                 // from when it was due until the grant
	reading                 // the same, for a reader
	writing                 // the same, for a writer among readers
	handOver                // from the start of an unlock until the next grant
	unlocking               // from the start of an unlock until its answer
	whole                   // from when the operation was due until the unlock's answer
	seriesCount
)

// seriesNames are used in reports and must not change.
var seriesNames = [seriesCount]string{
	undecided: "undecided", opening: "open", late: "late", locking: "lock", reading: "read", writing: "write",
	handOver: "handOver", unlocking: "unlock", whole: "pair",
}

// operation is one lock and unlock.
type operation struct {
	due, started, granted, released, done time.Time
	as                                    series // locking, reading or writing
}

// recorder counts what was due in the window [from, until).
type recorder struct {
	from, until time.Time
	open        bool // an open loop, in which operations may begin late
	progress    *Progress
	shards      []shard

	finished atomic.Int64 // within the window
	mu       sync.Mutex   // guards gap
	gap      gap          // longest time without an answer to any worker
}

// shard holds the counts of some of the workers.
type shard struct {
	mu         sync.Mutex
	latencies  [seriesCount]latencies
	errors     map[string]int64
	unfinished int64
	lost       int64
}

func newRecorder(from, until time.Time, open bool, progress *Progress) *recorder {
	r := &recorder{from: from, until: until, open: open, progress: progress,
		shards: make([]shard, min(4*runtime.GOMAXPROCS(0), 16)), gap: gap{last: from}}
	for i := range r.shards {
		r.shards[i].errors = map[string]int64{}
	}
	return r
}

// within reports whether t is within the window.
func (r *recorder) within(t time.Time) bool { return !t.Before(r.from) && t.Before(r.until) }

// shard returns the shard of a worker.
func (r *recorder) shard(worker int) *shard { return &r.shards[worker%len(r.shards)] }

// add adds one latency.
func (r *recorder) add(worker int, of series, d time.Duration) {
	s := r.shard(worker)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latencies[of].add(d)
}

// succeeded counts a completed operation.
func (r *recorder) succeeded(worker int, o *operation) {
	r.progress.done.Add(1)
	if r.within(o.done) {
		r.finished.Add(1)
		r.mu.Lock()
		r.gap.answered(o.done)
		r.mu.Unlock()
	}
	if !r.within(o.due) {
		return
	}
	s := r.shard(worker)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.open {
		s.latencies[late].add(o.started.Sub(o.due))
	}
	s.latencies[o.as].add(o.granted.Sub(o.due))
	s.latencies[unlocking].add(o.done.Sub(o.released))
	s.latencies[whole].add(o.done.Sub(o.due))
}

// failed counts an operation that returned an error.
func (r *recorder) failed(worker int, due time.Time, err error) {
	r.progress.failed.Add(1)
	if !r.within(due) {
		return
	}
	s := r.shard(worker)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors[nameOf(err)]++
}

// gaveUp counts an operation that was unanswered at the end of the run. The time it had waited until then
// is a lower bound of its latency. If the run was interrupted, the time is ignored, because most such
// operations had only just begun.
func (r *recorder) gaveUp(worker int, o *operation, at time.Time, interrupted bool) {
	if !r.within(o.due) {
		return
	}
	s := r.shard(worker)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unfinished++
	if interrupted {
		return
	}
	waited := at.Sub(o.due)
	s.latencies[whole].add(waited)
	switch {
	case o.started.IsZero():
		s.latencies[late].add(waited)
	case r.open:
		s.latencies[late].add(o.started.Sub(o.due))
	}
	if o.granted.IsZero() && o.as != undecided {
		s.latencies[o.as].add(waited)
	}
}

// lostSession counts a lost session.
func (r *recorder) lostSession(worker int) {
	s := r.shard(worker)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
}

// total returns the sum of all shards.
func (r *recorder) total() *shard {
	all := &shard{errors: map[string]int64{}}
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for j := range s.latencies {
			all.latencies[j].merge(&s.latencies[j])
		}
		for name, n := range s.errors {
			all.errors[name] += n
		}
		all.unfinished += s.unfinished
		all.lost += s.lost
		s.mu.Unlock()
	}
	return all
}

// gap is the longest time without an answer.
type gap struct {
	last    time.Time // time of the last answer
	longest time.Duration
	since   time.Time // when the longest gap began
}

// answered ends a gap. Answers may arrive slightly out of order.
func (g *gap) answered(at time.Time) {
	if d := at.Sub(g.last); d > g.longest {
		g.longest, g.since = d, g.last
	}
	if at.After(g.last) {
		g.last = at
	}
}
