package client

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Revocation is an operator's request to release a hold.
type Revocation struct {
	// Reason is the operator's reason.
	Reason string
	// Grace is the time from the revocation until the hold is forced away; 0 means never. The hold's
	// Remaining takes the rest of the grace into account.
	Grace time.Duration
}

// notices are the notices about a hold. It is guarded by the client's mutex.
type notices struct {
	wanted struct {
		came   bool
		due    bool // call has not been called yet
		call   func()
		outlet outlet
		signal chan struct{} // channel of Wanted; created on first use
	}
	revoked struct {
		last   Revocation
		count  int  // number of revocations seen so far
		due    bool // call has not been called for the last one
		call   func(Revocation)
		outlet outlet
		latest chan Revocation // channel of Revoked; created on first use
	}
	stopped bool // the hold has ended
}

// Wanted returns a channel that is closed when another owner starts to wait for the lock. It requires
// [OnWanted]; without it, or if nobody waits before the hold ends, the channel is never closed.
func (h *Hold) Wanted() <-chan struct{} {
	c := h.held.session.client
	c.mu.Lock()
	defer c.unlock()
	w := &h.held.extra().wanted
	if w.signal == nil {
		w.signal = make(chan struct{})
		if w.came {
			close(w.signal)
		}
	}
	return w.signal
}

// Revoked returns a channel that carries the latest revocation of the hold by an operator; a slow reader
// misses those in between. It is closed when the hold ends. There is one channel per hold.
func (h *Hold) Revoked() <-chan Revocation {
	c := h.held.session.client
	c.mu.Lock()
	defer c.unlock()
	r := h.held.extra()
	if r.revoked.latest == nil {
		r.revoked.latest = make(chan Revocation, 1)
		if r.revoked.count > 0 {
			r.revoked.latest <- r.revoked.last
		}
		if r.stopped || h.ended != nil {
			r.stopped = true
			close(r.revoked.latest)
		}
	}
	return r.revoked.latest
}

// stopNotices stops the notices of a hold that has ended and no longer watches its bound.
func (d *held) stopNotices() {
	if s := d.session; s.bounded != nil {
		if delete(s.bounded, d); len(s.bounded) == 0 {
			s.boundAt = never
		}
	}
	if r := d.rare; r != nil && !r.stopped {
		r.stopped = true
		if r.revoked.latest != nil {
			close(r.revoked.latest)
		}
	}
}

// noticed records a report from a node about a hold. until returns when a grace that starts with it ends. A
// push reports a new revocation. The answer to an attach repeats the last one, so there a revocation is new
// only if its reason or grace differs. What it reports happened after since.
func (d *held) noticed(wanted bool, revocation *wire.Revocation, pushed bool, since time.Duration, until func(grace uint32) time.Duration) {
	if !wanted && revocation == nil || d.gone != nil {
		return
	}
	r := d.extra()
	if w := &r.wanted; wanted && !w.came {
		w.came, w.due = true, w.call != nil
		if w.signal != nil {
			close(w.signal)
		}
	}
	if revocation != nil {
		d.wasRevoked(Revocation{revocation.GetReason(), graceOf(revocation)}, pushed, func() time.Duration { return until(revocation.GetGraceMs()) })
	}
	r.deliver(d.session.client)
	if d.cached != nil {
		d.cached.recall(since)
	}
}

// wasRevoked records a revocation. until returns when its grace ends.
func (d *held) wasRevoked(now Revocation, pushed bool, until func() time.Duration) {
	r := &d.rare.revoked
	if !pushed && r.count > 0 && now == r.last {
		return
	}
	r.last, r.due = now, r.call != nil
	r.count++
	if now.Grace > 0 {
		d.grace(until())
		d.askGrace()
	}
	if r.latest != nil && !d.rare.stopped {
		select {
		case <-r.latest:
		default:
		}
		r.latest <- r.last
	}
}

func graceOf(r *wire.Revocation) time.Duration {
	return time.Duration(r.GetGraceMs()) * time.Millisecond
}

// noticePushed handles a pushed notice and bounds its grace. The push does not say when the grace began; it
// was not before the last answered request was sent. If counting from there leaves less than half of the
// grace, half is assumed until the leader reports the rest, because on a live connection a push is not
// expected to take that long.
func (s *Session) noticePushed(n *wire.HoldNotice) {
	if d := s.holds.find(n.GetHoldId()); d != nil {
		d.noticedSince(n, s.proofAt)
	} else {
		s.noticeEarly(proto.CloneOf(n))
	}
}

// noticedSince handles a notice that was sent after since.
func (d *held) noticedSince(n *wire.HoldNotice, since time.Duration) {
	d.noticed(n.GetWanted(), n.GetRevocation(), true, since, func(grace uint32) time.Duration {
		half := time.Duration(grace) * time.Millisecond / 2
		return max(untilOf(since, grace), d.session.client.clock.Now()+half)
	})
}

// noticeEarly keeps a notice about a hold whose grant may still arrive.
func (a *attachment) noticeEarly(n *wire.HoldNotice) {
	s := a.session
	if !n.GetWanted() && n.GetRevocation() == nil || s.unanswered.n+len(s.waits) == 0 || len(s.notices) >= maxEarly {
		return
	}
	if s.notices == nil {
		s.notices = make(map[uint64]*wire.HoldNotice)
	}
	s.notices[n.GetHoldId()] = n
}

// askGrace asks the leader how much of the grace is left. It reports less if the hold's bound ends earlier.
func (d *held) askGrace() {
	r, nth, grace := d.rare, d.rare.revoked.count, d.rare.revoked.last.Grace
	d.askRemaining(func(end time.Duration) {
		if r.revoked.count == nth {
			d.grace(end - margin(grace))
			r.expires = r.bounded && end >= r.until
		}
	})
}

// askRemaining asks the leader how much time the hold has left, and calls then with the end of that, counted from the
// time the request was sent.
func (d *held) askRemaining(then func(end time.Duration)) {
	k := &call{kind: kindRead}
	k.request.Body = &wire.Request_VerifyToken{VerifyToken: &wire.VerifyTokenRequest{Name: d.name, Token: d.token.Load()}}
	k.after = func() {
		holder := k.response.GetVerifyToken().GetHolder()
		if k.err == nil && d.gone == nil && holder.GetHoldId() == d.id && holder.RemainingHoldMs != nil {
			then(k.sentAt + time.Duration(holder.GetRemainingHoldMs())*time.Millisecond)
		}
	}
	d.session.client.submit(k)
}

// deliver calls the functions for the notices that are due. They do not delay each other.
func (n *notices) deliver(c *Client) {
	if n.wanted.due {
		n.wanted.outlet.next = n.callWanted
		c.wake(&n.wanted.outlet)
	}
	if n.revoked.due {
		n.revoked.outlet.next = n.callRevoked
		c.wake(&n.revoked.outlet)
	}
}

// callWanted returns the call of OnWanted's function if it is due.
func (n *notices) callWanted() func() {
	if n.stopped || !n.wanted.due {
		return nil
	}
	n.wanted.due = false
	return n.wanted.call
}

// callRevoked returns the call of OnRevoked's function for the last revocation if it is due.
func (n *notices) callRevoked() func() {
	if n.stopped || !n.revoked.due {
		return nil
	}
	n.revoked.due = false
	last := n.revoked.last
	return func() { n.revoked.call(last) }
}

// holdLost handles a report that a hold ended while its session is alive.
func (s *Session) holdLost(lost *wire.HoldLost) {
	err := ErrHoldExpired
	if lost.GetReason() != wire.HoldLost_EXPIRED {
		err = forced(lost.GetMessage())
	}
	d := s.holds.find(lost.GetHoldId())
	if d == nil {
		if s.unanswered.n+len(s.waits) > 0 && len(s.early) < maxEarly {
			if s.early == nil {
				s.early = make(map[uint64]error)
			}
			s.early[lost.GetHoldId()] = err // its grant may still arrive
		}
		return
	}
	d.lose(err)
	if !d.releasing() {
		d.forget()
	}
}

// maxEarly bounds the holds whose loss was reported before their grant arrived.
const maxEarly = 4096

// lostAlready returns an error if an arriving grant is no longer held: because its loss was reported first,
// or because an attach showed that the hold is gone. The error is ErrHoldExpired if the hold's own bound
// may have passed by now.
func (a *attachment) lostAlready(k *call, result *wire.Result) error {
	id := result.GetHoldId()
	if err := a.session.early[id]; err != nil {
		delete(a.session.early, id)
		return err
	}
	if a.resumed.holds != nil && result.GetRevision() <= a.resumed.revision && !a.resumed.holds[id] {
		if ms := k.acquired.acquire.MaxHoldMs; ms != 0 && a.session.client.clock.Now() >= untilOf(k.firstAt, ms) {
			return ErrHoldExpired
		}
		return errMissing
	}
	return nil
}
