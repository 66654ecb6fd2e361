package client

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// bookCheck checks the invariants of a client's state that hold whenever its mutex is free. The tests check
// them after each alarm and at their end.
type listCheck struct {
	c     *Client
	now   time.Duration
	wrong []string
}

// check fails the test if the state of one of the fake's clients violates an invariant.
func (f *fake) check(when string) {
	f.mu.Lock()
	clients, t := f.clients, f.t
	f.mu.Unlock()
	for _, c := range clients {
		for _, wrong := range c.checkLists(f.clock.Now()) {
			t.Errorf("books %s: %s", when, wrong)
		}
	}
}

// checkBooks returns the violated invariants.
func (c *Client) checkLists(now time.Duration) []string {
	c.mu.Mutex.Lock()
	defer c.mu.Mutex.Unlock()
	b := &listCheck{c: c, now: now}
	if c.halted {
		b.closed()
		return b.wrong
	}
	b.lanes()
	b.schedule()
	b.alarm()
	b.watchers()
	for id, s := range c.sessions {
		b.that(s.id == id, "session %d is kept as %d", s.id, id)
		b.session(s)
		b.holds(s)
		b.cached(s)
	}
	return b.wrong
}

func (b *listCheck) that(right bool, format string, args ...any) {
	if !right {
		b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
	}
}

// closed checks that a closed client has no state left.
func (b *listCheck) closed() {
	c := b.c
	left := len(c.sessions) + len(c.schedule) + len(c.watchers) + len(c.urgent.all()) + len(c.ready.all()) + len(c.anywhere.all()) + len(c.stalled.all())
	b.that(left == 0, "%d sessions, requests and watchers are left of a closed client", left)
}

// all returns the calls of a list, as far as its links lead.
func (l *callList) all() (calls []*call) {
	for k := l.head; k != nil; k = k.links[l.slot].next {
		calls = append(calls, k)
	}
	return calls
}

// list checks the links of a list, and that its calls refer to it.
func (b *listCheck) list(name string, l *callList) (calls []*call) {
	calls = l.all()
	b.that(len(calls) == l.n, "%s counts %d calls, and has %d", name, l.n, len(calls))
	var before *call
	for _, k := range calls {
		in := k.list
		if l.slot == sessionList {
			in = k.sessionList
		}
		b.that(in == l && k.links[l.slot].prev == before, "%s: a link is broken at call %d of kind %d", name, k.request.Id, k.kind)
		before = k
	}
	b.that(l.tail == before, "%s ends elsewhere", name)
	return calls
}

// lanes checks the lists in which calls wait to be sent or answered.
func (b *listCheck) lanes() {
	c := b.c
	flight := b.list("flight", &c.flight)
	b.that(c.byID.n == len(flight), "%d calls have numbers, %d are in flight", c.byID.n, len(flight))
	for _, k := range flight {
		b.that(c.byID.find(k.request.Id) == k, "call %d is not found by its number", k.request.Id)
		b.that(k.sends > 0, "call %d is in flight and was not sent", k.request.Id)
	}
	for name, l := range map[string]*callList{"urgent": &c.urgent, "ready": &c.ready, "anywhere": &c.anywhere, "stalled": &c.stalled} {
		for _, k := range b.list(name, l) {
			b.that(!k.finished, "%s keeps call %d of kind %d, which is over", name, k.request.Id, k.kind)
		}
	}
	b.that((c.stalled.n > 0) == (c.retryAt != 0), "%d calls are stalled until %v", c.stalled.n, c.retryAt)
	b.that(c.conn != nil || c.flight.n == 0, "%d calls are in flight on no connection", c.flight.n)
}

// schedule checks that the schedule is a heap that contains every session, at or before its next event.
func (b *listCheck) schedule() {
	a := b.c.schedule
	b.that(len(a) == len(b.c.sessions), "%d sessions have an event, of %d", len(a), len(b.c.sessions))
	for i, s := range a {
		b.that(s.place == i && b.c.sessions[s.id] == s, "session %d is at %d of the schedule and believes %d", s.id, i, s.place)
		b.that(!a.Less(i, (i-1)/2) || i == 0, "the schedule is out of order at %d", i)
		if s.closing == nil {
			b.that(s.wakeAt <= s.nextEvent(), "session %d wakes at %v, its next event is at %v", s.id, s.wakeAt, s.nextEvent())
		}
	}
}

// alarm checks that the alarm fires in time for everything that will be due.
func (b *listCheck) alarm() {
	c := b.c
	by := func(what string, at time.Duration) {
		b.that(c.alarmAt != 0 && c.alarmAt <= max(at, b.now)+time.Millisecond, "the alarm is at %v, and %s at %v", c.alarmAt, what, at)
	}
	if len(c.schedule) > 0 {
		by("a session's event is", c.schedule[0].wakeAt)
	}
	if c.retryAt != 0 {
		by("a retry is", c.retryAt)
	}
	cn := c.conn
	if cn == nil || cn.err != nil {
		return
	}
	if at := min(c.silentAt(cn, c.oldest()), c.doubtAt(cn, c.oldest())); at != never {
		by("the connection is given up or pinged", at)
	}
	if c.quiet(cn) {
		by("a ping is due", cn.pingAt())
	}
	if at := c.search.seekAt(b.now); at != never {
		by("a step of the search is due", at)
	}
}

func (b *listCheck) watchers() {
	c, under := b.c, 0
	for w := range c.watchers {
		b.that(w.err == nil, "a watcher that has ended is kept: %v", w.err)
		events := 0
		for _, batch := range w.batches {
			events += len(batch.events)
		}
		b.that(events == w.events, "a watcher counts %d events, and has %d", w.events, events)
		b.that(w.conn != nil || len(w.cut) == 0, "a watcher keeps part of a revision behind a break")
		if w.conn != nil {
			under++
			b.that(w.conn == c.conn && c.watching[w.id] == w && w.call == nil, "a watch is under way elsewhere")
		}
	}
	b.that(len(c.watching) == under, "%d watches are under way, %d watchers know", len(c.watching), under)
}

func (b *listCheck) session(s *Session) {
	c := b.c
	last := uint64(0)
	for _, k := range b.list("unanswered", &s.unanswered) {
		b.that(k.request.Seq > last && k.request.Seq < s.nextSeq, "number %d is unanswered, after %d of %d", k.request.Seq, last, s.nextSeq)
		b.that(!k.finished && !k.queued, "number %d is answered and unanswered", k.request.Seq)
		last = k.request.Seq
	}
	for _, k := range b.list("unsent", &s.unsent) {
		b.that(k.request.Seq == 0 && !k.finished, "number %d is unsent", k.request.Seq)
	}
	for _, k := range b.list("parked", &s.parked) {
		b.that(!k.finished, "a call of kind %d is parked, and over", k.kind)
	}
	b.that(s.parked.n == 0 || s.conn != c.conn || s.conn == nil, "%d calls are parked by a session that is attached", s.parked.n)
	b.that(s.conn == nil || s.conn == c.conn, "session %d is attached to another connection", s.id)
	for seq, k := range s.waits {
		b.that(k.request.Seq == seq && k.queued && !k.finished && k.sessionList == nil, "the wait %d of kind %d is not one", seq, k.kind)
	}
	for _, seq := range s.acks {
		b.that(seq != 0 && seq < s.nextSeq && s.waits[seq] == nil, "%d is to be acknowledged of %v", seq, s.acks)
	}
	for name, k := range map[string]*call{"heartbeat": s.heartbeat, "attach": s.attaching, "acknowledgement": s.acknowledging} {
		b.that(k == nil || !k.finished, "session %d waits for a %s that is over", s.id, name)
	}
	b.that(s.closing != nil == (s.state == Lost) && (s.reason != nil) == (s.state == Lost), "session %d is %v, for %v, and kept", s.id, s.state, s.reason)
}

func (b *listCheck) holds(s *Session) {
	earliest := never
	for d := range s.bounded {
		b.that(d.gone == nil, "hold %d is bounded, and over", d.id)
		earliest = min(earliest, d.deadline())
	}
	b.that(s.boundAt <= earliest, "the next bound is at %v, one looks at %v", earliest, s.boundAt)
	b.that(len(s.bounded) > 0 || s.boundAt == never, "nothing is bounded, and looked at at %v", s.boundAt)
	for d := range s.holds.all {
		b.that(d.deadline() == never || !watched(d) || d.inBounded(), "the bound of hold %d is watched by nobody", d.id)
		for h := d.first; h != nil; h = h.next {
			b.that(!h.released, "hold %d keeps a handle that was released", d.id)
			b.that(h.release == nil || !h.release.finished, "hold %d keeps a release that is over", d.id)
		}
		if r := d.rare; r != nil {
			for _, e := range r.extends {
				b.that(!e.call.finished, "hold %d counts with an Extend that was answered", d.id)
			}
			b.that(r.upgrades == s.upgrades(d) && (r.upgrades > 0 || len(r.undecided) == 0), "hold %d: %d upgrades, and %d who wait for them", d.id, r.upgrades, len(r.undecided))
		}
	}
}

// upgrades counts the upgrades of a hold in flight.
func (s *Session) upgrades(d *held) (n int) {
	calls := slices.Concat(s.unanswered.all(), s.unsent.all(), slices.Collect(maps.Values(s.waits)))
	for _, k := range calls {
		if k.kind == kindUpgrade && k.hold.held == d && k.after != nil {
			n++
		}
	}
	return n
}

// watched reports whether the hold's deadline still matters because a caller may be using it.
func watched(d *held) bool { return d.gone == nil && d.count() > 0 }

func (d *held) inBounded() bool {
	_, is := d.session.bounded[d]
	return is
}

// TestListsAreChecked checks that the checks find violations.
func TestListsAreChecked(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustBound(t, s, "x", time.Minute)
		for name, spoil := range map[string]func() (mend func()){
			"a place":    func() func() { s.place++; return func() { s.place-- } },
			"an alarm":   func() func() { at := c.alarmAt; c.alarmAt += time.Hour; return func() { c.alarmAt = at } },
			"a count":    func() func() { c.ready.n++; return func() { c.ready.n-- } },
			"a bound":    func() func() { at := s.boundAt; s.boundAt = never; return func() { s.boundAt = at } },
			"a handle":   func() func() { hold.released = true; return func() { hold.released = false } },
			"a state":    func() func() { s.state = Lost; return func() { s.state = Active } },
			"a retry":    func() func() { c.retryAt = 1; return func() { c.retryAt = 0 } },
			"an answer":  func() func() { s.acks = append(s.acks, 99); return func() { s.acks = nil } },
			"a watching": func() func() { c.watching[9] = &Watcher{}; return func() { delete(c.watching, 9) } },
		} {
			c.mu.Lock()
			mend := spoil()
			c.unlock()
			wrong := c.checkLists(f.clock.Now())
			c.mu.Lock()
			mend()
			c.unlock()
			if len(wrong) == 0 {
				t.Errorf("%s that is wrong is not seen", name)
			}
		}
	})
}
