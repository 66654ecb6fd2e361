package replica

import (
	"container/heap"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// stall is how late the timer must fire for the process to have stood still
	// (stopped, swapped out, no processor). What arrived meanwhile has not been read
	// yet: whoever is due then gets a little longer, once.
	stall = 250 * time.Millisecond
	// again is when a decided end is proposed once more after it was refused, and
	// againSlow after the machine failed over it.
	again     = 20 * time.Millisecond
	againSlow = time.Second
)

// life is what the deadlines know of a session.
type life int

const (
	inactive life = iota // this node does not serve
	unknown
	alive
	decided // its expiry is on its way to the log; it cannot come back
)

// deadline is when a session or a timed wait ends. Signs of life only move last; the
// heap learns of them when the deadline comes up.
type deadline struct {
	session uint64
	wait    uint64 // 0: of the session itself
	// generation is the one the machine will compare.
	generation uint64
	ttl        time.Duration
	last       time.Time
	decided    bool
	// forgiven: it was given longer after a stall, and there was no sign of life since.
	forgiven bool

	at    time.Time // when to look at it next
	index int       // in the heap, -1 outside
}

// deadlines holds the deadlines of one reign. Times are monotonic, counted from
// receipt; they never leave this node's memory.
type deadlines struct {
	// expire proposes the end of a session or wait, under the term it was decided in.
	// answered is called with what became of it.
	expire func(term uint64, d ending, answered func(*wire.Result)) bool

	mu       sync.Mutex
	term     uint64 // 0: inactive
	sessions map[uint64]*deadline
	waits    map[uint64]*deadline
	heap     deadlineHeap
	wake     chan struct{}
	stopCh   chan struct{}
}

// ending is a decided end.
type ending struct{ session, wait, generation uint64 }

func newDeadlines(expire func(uint64, ending, func(*wire.Result)) bool) *deadlines {
	return &deadlines{expire: expire, wake: make(chan struct{}, 1), stopCh: make(chan struct{})}
}

// start begins a reign: one full TTL for every session, the full wait for every timed
// wait of the machine.
func (d *deadlines) start(term uint64, m *fsm.Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.term = term
	d.sessions, d.waits, d.heap = map[uint64]*deadline{}, map[uint64]*deadline{}, nil
	now := time.Now()
	m.EachSession(func(s fsm.Session) bool {
		d.add(&deadline{session: s.ID, generation: s.Generation, ttl: millis(s.TTL), last: now})
		return true
	})
	m.EachWait(func(w fsm.Wait) bool {
		if !w.WaitForever {
			d.add(&deadline{session: w.SessionID, wait: w.ID, generation: w.Generation, ttl: millis(w.WaitMs), last: now})
		}
		return true
	})
	d.nudge()
}

// stop ends the reign: nothing is decided any more.
func (d *deadlines) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.term = 0
	d.sessions, d.waits, d.heap = nil, nil, nil
}

// add puts a new deadline into heap and table. Called with mu.
func (d *deadlines) add(e *deadline) {
	table, key := d.sessions, e.session
	if e.wait != 0 {
		table, key = d.waits, e.wait
	}
	if old := table[key]; old != nil {
		d.remove(old)
	}
	table[key] = e
	e.at = e.last.Add(e.ttl)
	heap.Push(&d.heap, e)
	if e.index == 0 {
		d.nudge()
	}
}

// remove forgets a deadline. Called with mu; nil is nothing.
func (d *deadlines) remove(e *deadline) {
	if e == nil {
		return
	}
	if e.index >= 0 {
		heap.Remove(&d.heap, e.index)
	}
	if e.wait != 0 {
		delete(d.waits, e.wait)
	} else {
		delete(d.sessions, e.session)
	}
}

func (d *deadlines) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// touch counts a sign of life that arrived at the given time.
func (d *deadlines) touch(session uint64, arrived time.Time) life {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, state := d.find(session)
	if state == alive && arrived.After(e.last) {
		e.last, e.forgiven = arrived, false
	}
	return state
}

// state is what is known of the session under that term.
func (d *deadlines) state(term, session uint64) life {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term != term {
		return inactive
	}
	_, state := d.find(session)
	return state
}

func (d *deadlines) find(session uint64) (*deadline, life) {
	if d.term == 0 {
		return nil, inactive
	}
	e := d.sessions[session]
	switch {
	case e == nil:
		return nil, unknown
	case e.decided:
		return e, decided
	}
	return e, alive
}

func (d *deadlines) age(session uint64) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, state := d.find(session)
	if state != alive && state != decided {
		return 0, false
	}
	return time.Since(e.last), true
}

func (d *deadlines) remaining(session uint64) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, state := d.find(session)
	if state != alive {
		return 0, false
	}
	return max(0, time.Until(e.last.Add(e.ttl))), true
}

// observe follows what an entry did. Entries of an older reign come before start, when
// there is nothing to follow.
func (d *deadlines) observe(events []*wire.Event) {
	if len(events) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term == 0 {
		return
	}
	now := time.Now()
	for _, e := range events {
		d.observeOne(e, now)
	}
}

func (d *deadlines) observeOne(e *wire.Event, now time.Time) {
	switch e.Type {
	case wire.Event_SESSION_OPENED, wire.Event_SESSION_ATTACHED:
		d.add(&deadline{session: e.SessionId, generation: e.Generation, ttl: millis(e.TtlMs), last: now})
	case wire.Event_SESSION_CLOSED, wire.Event_SESSION_EXPIRED:
		d.remove(d.sessions[e.SessionId])
	case wire.Event_QUEUED:
		if !e.WaitForever {
			d.add(&deadline{session: e.SessionId, wait: e.HoldId, generation: e.Generation, ttl: millis(e.WaitMs), last: now})
		}
	case wire.Event_GRANTED, wire.Event_CANCELLED:
		d.remove(d.waits[e.HoldId])
	}
}

// run decides what is due until close. It is the only goroutine that does.
func (d *deadlines) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := d.decide(time.Now())
		timer.Reset(next)
		select {
		case <-timer.C:
			d.forgive(time.Now())
		case <-d.wake:
		case <-d.stopCh:
			return
		}
	}
}

func (d *deadlines) close() { close(d.stopCh) }

// forgive gives whoever is due after a stall a little longer, once: what they sent
// meanwhile may lie unread. It can only delay an end, by a quarter of the TTL at most,
// also where every timer fires late.
func (d *deadlines) forgive(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.heap) == 0 {
		return
	}
	late := now.Sub(d.heap[0].at)
	if late < stall {
		return
	}
	var due []*deadline
	for len(d.heap) > 0 && !d.heap[0].at.After(now) {
		due = append(due, heap.Pop(&d.heap).(*deadline))
	}
	for _, e := range due {
		if !e.forgiven && !e.decided {
			e.at, e.forgiven = now.Add(min(late, e.ttl/4)), true
		}
		heap.Push(&d.heap, e)
	}
}

// decide proposes every end that is due and says when to look again.
func (d *deadlines) decide(now time.Time) time.Duration {
	term, due, next := d.pop(now)
	for _, e := range due {
		d.propose(term, e)
	}
	return next
}

// pop marks what is due as decided. Sessions that gave signs of life go back.
func (d *deadlines) pop(now time.Time) (term uint64, due []ending, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.heap) > 0 && !d.heap[0].at.After(now) {
		e := d.heap[0]
		if end := e.last.Add(e.ttl); !e.decided && end.After(now) {
			e.at = end
			heap.Fix(&d.heap, 0)
			continue
		}
		heap.Pop(&d.heap)
		e.decided = true
		due = append(due, ending{e.session, e.wait, e.generation})
	}
	if len(d.heap) == 0 {
		return d.term, due, time.Hour
	}
	return d.term, due, d.heap[0].at.Sub(now)
}

func (d *deadlines) propose(term uint64, e ending) {
	d.expire(term, e, func(result *wire.Result) {
		switch result.GetStatus() {
		case wire.Status_UNAVAILABLE, wire.Status_NOT_LEADER, wire.Status_UNCERTAIN:
			d.retry(term, e, again)
		case wire.Status_INTERNAL:
			d.retry(term, e, againSlow)
		default:
			// Applied, or overtaken: a new generation has its own deadline.
			d.settle(term, e)
		}
	})
}

// retry looks at a decided end again, until it is applied or the reign ends.
func (d *deadlines) retry(term uint64, of ending, after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.same(term, of); e != nil && e.index < 0 {
		e.at = time.Now().Add(after)
		heap.Push(&d.heap, e)
		d.nudge()
	}
}

func (d *deadlines) settle(term uint64, of ending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(d.same(term, of))
}

// same finds the deadline that was decided, unless a newer one took its place.
func (d *deadlines) same(term uint64, of ending) *deadline {
	if d.term != term {
		return nil
	}
	e := d.sessions[of.session]
	if of.wait != 0 {
		e = d.waits[of.wait]
	}
	if e == nil || e.generation != of.generation || !e.decided {
		return nil
	}
	return e
}

func millis(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

type deadlineHeap []*deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *deadlineHeap) Push(x any) {
	e := x.(*deadline)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *deadlineHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
