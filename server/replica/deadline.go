package replica

import (
	"container/heap"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// life is the state of a session, as far as deadlines know it.
type life int

const (
	inactive life = iota // this node does not serve
	unknown
	alive
	leased  // alive, but only an extension prolongs it
	decided // its expiry is on its way into the log and cannot be undone
)

// kind is the kind of thing that a deadline ends.
type kind int

const (
	ofSession kind = iota
	ofWait         // of an acquire or an upgrade that limits its wait
	ofHold         // a hold's max_hold
	ofGrace        // the grace of a hold's revocation
	ofDelay        // a lock-delay
	kinds
)

// deadline is the time at which something ends. A sign of life only moves last; the heap is corrected when
// the deadline comes up.
type deadline struct {
	ending
	ttl  time.Duration
	last time.Time
	// fixed is set if the session belongs to a lease, which signs of life do not prolong.
	fixed   bool
	decided bool
	// forgiven is set if the deadline was extended after a stall and there was no sign of life since.
	forgiven bool
	// exhausted is set if the session was refused something because a budget was used up.
	exhausted bool

	at    time.Time // when to check it next
	index int       // in the heap; -1 if it is not there
}

// ending identifies the end of something: id is that of a session or a claim, and the state machine will
// compare generation.
type ending struct {
	of             kind
	id, generation uint64
}

// deadlines holds the deadlines of one leadership. Times are monotonic and counted from receipt. They never
// leave this node's memory.
type deadlines struct {
	// expire proposes an end that was decided in the given term. answered is called with its result. expire
	// reports false if that term is over.
	expire func(term uint64, e ending, answered func(*wire.Result)) bool

	mu     sync.Mutex
	term   uint64 // 0 if this node does not serve
	tables [kinds]map[uint64]*deadline
	heap   deadlineHeap
	wake   chan struct{}
	stopCh chan struct{}
}

func newDeadlines(expire func(uint64, ending, func(*wire.Result)) bool) *deadlines {
	return &deadlines{expire: expire, wake: make(chan struct{}, 1), stopCh: make(chan struct{})}
}

// start begins a leadership: everything that ends by time gets its full time from now on.
func (d *deadlines) start(term uint64, m *fsm.Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.term, d.heap = term, nil
	for of := range d.tables {
		d.tables[of] = map[uint64]*deadline{}
	}
	now := time.Now()
	m.EachSession(func(s fsm.Session) bool {
		d.add(&deadline{ending: ending{ofSession, s.ID, s.Generation}, ttl: millis(s.TTL), last: now, fixed: s.Leased})
		return true
	})
	m.EachWait(func(w fsm.Wait) bool {
		if !w.WaitForever {
			d.add(&deadline{ending: ending{ofWait, w.ID, w.Generation}, ttl: millis(w.WaitMs), last: now})
		}
		return true
	})
	m.EachHoldDeadline(func(h fsm.HoldDeadline) bool {
		of := ofHold
		if h.Grace {
			of = ofGrace
		}
		d.add(&deadline{ending: ending{of, h.HoldID, h.Generation}, ttl: millis(h.Ms), last: now})
		return true
	})
	m.EachDelay(func(l fsm.Delay) bool {
		d.add(&deadline{ending: ending{ofDelay, l.HoldID, l.Generation}, ttl: millis(l.Ms), last: now})
		return true
	})
	d.nudge()
}

// stop ends the leadership. Nothing is decided any more.
func (d *deadlines) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.term, d.heap = 0, nil
	clear(d.tables[:])
}

// add puts a new deadline into heap and table and replaces an older one. Called with mu held.
func (d *deadlines) add(e *deadline) {
	d.remove(e.of, e.id)
	d.tables[e.of][e.id] = e
	e.at = e.last.Add(e.ttl)
	heap.Push(&d.heap, e)
	if e.index == 0 {
		d.nudge()
	}
}

// remove removes a deadline, if it exists. Called with mu held.
func (d *deadlines) remove(of kind, id uint64) {
	e := d.tables[of][id]
	if e == nil {
		return
	}
	if e.index >= 0 {
		heap.Remove(&d.heap, e.index)
	}
	delete(d.tables[of], id)
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
	_, state := d.sign(session, arrived)
	return state
}

// sign is touch, called with mu held.
func (d *deadlines) sign(session uint64, arrived time.Time) (*deadline, life) {
	e, state := d.find(session)
	if state == alive && arrived.After(e.last) {
		e.last, e.forgiven = arrived, false
	}
	return e, state
}

// state returns what is known of the session in that term.
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
	e := d.tables[ofSession][session]
	switch {
	case e == nil:
		return nil, unknown
	case e.decided:
		return e, decided
	case e.fixed:
		return e, leased
	}
	return e, alive
}

// age returns the time since the session's last sign of life or, for a lease, since its last extension.
func (d *deadlines) age(session uint64) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.tables[ofSession][session]
	if e == nil {
		return 0, false
	}
	return time.Since(e.last), true
}

// remaining returns the time left until an end, unless that is already decided.
func (d *deadlines) remaining(of kind, id uint64) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.tables[of][id]
	if e == nil || e.decided {
		return 0, false
	}
	return max(0, time.Until(e.last.Add(e.ttl))), true
}

// observe follows the events of an entry. Entries of an older leadership come before start, when there is
// nothing to follow.
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
	begin := func(of kind, id uint64, ms uint32) *deadline {
		began := &deadline{ending: ending{of, id, e.Generation}, ttl: millis(ms), last: now}
		d.add(began)
		return began
	}
	switch e.Type {
	case wire.Event_SESSION_OPENED, wire.Event_SESSION_ATTACHED, wire.Event_SESSION_EXTENDED:
		fixed := e.Leased || e.Type == wire.Event_SESSION_EXTENDED
		begin(ofSession, e.SessionId, e.TtlMs).fixed = fixed
	case wire.Event_SESSION_CLOSED, wire.Event_SESSION_EXPIRED:
		d.remove(ofSession, e.SessionId)
	case wire.Event_QUEUED:
		if !e.WaitForever {
			begin(ofWait, e.HoldId, e.WaitMs)
		}
	case wire.Event_CANCELLED:
		d.remove(ofWait, e.HoldId)
	case wire.Event_GRANTED:
		d.remove(ofWait, e.HoldId)
		if e.MaxHoldMs > 0 && !e.Upgrade { // an upgrade does not change the hold's own deadline
			begin(ofHold, e.HoldId, e.MaxHoldMs)
		}
	case wire.Event_EXTENDED:
		begin(ofHold, e.HoldId, e.MaxHoldMs)
	case wire.Event_REVOKED:
		if e.MaxHoldMs > 0 {
			begin(ofGrace, e.HoldId, e.MaxHoldMs)
		}
	case wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED:
		d.remove(ofHold, e.HoldId)
		d.remove(ofGrace, e.HoldId)
	case wire.Event_DELAYED:
		begin(ofDelay, e.HoldId, e.LockDelayMs)
	case wire.Event_DELAY_ENDED:
		if !e.Partial {
			d.remove(ofDelay, e.HoldId)
		}
	}
}
