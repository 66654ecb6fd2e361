package expiry

import (
	"container/heap"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// State is the state of a session, as far as its deadline determines it.
type State int

// States of a session.
const (
	Inactive State = iota // this node does not serve
	Unknown
	Alive
	Leased  // alive, but only an extension prolongs it
	Decided // its expiry is on its way into the log and cannot be undone
)

// Kind is the kind of thing that a deadline ends.
type Kind int

// Kinds of deadlines.
const (
	Session Kind = iota
	Wait         // of an acquire or an upgrade that limits its wait
	Hold         // a hold's max_hold
	Grace        // the grace of a hold's revocation
	Delay        // a lock-delay
	kinds
)

// deadline is the time at which something ends. A sign of life only moves last; the heap is corrected when
// the deadline comes up.
type deadline struct {
	ending
	ttl  time.Duration
	last time.Time
	// fixed is set if the session belongs to a lease, which signs of life do not prolong.
	fixed bool
	// recorded is set for a key whose TTL is so long that what remains of it is recorded.
	recorded bool
	decided  bool
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
	of             Kind
	id, generation uint64
}

// newSession returns the deadline of a session.
func newSession(id, generation uint64, ttl uint32, key bool) *deadline {
	return &deadline{ending: ending{Session, id, generation}, ttl: millis(ttl), recorded: key && millis(ttl) > RecordInterval}
}

// end returns when the deadline passes, unless there is another sign of life.
func (e *deadline) end() time.Time { return e.last.Add(e.ttl) }

// check returns when to check the deadline next.
func (e *deadline) check() time.Time {
	if e.recorded {
		if next := time.Now().Add(RecordInterval); next.Before(e.end()) {
			return next
		}
	}
	return e.end()
}

// Deadlines holds the deadlines of one leadership. Times are monotonic and counted from receipt. They never
// leave this node's memory. All methods are safe for concurrent use.
type Deadlines struct {
	// expire proposes an end that was decided in the given term. answered is called with its result. expire
	// reports false if that term is over.
	expire func(term uint64, e ending, answered func(*wire.Result)) bool
	// record proposes to record what remains of the TTLs of keys.
	record func(term uint64, keys []*wire.RecordRemaining_Remaining)

	mu     sync.Mutex
	term   uint64 // 0 if this node does not serve
	tables [kinds]map[uint64]*deadline
	heap   deadlineHeap
	// used is when the idle cached holds of each session were last in use, by hold, as its last heartbeat reported.
	// Most sessions have none, so it is not kept with each session's deadline.
	used   map[uint64]map[uint64]time.Time
	wake   chan struct{}
	stopCh chan struct{}
}

// New returns deadlines that propose each end that they decide, and each record, with propose: a command of the given
// term. answered must be called with its result. propose reports false if that term is over.
func New(propose func(term uint64, cmd *wire.Command, answered func(*wire.Result)) bool) *Deadlines {
	d := newDeadlines(func(term uint64, e ending, answered func(*wire.Result)) bool {
		return propose(term, e.command(term), answered)
	})
	d.record = func(term uint64, keys []*wire.RecordRemaining_Remaining) {
		op := &wire.RecordRemaining{Term: term, Keys: keys}
		propose(term, &wire.Command{Op: &wire.Command_RecordRemaining{RecordRemaining: op}}, func(*wire.Result) {})
	}
	return d
}

func newDeadlines(expire func(uint64, ending, func(*wire.Result)) bool) *Deadlines {
	return &Deadlines{expire: expire, wake: make(chan struct{}, 1), stopCh: make(chan struct{})}
}

// Start begins a leadership: everything that ends by time gets its full time from now on, except keys, which get what
// was last recorded.
func (d *Deadlines) Start(term uint64, m *fsm.Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.term, d.heap, d.used = term, nil, map[uint64]map[uint64]time.Time{}
	for of := range d.tables {
		d.tables[of] = map[uint64]*deadline{}
	}
	now := time.Now()
	m.EachSession(func(s fsm.Session) bool {
		e := newSession(s.ID, s.Generation, s.TTL, s.ByValue)
		e.fixed, e.last = s.Leased, now
		if s.Remaining > 0 {
			e.last = now.Add(millis(s.Remaining) - e.ttl)
		}
		d.add(e)
		return true
	})
	m.EachWait(func(w fsm.Wait) bool {
		if !w.WaitForever {
			d.add(&deadline{ending: ending{Wait, w.ID, w.Generation}, ttl: millis(w.WaitMs), last: now})
		}
		return true
	})
	m.EachHoldDeadline(func(h fsm.HoldDeadline) bool {
		of := Hold
		if h.Grace {
			of = Grace
		}
		d.add(&deadline{ending: ending{of, h.HoldID, h.Generation}, ttl: millis(h.Ms), last: now})
		return true
	})
	m.EachDelay(func(l fsm.Delay) bool {
		d.add(&deadline{ending: ending{Delay, l.HoldID, l.Generation}, ttl: millis(l.Ms), last: now})
		return true
	})
	d.signal()
}

// Stop ends the leadership. Nothing is decided any more.
func (d *Deadlines) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.term, d.heap, d.used = 0, nil, nil
	clear(d.tables[:])
}

// add puts a new deadline into heap and table and replaces an older one. Called with mu held.
func (d *Deadlines) add(e *deadline) {
	d.remove(e.of, e.id)
	d.tables[e.of][e.id] = e
	e.at = e.check()
	heap.Push(&d.heap, e)
	if e.index == 0 {
		d.signal()
	}
}

// remove removes a deadline, if it exists. Called with mu held.
func (d *Deadlines) remove(of Kind, id uint64) {
	e := d.tables[of][id]
	if e == nil {
		return
	}
	if e.index >= 0 {
		heap.Remove(&d.heap, e.index)
	}
	delete(d.tables[of], id)
	if of == Session {
		delete(d.used, id)
	}
}

func (d *Deadlines) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Touch counts a sign of life that arrived at the given time.
func (d *Deadlines) Touch(session uint64, arrived time.Time) State {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, state := d.sign(session, arrived)
	return state
}

// sign is Touch, called with mu held.
func (d *Deadlines) sign(session uint64, arrived time.Time) (*deadline, State) {
	e, state := d.find(session)
	if state == Alive && arrived.After(e.last) {
		e.last, e.forgiven = arrived, false
	}
	return e, state
}

// State returns what is known of the session in that term.
func (d *Deadlines) State(term, session uint64) State {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term != term {
		return Inactive
	}
	_, state := d.find(session)
	return state
}

func (d *Deadlines) find(session uint64) (*deadline, State) {
	if d.term == 0 {
		return nil, Inactive
	}
	e := d.tables[Session][session]
	switch {
	case e == nil:
		return nil, Unknown
	case e.decided:
		return e, Decided
	case e.fixed:
		return e, Leased
	}
	return e, Alive
}

// Age returns the time since the session's last sign of life or, for a lease, since its last extension.
func (d *Deadlines) Age(session uint64) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.tables[Session][session]
	if e == nil {
		return 0, false
	}
	return time.Since(e.last), true
}

// Remaining returns the time left until an end, unless that is already decided.
func (d *Deadlines) Remaining(of Kind, id uint64) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.tables[of][id]
	if e == nil || e.decided {
		return 0, false
	}
	return max(0, time.Until(e.end())), true
}

// Observe follows the events of an entry. Entries of an older leadership come before Start, when there is
// nothing to follow.
func (d *Deadlines) Observe(events []*wire.Event) {
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

func (d *Deadlines) observeOne(e *wire.Event, now time.Time) {
	begin := func(of Kind, id uint64, ms uint32) {
		d.add(&deadline{ending: ending{of, id, e.Generation}, ttl: millis(ms), last: now})
	}
	switch e.Type {
	case wire.Event_SESSION_OPENED, wire.Event_SESSION_ATTACHED, wire.Event_SESSION_EXTENDED:
		began := newSession(e.SessionId, e.Generation, e.TtlMs, e.ByValue)
		began.fixed, began.last = e.Leased || e.Type == wire.Event_SESSION_EXTENDED, now
		d.add(began)
	case wire.Event_SESSION_CLOSED, wire.Event_SESSION_EXPIRED:
		d.remove(Session, e.SessionId)
	case wire.Event_QUEUED:
		if !e.WaitForever {
			begin(Wait, e.HoldId, e.WaitMs)
		}
	case wire.Event_CANCELLED:
		d.remove(Wait, e.HoldId)
	case wire.Event_GRANTED:
		d.remove(Wait, e.HoldId)
		if e.MaxHoldMs > 0 && !e.Upgrade { // an upgrade does not change the hold's own deadline
			begin(Hold, e.HoldId, e.MaxHoldMs)
		}
	case wire.Event_EXTENDED, wire.Event_WANTED:
		if e.MaxHoldMs > 0 { // that of a cached hold begins when its session is notified of a waiter, not before
			begin(Hold, e.HoldId, e.MaxHoldMs)
		}
	case wire.Event_REVOKED:
		if e.MaxHoldMs > 0 {
			begin(Grace, e.HoldId, e.MaxHoldMs)
		}
	case wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED:
		d.remove(Hold, e.HoldId)
		d.remove(Grace, e.HoldId)
		delete(d.used[e.SessionId], e.HoldId)
	case wire.Event_DELAYED:
		begin(Delay, e.HoldId, e.LockDelayMs)
	case wire.Event_DELAY_ENDED:
		if !e.Partial {
			d.remove(Delay, e.HoldId)
		}
	}
}

// TouchAll counts signs of life of n commands that arrived at the given time, up to the first one of a session
// whose expiry is decided, and returns the number of commands before that one. session returns the session of a
// command, or 0 if the command is no sign of life. touched is called for each session that is alive: exhausted
// is what SetExhausted recorded, until is the end of the session without another sign of life.
func (d *Deadlines) TouchAll(n int, arrived time.Time, session func(i int) uint64, touched func(i int, exhausted bool, until time.Time)) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range n {
		id := session(i)
		if id == 0 {
			continue
		}
		e, state := d.sign(id, arrived)
		if state == Decided {
			return i
		}
		if e != nil {
			touched(i, e.exhausted, e.end())
		}
	}
	return n
}

// SetExhausted records whether a session was refused something because a budget was used up.
func (d *Deadlines) SetExhausted(session uint64, exhausted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, _ := d.find(session); e != nil {
		e.exhausted = exhausted
	}
}
