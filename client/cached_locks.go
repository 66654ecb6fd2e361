package client

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// mostCached bounds the locks that a session keeps unused or remembers the use of.
	mostCached = 1_024
	// mostIdleHolds bounds the idle holds that a heartbeat reports.
	mostIdleHolds = 1_024
)

// cachedLocks are the locks for which a session uses [WithCached]. It is guarded by the client's mutex.
type cachedLocks struct {
	session *Session

	cached map[string]*cachedLock // by name; nil until needed
	trimAt int                    // number of locks at which trimCached is due again
	owners uint64                 // the owner keys that ownerKey has assigned
}

// lockCached is [Session.Lock] with WithCached.
func (t *cachedLocks) lockCached(ctx context.Context, name string, o *acquireOptions) (*Hold, error) {
	if err := o.checkCached(); err != nil {
		return nil, err
	}
	if t.session.client.cfg.Hooks.Acquire == nil && ctx.Err() == nil {
		if h, err := t.grantLocally(ctx, name, o); h != nil || err != nil {
			return h, err
		}
	}
	k := newAcquire(ctx, t.session.client).one(name)
	if err := o.apply(k); err != nil {
		return nil, err
	}
	return t.session.acquire(ctx, k)
}

// grantLocally grants a cached hold that nobody uses. It returns nil if the call has to go another way.
func (t *cachedLocks) grantLocally(ctx context.Context, name string, o *acquireOptions) (*Hold, error) {
	t.session.client.mu.Lock()
	defer t.session.client.unlock()
	if err := t.session.usable(); err != nil {
		return nil, err
	}
	l := t.cached[name]
	if len(t.session.client.ends.waiting) >= mostEnds || l == nil || l.hold == nil || !l.hold.idle() || !l.hold.serves(millisOf(o.maxHold), millisOf(o.lockDelay)) || t.ownerOf(ctx) != 0 {
		return nil, nil
	}
	return l.hold.grant(ctx, o.wanted, o.revoked), nil
}

// ownerOf returns the owner of the hold that a call's ctx descends from, or 0 if the call is a separate owner.
func (t *cachedLocks) ownerOf(ctx context.Context) uint64 {
	outer, ok := ctx.Value(holdKey{}).(*Hold)
	if !ok || outer.held.session != t.session {
		return 0
	}
	return outer.held.ownerKey()
}

// cachedLock returns the record of a lock.
func (t *cachedLocks) cachedLock(name string) *cachedLock {
	if l := t.cached[name]; l != nil {
		return l
	}
	if t.cached == nil {
		t.cached = map[string]*cachedLock{}
	}
	if len(t.cached) >= max(mostCached, t.trimAt) {
		t.trimCached()
	}
	l := &cachedLock{session: t.session, name: name, size: firstTokens, enough: leastCalm}
	t.cached[name] = l
	return l
}

// trimCached releases those of the idle holds that were unused for the longest time, and forgets the locks that the
// session does not use. It is called again once the number of locks has doubled, so its cost is a constant per lock.
func (t *cachedLocks) trimCached() {
	var idle []*cachedHold
	for name, l := range t.cached {
		switch {
		case l.hold != nil && l.hold.idle():
			idle = append(idle, l.hold)
		case l.hold == nil && l.waiting.n+l.calls == 0:
			delete(t.cached, name)
		}
	}
	slices.SortFunc(idle, func(a, b *cachedHold) int { return cmp.Compare(a.usedAt, b.usedAt) })
	for _, r := range idle[:max(0, len(idle)-mostCached/2)] {
		r.release()
		delete(t.cached, r.lock.name)
	}
	t.trimAt = 2 * len(t.cached)
}

// failLocal fails the calls that wait locally, because the session is lost.
func (t *cachedLocks) failLocal(reason error) {
	for _, l := range t.cached {
		for l.waiting.n > 0 {
			t.session.client.fail(&l.leaveQueue().call, reason)
		}
	}
	clear(t.cached)
}

// owns reports whether anything besides d stands under an owner key.
func (t *cachedLocks) owns(owner uint64, d *held) bool {
	for other := range t.session.holds.all {
		if other != d && other.owner == owner {
			return true
		}
	}
	for _, k := range t.session.waits {
		if k.acquired != nil && k.acquired.acquire.Owner == owner {
			return true
		}
	}
	for _, l := range []*callList{&t.session.unanswered, &t.session.unsent} {
		for k := l.head; k != nil; k = k.links[sessionList].next {
			if k.acquired != nil && k.acquired.acquire.Owner == owner {
				return true
			}
		}
	}
	return false
}

// watchIdle makes the session look for unused holds by that time.
func (t *cachedLocks) watchIdle(at time.Duration) {
	if at < t.session.idleAt {
		t.session.idleAt = at
		t.session.wakeBy(at)
	}
}

// releaseIdle releases the holds that were unused for too long.
func (t *cachedLocks) releaseIdle(now time.Duration) {
	t.session.idleAt = never
	for _, l := range t.cached {
		r := l.hold
		if r == nil || !r.idle() {
			continue
		}
		if at := r.usedAt + r.keepFor; now < at {
			t.session.idleAt = min(t.session.idleAt, at)
		} else {
			r.release()
		}
	}
}

// releaseUnused releases all holds that are not in use. It reports whether there were any.
func (t *cachedLocks) releaseUnused() (released bool) {
	for _, l := range t.cached {
		if r := l.hold; r != nil && r.idle() {
			r.release()
			released = true
		}
	}
	return released
}

// idleHolds returns the cached holds that are not in use, for a heartbeat.
func (t *cachedLocks) idleHolds() (idle []*wire.IdleHold) {
	for _, l := range t.cached {
		if r := l.hold; r != nil && r.idle() && len(idle) < mostIdleHolds {
			unused := t.session.client.mu.now() - r.usedAt
			idle = append(idle, &wire.IdleHold{HoldId: r.held.id, IdleMs: uint64(unused.Milliseconds())})
		}
	}
	return idle
}
