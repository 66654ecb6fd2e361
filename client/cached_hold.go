package client

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// mostIdleHolds bounds the idle holds that a heartbeat reports.
const mostIdleHolds = 1_024

// cachedHold is a hold that the session keeps while it is unused. Each local grant has a held of its own, with the
// hold's id and the next of its tokens, which takes the place of the former one in the session's holdings. It is
// guarded by the client's mutex.
type cachedHold struct {
	lock        *cachedLock
	held        *held  // the latest local grant
	owner       uint64 // the owner key on the cluster
	next, last  uint64 // tokens
	maxHoldMs   uint32
	lockDelayMs uint32
	keepFor     time.Duration // while it is unused
	usedAt      time.Duration // when the latest local hold ended
	over        bool          // nothing is granted locally any more
	recalled    bool          // others wait, or an operator has revoked it
	recalledAt  time.Duration // no later than the recall
	extended    bool          // its max_hold runs on the cluster
	nested      bool          // a call has acted as its owner since the last local grant
}

// idle reports whether there is no local holder.
func (r *cachedHold) idle() bool { return r.held.first == nil }

// serves reports whether the hold can be granted to a call with these options now. The session must be alive. With a
// max_hold, at least half of it must remain even if the cluster's time has begun right after the last answer.
func (r *cachedHold) serves(maxHoldMs, lockDelayMs uint32) bool {
	s := r.lock.session
	c, now := s.client, s.client.mu.now()
	return !r.over && s.conn != nil && s.conn == c.conn && s.conn.err == nil && s.state == Active && now < s.overdue() &&
		r.maxHoldMs == maxHoldMs && r.lockDelayMs == lockDelayMs && (maxHoldMs == 0 || now < s.proofAt+r.maxHold()/2)
}

func (r *cachedHold) maxHold() time.Duration { return time.Duration(r.maxHoldMs) * time.Millisecond }

// grant makes the next local grant.
func (r *cachedHold) grant(ctx context.Context, wanted func(), revoked func(Revocation)) *Hold {
	s, last := r.lock.session, r.held
	h := &firstHold{of: held{
		session: s, name: last.name, id: last.id, revision: last.revision, changed: last.revision,
		owner: r.owner, mode: Exclusive, cached: r,
	}}
	d := &h.of
	h.held, d.first = d, &h.Hold
	d.token.Store(r.next)
	r.next++
	s.holds.replace(last, d)
	r.held = d
	if wanted != nil || revoked != nil {
		n := d.extra()
		n.wanted.call, n.revoked.call = wanted, revoked
	}
	if r.maxHoldMs != 0 {
		r.bound(d)
	}
	h.askedBy(ctx)
	return &h.Hold
}

// bound starts the max_hold of a local hold. The answer to the next heartbeat postpones expiry.
func (r *cachedHold) bound(d *held) {
	s := d.session
	d.extra().maxHold = r.maxHoldMs
	d.bound(untilOf(s.client.mu.now(), r.maxHoldMs), d.revision)
	s.heartbeatBy(s.proofAt + r.maxHold()/4)
}

// unlock ends a local hold and keeps the hold with the session. It returns false if the hold is to be released.
func (r *cachedHold) unlock(h *Hold) bool {
	d, s := h.held, r.lock.session
	switch {
	case r.over || d != r.held || d.first != h || h.next != nil || h.ended != nil:
		return false
	case r.next > r.last:
		r.lock.size = min(r.lock.size*tokensGrowth, mostTokens)
		return false
	case r.nested && s.owns(r.owner, d):
		return false
	}
	r.nested = false
	h.end(ErrReleased)
	h.released = true
	d.drop(h)
	d.stopNotices()
	d.owner = 0 // see ownerKey
	r.usedAt = s.client.mu.now()
	r.grantNext()
	return true
}

// grantNext grants the hold to the first call that waits locally. If the call cannot have it, the lock is acquired anew.
func (r *cachedHold) grantNext() {
	l := r.lock
	if l.waiting.n == 0 {
		l.session.watchIdle(r.usedAt + r.keepFor)
		return
	}
	next := &l.waiting.head.acquired.acquire
	if r.serves(next.MaxHoldMs, next.LockDelayMs) {
		l.grant(l.leaveQueue())
		return
	}
	r.release()
}

// recall ends all local granting, because others wait or an operator has revoked the hold, at some time after since.
// It may be repeated.
func (r *cachedHold) recall(since time.Duration) {
	first := !r.recalled
	if first {
		r.recalled, r.recalledAt = true, since
		r.lock.contend()
	}
	if r.idle() {
		r.release()
		return
	}
	r.giveBack()
	if first && r.maxHoldMs != 0 {
		r.held.askRemaining(func(end time.Duration) { r.recalledAt = max(r.recalledAt, end-r.maxHold()) })
	}
}

// release releases the hold in the background. There must be no local holder.
func (r *cachedHold) release() { r.held.again().startRelease() }

// giveBack ends all local granting: the hold is being released, will be when its local holder unlocks it, or is lost.
func (r *cachedHold) giveBack() {
	l := r.lock
	r.over = true
	if l.hold != r {
		return
	}
	l.hold = nil
	if r.recalled {
		l.sendWaiting()
		return
	}
	l.askNext()
}

// expiry returns the earliest time at which the cluster ends the hold because of its max_hold, which it counts from the
// first waiter on. If the session was not notified of one, none came before the last answered request was sent.
func (r *cachedHold) expiry() time.Duration {
	switch {
	case r.extended:
		return never
	case r.recalled:
		return untilOf(r.recalledAt, r.maxHoldMs)
	}
	return untilOf(r.lock.session.proofAt, r.maxHoldMs)
}

// expire makes the cluster end the hold, whose local holder has exceeded its max_hold, with the lock-delay.
func (r *cachedHold) expire() {
	h := r.held.first
	if h == nil {
		return
	}
	k := h.newExtend(leastMaxHold)
	r.lock.session.addCall(k)
	r.lock.session.client.submit(k)
}

// ownerKey returns the owner as which a call acts whose ctx descends from the hold. After a local hold has ended, the
// next one has its owner key, so such a call then gets a key of its own.
func (d *held) ownerKey() uint64 {
	switch {
	case d.owner == 0:
		d.session.owners++
		d.owner = 1<<63 | d.session.owners
	case d.cached != nil:
		d.cached.nested = true
	}
	return d.owner
}

// owns reports whether anything besides d stands under an owner key.
func (s *Session) owns(owner uint64, d *held) bool {
	for other := range s.holds.all {
		if other != d && other.owner == owner {
			return true
		}
	}
	for _, k := range s.waits {
		if k.acquired != nil && k.acquired.acquire.Owner == owner {
			return true
		}
	}
	for _, l := range []*callList{&s.unanswered, &s.unsent} {
		for k := l.head; k != nil; k = k.links[sessionList].next {
			if k.acquired != nil && k.acquired.acquire.Owner == owner {
				return true
			}
		}
	}
	return false
}

// watchIdle makes the session look for unused holds by that time.
func (s *Session) watchIdle(at time.Duration) {
	if at < s.idleAt {
		s.idleAt = at
		s.wakeBy(at)
	}
}

// releaseIdle releases the holds that were unused for too long.
func (s *Session) releaseIdle(now time.Duration) {
	s.idleAt = never
	for _, l := range s.cached {
		r := l.hold
		if r == nil || !r.idle() {
			continue
		}
		if at := r.usedAt + r.keepFor; now < at {
			s.idleAt = min(s.idleAt, at)
		} else {
			r.release()
		}
	}
}

// idleHolds returns the cached holds that are not in use, for a heartbeat.
func (s *Session) idleHolds() (idle []*wire.IdleHold) {
	for _, l := range s.cached {
		if r := l.hold; r != nil && r.idle() && len(idle) < mostIdleHolds {
			unused := s.client.mu.now() - r.usedAt
			idle = append(idle, &wire.IdleHold{HoldId: r.held.id, IdleMs: uint64(unused.Milliseconds())})
		}
	}
	return idle
}
