package client

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// firstTokens is the number of tokens that a session asks for at first. tokensGrowth multiplies it when they are
	// used up, up to mostTokens.
	firstTokens  = 64
	tokensGrowth = 8
	mostTokens   = 16_384
	// calmGrants is how many grants without contention make a session cache a lock again after a recall.
	calmGrants = 4
	// mostCached bounds the locks that a session keeps unused or remembers the use of.
	mostCached = 1_024
)

// cachedLock is a lock for which a session uses [WithCached]. It is guarded by the client's mutex.
//
// While others want the lock as well, a cached hold would be recalled at once, which takes a commit more than a hold
// that is not cached. So after a recall the session acquires the lock without caching it, until several grants
// in a row met no other session.
type cachedLock struct {
	session *Session
	name    string
	hold    *cachedHold  // nil unless it may be granted locally
	asking  *acquireCall // the acquire whose outcome decides whether the calls in waiting can be served locally
	waiting callList     // calls that wait locally, in the order of their arrival
	calls   int          // unfinished calls to the cluster
	claims  int          // those of them that wait in the cluster's queue
	size    uint32       // number of tokens to ask for; 1 means not to cache
	calm    int          // grants in a row that met no other session, while size is 1
}

// lockCached is [Session.Lock] with WithCached.
func (s *Session) lockCached(ctx context.Context, name string, o *acquireOptions) (*Hold, error) {
	if err := o.checkCached(); err != nil {
		return nil, err
	}
	if s.client.cfg.Hooks.Acquire == nil && ctx.Err() == nil {
		if h, err := s.grantLocally(ctx, name, o); h != nil || err != nil {
			return h, err
		}
	}
	k := newAcquire(ctx, s.client).one(name)
	if err := o.apply(k); err != nil {
		return nil, err
	}
	return s.acquire(ctx, k)
}

// checkCached refuses options that cannot be combined with WithCached.
func (o *acquireOptions) checkCached() error {
	switch {
	case o.idle <= 0 || o.idle > math.MaxUint32*time.Millisecond:
		return invalid("idle %v: give the time for which the session keeps the lock unused, 1 ms to 49 days", o.idle)
	case o.wait < 0:
		return invalid("wait %v: give 0 to 49 days", o.wait)
	case o.reentrant:
		return invalid("WithCached and Reentrant exclude each other: leave one out")
	case len(o.value) > 0:
		return invalid("WithCached and WithValue exclude each other: leave one out")
	case o.shared, o.unfair:
		return invalid("WithCached needs an exclusive lock in FIFO order: leave WithShared and WithUnfair out")
	}
	return nil
}

// grantLocally grants a cached hold that nobody uses. It returns nil if the call has to go another way.
func (s *Session) grantLocally(ctx context.Context, name string, o *acquireOptions) (*Hold, error) {
	s.client.mu.Lock()
	defer s.client.unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	l := s.cached[name]
	if l == nil || l.hold == nil || !l.hold.idle() || !l.hold.serves(millisOf(o.maxHold), millisOf(o.lockDelay)) || s.ownerOf(ctx) != 0 {
		return nil, nil
	}
	return l.hold.grant(ctx, o.wanted, o.revoked), nil
}

// millisOf is millis for a time that is checked elsewhere.
func millisOf(d time.Duration) uint32 { return uint32((d + time.Millisecond - 1) / time.Millisecond) }

// cachedLock returns the record of a lock.
func (s *Session) cachedLock(name string) *cachedLock {
	if l := s.cached[name]; l != nil {
		return l
	}
	if s.cached == nil {
		s.cached = map[string]*cachedLock{}
	}
	if len(s.cached) >= max(mostCached, s.cachedMost) {
		s.trimCached()
	}
	l := &cachedLock{session: s, name: name, size: firstTokens}
	s.cached[name] = l
	return l
}

// trimCached releases those of the idle holds that were unused for the longest time, and forgets the locks that the
// session does not use. It is called again once the number of locks has doubled, so its cost is a constant per lock.
func (s *Session) trimCached() {
	var idle []*cachedHold
	for name, l := range s.cached {
		switch {
		case l.hold != nil && l.hold.idle():
			idle = append(idle, l.hold)
		case l.hold == nil && l.waiting.n+l.calls == 0:
			delete(s.cached, name)
		}
	}
	slices.SortFunc(idle, func(a, b *cachedHold) int { return cmp.Compare(a.usedAt, b.usedAt) })
	for _, r := range idle[:max(0, len(idle)-mostCached/2)] {
		r.release()
		delete(s.cached, r.lock.name)
	}
	s.cachedMost = 2 * len(s.cached)
}

// enter starts a call: it is granted locally, waits locally, or goes to the cluster.
func (l *cachedLock) enter(k *acquireCall) error {
	k.of = l
	if r := l.hold; r != nil && r.idle() && !r.serves(k.acquire.MaxHoldMs, k.acquire.LockDelayMs) {
		r.release() // otherwise the call would wait for it on the cluster
	}
	switch r := l.hold; {
	case r == nil && (l.asking == nil || k.tries()):
		l.ask(k)
	case r != nil && r.idle():
		l.grant(k)
	case k.tries():
		return &StatusError{StatusNotAcquired, "another caller of this session holds the lock"}
	default:
		l.waitLocally(k)
	}
	return nil
}

// tries reports whether the call makes one attempt without waiting.
func (k *acquireCall) tries() bool { return !k.acquire.WaitForever && k.acquire.WaitMs == 0 }

// grant grants the hold to a call locally.
func (l *cachedLock) grant(k *acquireCall) {
	k.hold = l.hold.grant(k.ctx, k.wanted, k.revoked)
	l.session.client.finish(&k.call)
}

// waitLocally queues a call behind the present local holder, or until it is known that the session gets the lock.
func (l *cachedLock) waitLocally(k *acquireCall) {
	l.waiting.push(&k.call)
	if k.acquire.WaitForever {
		return
	}
	c, wait := l.session.client, time.Duration(k.acquire.WaitMs)*time.Millisecond
	k.until = c.mu.now() + wait
	k.limit = c.clock.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.unlock()
		if k.list == &l.waiting {
			c.fail(&k.call, &StatusError{StatusTimeout, "other callers of this session hold the lock or wait for it"})
		}
	})
	k.after = func() { k.limit.Stop() }
}

// leaveQueue ends the local wait of the first call.
func (l *cachedLock) leaveQueue() *acquireCall {
	k := l.waiting.pop().acquired
	if k.limit != nil {
		k.limit.Stop()
	}
	return k
}

// ask sends a call to the cluster. Later calls wait for its first answer, which may allow them to be served locally.
func (l *cachedLock) ask(k *acquireCall) {
	if k.limit != nil {
		k.acquire.WaitMs = max(1, millisOf(max(0, k.until-l.session.client.mu.now())))
	}
	if l.size > 1 {
		k.cached.Acquire, k.cached.Tokens = &k.acquire, l.size
		k.cachedBody.AcquireCached = &k.cached
		k.request.Body = &k.cachedBody
	}
	if l.asking == nil && !k.tries() {
		l.asking = k
	}
	l.calls++
	k.after = func() { l.answered(k) }
	l.session.addCall(&k.call)
	l.session.client.submit(&k.call)
}

// queued handles the answer that a call waits on the cluster. If only this session has the lock and waits for it, later
// calls still wait locally, because nobody else is ahead of them.
func (l *cachedLock) queued(k *acquireCall, result *wire.Result) {
	if !k.claims {
		k.claims = true
		l.claims++
	}
	contended := result.GetPosition() > uint64(l.claims)
	for _, h := range result.GetHolders() {
		contended = contended || h.GetSessionId() != l.session.id
	}
	if contended {
		l.contend()
		l.sendWaiting()
	}
}

// contend records that another session wants the lock as well.
func (l *cachedLock) contend() {
	l.asking = nil
	l.size, l.calm = 1, 0
}

// answered handles the end of a call on the cluster.
func (l *cachedLock) answered(k *acquireCall) {
	l.calls--
	if k.claims {
		l.claims--
	}
	if l.asking == k {
		l.asking = nil
		if k.err == nil && l.size == 1 {
			l.calm++
		}
		if l.calm == calmGrants {
			l.size, l.calm = firstTokens, 0
		}
	}
	if l.hold == nil && l.session.state != Lost {
		l.askNext()
	}
}

// askNext sends the first of the calls that wait locally to the cluster. The others wait for its answer.
func (l *cachedLock) askNext() {
	if l.waiting.n > 0 && l.asking == nil {
		l.ask(l.leaveQueue())
	}
}

// sendWaiting sends all calls that wait locally to the cluster, where each has its place in the queue.
func (l *cachedLock) sendWaiting() {
	for l.waiting.n > 0 {
		l.ask(l.leaveQueue())
		l.asking = nil
	}
}

// keep makes a hold that was just granted a cached one.
func (l *cachedLock) keep(d *held, op *wire.AcquireCached) {
	first := d.token.Load()
	r := &cachedHold{
		lock: l, held: d, owner: d.owner, next: first + 1, last: first + uint64(op.GetTokens()) - 1,
		maxHoldMs: op.GetAcquire().GetMaxHoldMs(), lockDelayMs: op.GetAcquire().GetLockDelayMs(),
		keepFor: time.Duration(op.GetIdleMs()) * time.Millisecond,
	}
	d.cached, l.hold = r, r
}

// failLocal fails the calls that wait locally, because the session is lost.
func (s *Session) failLocal(reason error) {
	for _, l := range s.cached {
		for l.waiting.n > 0 {
			s.client.fail(&l.leaveQueue().call, reason)
		}
	}
	clear(s.cached)
}
