package client

import (
	"context"
	"time"
)

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

// serves reports whether the hold can be granted now to a call with these options: the session, which is alive, must be
// attached and not in Jeopardy. With a max_hold, at least half of it must remain even if the cluster's time has begun
// right after the last answer.
func (r *cachedHold) serves(maxHoldMs, lockDelayMs uint32) bool {
	s := r.lock.session
	c, now := s.client, s.client.mu.now()
	return s.conn != nil && s.conn == c.conn && s.conn.err == nil &&
		now < s.overdue() &&
		r.maxHoldMs == maxHoldMs && r.lockDelayMs == lockDelayMs &&
		(maxHoldMs == 0 || now < s.proofAt+r.maxHold()/2)
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
	if r.next > r.last {
		r.renew()
	} else {
		r.grantNext()
	}
	return true
}

// renew releases a hold whose tokens are used up, and acquires a larger range in the same write, so that both take one
// commit. The acquire belongs to the first call that waits locally or, if there is none, to nobody: it makes one attempt.
func (r *cachedHold) renew() {
	l := r.lock
	l.size = min(l.size*tokensGrowth, mostTokens)
	var k *acquireCall
	if l.waiting.n > 0 {
		k = l.leaveQueue()
	} else {
		k = newAcquire(context.Background(), l.session.client).one(l.name)
		k.of, k.abandoned, k.renewal, k.acquire.WaitForever = l, true, true, false
		k.acquire.MaxHoldMs, k.acquire.LockDelayMs = r.maxHoldMs, r.lockDelayMs
		k.cached.IdleMs = uint32(r.keepFor / time.Millisecond)
	}
	l.prepare(k)
	l.asking = k
	l.session.client.prepare(&k.call)
	l.session.client.place(&k.call)
	r.release()
}

// grantNext grants the hold to the first call that waits locally. If the call cannot have it, the lock is acquired again.
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
	first, idle := !r.recalled, r.idle()
	if first {
		r.recalled, r.recalledAt = true, since
	}
	if idle {
		r.release()
	} else {
		r.giveBack()
	}
	if !first {
		return
	}
	r.lock.contend() // after the release was sent
	if !idle && r.maxHoldMs != 0 {
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
	if !r.recalled {
		l.askNext()
	}
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
