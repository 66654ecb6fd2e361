package client

import (
	"context"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// rarity is what few holds have: a bound of their own, an upgrade, word from others who
// want them. The client's mutex guards it.
type rarity struct {
	bounded  bool
	until    time.Duration // when the hold is over by itself, if it is bounded
	by       uint64        // revision of the request that bounded it
	maxHold  uint32        // in milliseconds; 0 has none
	graced   bool          // a revocation's grace runs, beside the bound
	graceEnd time.Duration // when the hold is forced away, if it is graced
	expires  bool          // the leader said that the bound passes before the grace
	extends  []pendingExtend
	upgrades int     // under way
	limbo    []*call // refused with NOT_HELD while an upgrade may have changed the token

	notice      Notice
	revocations int // told so far
	call        func(Notice)
	latest      chan Notice // of Revoked; made when it is first asked for
	news        bool        // notice was not handed to call yet
	calling     bool
	hushed      bool
}

// pendingExtend is an Extend that is under way. It may shorten the time, so that until
// bounds the hold too.
type pendingExtend struct {
	call  *call
	until time.Duration
}

// leastMaxHold is the least bound of a hold, in milliseconds. Below it our margin would
// leave nothing.
const leastMaxHold = 100

// rarely is the hold's rarity, made when it is first needed.
func (d *held) rarely() *rarity {
	if d.rare == nil {
		d.rare = &rarity{}
	}
	return d.rare
}

// deadline is when the hold is over by itself. The leader's count begins when it applies
// what begins it, ours when that was sent at the latest, and ours ends earlier by the
// margin, so that it never ends after the leader's.
func (d *held) deadline() time.Duration {
	at := never
	if d.rare == nil {
		return at
	}
	if d.rare.bounded {
		at = d.rare.until
	}
	if d.rare.graced {
		at = min(at, d.rare.graceEnd)
	}
	for _, e := range d.rare.extends {
		at = min(at, e.until)
	}
	return at
}

// bound sets the deadline that a request of that revision began.
func (d *held) bound(until time.Duration, by uint64) {
	r := d.rarely()
	r.bounded, r.until, r.by = true, until, by
	d.watchBound()
}

// grace sets when a revocation forces the hold away. It never prolongs the hold.
func (d *held) grace(end time.Duration) {
	r := d.rarely()
	r.graced, r.graceEnd, r.expires = true, end, false
	d.watchBound()
}

// watchBound puts the hold among those whose time the session watches.
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

// expireHolds loses those whose time is over. The cluster will expire them soon after;
// to release them would skip their lock-delay.
func (s *Session) expireHolds(now time.Duration) {
	s.boundAt = never
	for d := range s.bounded {
		at := d.deadline()
		switch {
		case now < at:
			s.boundAt = min(s.boundAt, at)
		case d.rare.graced && d.rare.graceEnd <= at && !d.rare.expires:
			d.lose(forced(d.rare.notice.Reason))
		default:
			d.lose(ErrHoldExpired)
		}
	}
}

// untilOf is the client's end of a time that begins at since on the cluster, or later.
func untilOf(since time.Duration, ms uint32) time.Duration {
	d := time.Duration(ms) * time.Millisecond
	return since + d - margin(d)
}

// boundGrant bounds a hold that was granted after since. One that had waited may have
// been granted long ago as far as we know: its time is begun anew at once, and if too
// little is certain of it, its caller waits for that. It reports whether the caller does.
func (h *Hold) boundGrant(k *call, result *wire.Result, since time.Duration) bool {
	d, s := h.held, h.held.session
	ms := k.acquired.acquire.MaxHoldMs
	d.rarely().maxHold = ms
	until := untilOf(since, ms)
	if !k.queued && until-s.client.clock.Now() > 0 || k.abandoned {
		d.bound(until, result.GetRevision())
		return false
	}
	extend := h.newExtend(ms)
	scarce := until-s.client.clock.Now() < time.Duration(ms)*time.Millisecond/2
	if scarce {
		s.unbook(k)
		k.confirming = true
		revision := result.GetRevision() // the result is gone by then
		extend.after = func() { s.confirmed(k, until, revision) }
	} else {
		d.bound(until, result.GetRevision())
	}
	h.startExtend(extend, ms)
	s.enlist(extend)
	s.client.submit(extend)
	return scarce
}

// confirmed ends an acquire whose caller waited for its hold's time to begin anew.
func (s *Session) confirmed(k *call, until time.Duration, revision uint64) {
	if k.finished {
		return
	}
	h, now := k.hold, s.client.clock.Now()
	if !h.held.rare.bounded && h.ended == nil {
		h.held.bound(until, revision)
		if now >= until {
			h.held.lose(ErrHoldExpired)
			h.startRelease() // nobody has seen it
		}
	}
	if h.ended != nil {
		k.hold, k.err = nil, h.ended
	}
	if h.ended == ErrNotHeld { // its time was over before it could be begun anew
		k.err = ErrHoldExpired
	}
	s.client.finish(k)
}

// Extend begins the hold's own time anew, with d from now on, or with what it had if d is
// 0. It returns ErrFailedPrecondition if d is 0 and the hold has no bound, and while a
// revocation's grace runs. If ctx ends first the error matches ctx's and ErrUncertain; the
// hold then ends no later than d allows. d is rounded up to a millisecond.
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

// startExtend counts with the shorter time from the moment that it may be applied.
func (h *Hold) startExtend(k *call, ms uint32) {
	if ms == 0 {
		return
	}
	r := h.held.rarely()
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
		r, ms := d.rarely(), k.request.GetExtend().GetMaxHoldMs()
		if ms != 0 && result.GetRevision() >= r.by {
			r.maxHold = ms
			d.bound(untilOf(k.firstAt, ms), result.GetRevision())
		}
	}
	h.answered(k, result)
}

// endExtend takes an Extend that is over out of the books: it was answered, or will never be sent.
func (d *held) endExtend(k *call) {
	if d.rare != nil {
		d.rare.extends = slices.DeleteFunc(d.rare.extends, func(e pendingExtend) bool { return e.call == k })
	}
}
