package client

import (
	"context"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// extras is state that few holds need: a bound of their own, an upgrade, or notices. It is guarded by the
// client's mutex.
type extras struct {
	bounded   bool
	until     time.Duration // when the hold ends by itself, if bounded
	by        uint64        // revision of the request that set the bound
	maxHold   uint32        // in milliseconds; 0 if none
	graced    bool          // a revocation's grace is running in addition to the bound
	graceEnd  time.Duration // when the hold is forced away, if graced
	expires   bool          // the leader reported that the bound ends before the grace
	extends   []pendingExtend
	upgrades  int                     // in flight
	undecided []*call                 // calls refused with NOT_HELD while an upgrade may have changed the token
	grantedAt map[*Hold]time.Duration // by handle, for [Hooks]

	notices
}

// pendingExtend is an Extend in flight. It may shorten the hold, so until bounds the hold as well.
type pendingExtend struct {
	call  *call
	until time.Duration
}

// leastMaxHold is the smallest bound of a hold, in milliseconds. With a smaller one the client's safety
// margin would leave no time.
const leastMaxHold = 100

// extra returns the hold's extras, creating it on first use.
func (d *held) extra() *extras {
	if d.rare == nil {
		d.rare = &extras{}
	}
	return d.rare
}

// deadline returns when the hold ends by itself. The leader counts from the time it applies the request
// that starts the bound. The client counts from the time it sent that request, and ends earlier by the
// margin, so it never ends the hold after the leader does.
func (d *held) deadline() time.Duration {
	at := never
	if d.rare == nil {
		return at
	}
	if d.rare.bounded {
		at = d.rare.until
		if d.cached != nil {
			at = min(at, d.cached.expiry())
		}
	}
	if d.rare.graced {
		at = min(at, d.rare.graceEnd)
	}
	for _, e := range d.rare.extends {
		at = min(at, e.until)
	}
	return at
}

// bound sets the deadline started by the request with that revision.
func (d *held) bound(until time.Duration, by uint64) {
	r := d.extra()
	r.bounded, r.until, r.by = true, until, by
	d.watchBound()
}

// grace sets when a revocation forces the hold away. It never prolongs the hold.
func (d *held) grace(end time.Duration) {
	r := d.extra()
	r.graced, r.graceEnd, r.expires = true, end, false
	d.watchBound()
}

// watchBound adds the hold to those whose deadline the session watches.
func (d *held) watchBound() {
	s, at := d.session, d.deadline()
	if d.gone != nil || at == never {
		return
	}
	if s.bounded == nil {
		s.bounded = make(map[*held]struct{})
	}
	s.bounded[d] = struct{}{}
	s.boundAt = min(s.boundAt, at)
	s.wakeBy(at)
}

// expireHolds loses the holds whose deadline has passed. The cluster expires them soon after. Releasing
// them here would skip their lock-delay.
func (l *lifetime) expireHolds(now time.Duration) {
	l.boundAt = never
	for d := range l.bounded {
		at := d.deadline()
		switch {
		case now < at:
			l.boundAt = min(l.boundAt, at)
		case d.rare.graced && d.rare.graceEnd <= at && !d.rare.expires:
			d.lose(forced(d.rare.revoked.last.Reason))
		default:
			d.lose(ErrHoldExpired)
			if d.cached != nil {
				d.cached.expire()
			}
		}
	}
}

// untilOf returns the client's end of a period of ms milliseconds that starts on the cluster at since or
// later.
func untilOf(since time.Duration, ms uint32) time.Duration {
	d := time.Duration(ms) * time.Millisecond
	return since + d - margin(d)
}

// boundGrant bounds a hold that was granted after since. A hold granted after a wait may have been granted
// long ago, so its time is restarted with an extend immediately. If too little time is certain to remain,
// the caller has to wait for the answer to that extend; boundGrant reports whether it does.
func (h *Hold) boundGrant(k *call, result *wire.Result, since time.Duration) bool {
	d, s := h.held, h.held.session
	ms := k.acquired.acquire.MaxHoldMs
	d.extra().maxHold = ms
	until := untilOf(since, ms)
	if !k.queued && until-s.client.clock.Now() > 0 || k.abandoned {
		d.bound(until, result.GetRevision())
		return false
	}
	if r := d.cached; r != nil && r.serves(ms, r.lockDelayMs) {
		r.bound(d) // its time on the cluster starts with the first waiter
		return false
	}
	extend := h.newExtend(ms)
	scarce := until-s.client.clock.Now() < time.Duration(ms)*time.Millisecond/2
	if scarce {
		s.removeFromLists(k)
		k.confirming = true
		revision := result.GetRevision() // the result is not valid when after runs
		extend.after = func() { s.confirmed(k, until, revision) }
	} else {
		d.bound(until, result.GetRevision())
	}
	h.startExtend(extend, ms)
	s.addCall(extend)
	s.client.submit(extend)
	return scarce
}

// confirmed finishes an acquire whose caller waited for its hold's time to be restarted.
func (s *Session) confirmed(k *call, until time.Duration, revision uint64) {
	if k.finished {
		return
	}
	h, now := k.hold, s.client.clock.Now()
	if !h.held.rare.bounded && h.ended == nil {
		h.held.bound(until, revision)
		if now >= until {
			h.held.lose(ErrHoldExpired)
			h.startRelease() // no caller has seen it
		}
	}
	if h.ended != nil {
		k.hold, k.err = nil, h.ended
	}
	if h.ended == ErrNotHeld { // its time had passed before it could be restarted
		k.err = ErrHoldExpired
	}
	s.client.finish(k)
}

// Extend restarts the hold's own bound: the hold ends d from now, or after its previous max_hold if d is 0.
// It returns ErrFailedPrecondition if d is 0 and the hold has no bound, and while a revocation's grace is
// running. If ctx ends first, the error matches ctx's error and ErrUncertain, and the hold ends no later
// than d allows. d is rounded up to a millisecond.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	ms, err := millis("max_hold", d)
	if err != nil {
		return err
	}
	if ms != 0 && ms < leastMaxHold {
		return invalid("max_hold %v: give 100 ms to 24 days, or 0 for what it was", d)
	}
	c := h.held.session.client
	c.mu.Lock()
	if ms == 0 && h.held.rare != nil {
		ms = h.held.rare.maxHold
	}
	c.unlock()
	k := h.newExtend(ms)
	return h.request(ctx, k, func() { h.startExtend(k, ms) })
}

func (h *Hold) newExtend(ms uint32) *call {
	k := &call{kind: kindExtend, hold: h}
	k.request.Body = &wire.Request_Extend{Extend: &wire.Extend{HoldId: h.held.id, Token: h.Token(), MaxHoldMs: ms}}
	return k
}

// startExtend makes the shorter of the old and the new time apply, from the time the extend may be applied.
func (h *Hold) startExtend(k *call, ms uint32) {
	if h.held.cached != nil {
		h.held.cached.giveBack() // from the extend on, its time runs on the cluster
	}
	if ms == 0 {
		return
	}
	r := h.held.extra()
	r.extends = append(r.extends, pendingExtend{k, untilOf(h.held.session.client.clock.Now(), ms)})
	h.held.watchBound()
}

func (h *Hold) extendAnswered(k *call, result *wire.Result) {
	d := h.held
	switch result.GetStatus() {
	case wire.Status_NOT_HELD:
		if d.outdated(k) {
			return
		}
	case wire.Status_OK:
		if d.cached != nil {
			d.cached.extended = true
		}
		r, ms := d.extra(), k.request.GetExtend().GetMaxHoldMs()
		if ms != 0 && result.GetRevision() >= r.by {
			r.maxHold = ms
			d.bound(untilOf(k.firstAt, ms), result.GetRevision())
		}
	}
	h.answered(k, result)
}

// endExtend removes an Extend that was answered or will never be sent.
func (d *held) endExtend(k *call) {
	if d.rare != nil {
		d.rare.extends = slices.DeleteFunc(d.rare.extends, func(e pendingExtend) bool { return e.call == k })
	}
}
