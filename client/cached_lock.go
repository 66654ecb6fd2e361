package client

import (
	"math"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// firstTokens is the number of tokens that a session asks for at first. tokensGrowth multiplies it when they are
	// used up, up to mostTokens.
	firstTokens  = 64
	tokensGrowth = 8
	mostTokens   = 16_384
	// leastCalm is how many grants in a row must have met no other session before a lock is cached again after a
	// recall. The number doubles, up to mostCalm, each time the lock was cached for less than shortUse.
	leastCalm = 4
	mostCalm  = 1_024
	shortUse  = 100 * time.Millisecond
)

// cachedLock is a lock for which a session uses [WithCached]. It is guarded by the client's mutex.
//
// While others want the lock as well, a cached hold would be recalled at once, which takes a commit more than a hold
// that is not cached. So after a recall the session acquires the lock without caching it, until enough grants in a row
// met no other session.
type cachedLock struct {
	session *Session
	name    string
	hold    *cachedHold   // nil unless it may be granted locally
	asking  *acquireCall  // the acquire whose outcome decides whether the calls in waiting can be served locally
	waiting callList      // calls that wait locally, in the order of their arrival
	calls   int           // unfinished calls to the cluster
	claims  int           // those of them that wait in the cluster's queue
	size    uint32        // number of tokens to ask for; 1 means not to cache
	calm    int           // grants in a row that met no other session, while size is 1
	enough  int           // the number of such grants after which the lock is cached again
	caching bool          // the lock was cached since the session last met another one
	since   time.Duration // when that began
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

// millisOf is millis for a time that is checked elsewhere.
func millisOf(d time.Duration) uint32 { return uint32((d + time.Millisecond - 1) / time.Millisecond) }

// enter starts a call: it is granted locally, waits locally, or goes to the cluster.
func (l *cachedLock) enter(k *acquireCall) error {
	k.of = l
	if r := l.hold; r != nil && r.idle() && !r.serves(k.acquire.MaxHoldMs, k.acquire.LockDelayMs) {
		r.release() // otherwise the call would wait for it on the cluster
	}
	switch r := l.hold; {
	case r == nil && l.asking == nil:
		l.ask(k)
	case r != nil && r.idle():
		l.grant(k)
	case k.tries() && (r != nil || l.asking.queued):
		return l.notAcquired()
	default:
		l.waitLocally(k)
	}
	return nil
}

func (l *cachedLock) notAcquired() error {
	return &StatusError{StatusNotAcquired, "another caller of this session holds the lock"}
}

// failTries ends the calls that make one attempt and wait only until it is known that another one has the lock.
func (l *cachedLock) failTries() {
	for at := l.waiting.head; at != nil; {
		k := at
		if at = k.links[lane].next; k.acquired.tries() {
			l.session.client.fail(k, l.notAcquired())
		}
	}
}

// tries reports whether the call makes one attempt without waiting.
func (k *acquireCall) tries() bool { return !k.acquire.WaitForever && k.acquire.WaitMs == 0 }

// grant grants the hold to a call locally.
func (l *cachedLock) grant(k *acquireCall) {
	k.hold = l.hold.grant(k.ctx, k.wanted, k.revoked)
	l.session.client.finish(&k.call)
	l.failTries()
}

// waitLocally queues a call behind the present local holder, or until it is known that the session gets the lock.
func (l *cachedLock) waitLocally(k *acquireCall) {
	l.waiting.push(&k.call)
	if k.acquire.WaitForever || k.tries() {
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
	l.prepare(k)
	if l.asking == nil {
		l.asking = k
	}
	l.session.client.submit(&k.call)
}

// prepare makes a call a request to the cluster.
func (l *cachedLock) prepare(k *acquireCall) {
	if k.limit != nil {
		k.acquire.WaitMs = max(1, millisOf(max(0, k.until-l.session.client.mu.now())))
	}
	if l.size > 1 {
		k.cached.Acquire, k.cached.Tokens = &k.acquire, l.size
		k.cachedBody.AcquireCached = &k.cached
		k.request.Body = &k.cachedBody
	}
	l.calls++
	k.after = func() { l.answered(k) }
	l.session.addCall(&k.call)
}

// queued handles the answer that a call waits on the cluster. If only this session has the lock and waits for it, later
// calls still wait locally, because nobody else is ahead of them.
func (l *cachedLock) queued(k *acquireCall, result *wire.Result) {
	if !k.claims {
		k.claims = true
		l.claims++
	}
	l.failTries()
	// Without the right to read the lock, the answer has no holders.
	contended := result.GetPosition() > uint64(l.claims) || len(result.GetHolders()) == 0
	for _, h := range result.GetHolders() {
		contended = contended || h.GetSessionId() != l.session.id
	}
	if contended {
		l.contend()
	}
}

// contend records that others want the lock as well, and gives all calls that wait locally their place in the queue.
func (l *cachedLock) contend() {
	l.size, l.calm = 1, 0
	l.stopCaching()
	l.asking = nil
	for l.waiting.n > 0 {
		l.ask(l.leaveQueue())
		l.asking = nil
	}
}

// stopCaching sets after how many calm grants the lock is cached again.
func (l *cachedLock) stopCaching() {
	switch {
	case !l.caching:
	case l.session.client.mu.now()-l.since < shortUse:
		l.enough = min(2*l.enough, mostCalm)
	default:
		l.enough = leastCalm
	}
	l.caching = false
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
		if l.calm == l.enough {
			l.size, l.calm = firstTokens, 0
		}
	}
	switch {
	case l.hold == nil && l.session.state != Lost:
		l.askNext()
	case l.hold != nil && !k.abandoned:
		l.failTries()
	}
}

// askNext sends the first of the calls that wait locally to the cluster. The others wait for its answer.
func (l *cachedLock) askNext() {
	if l.waiting.n > 0 && l.asking == nil {
		l.ask(l.leaveQueue())
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
	if !l.caching {
		l.caching, l.since = true, l.session.client.mu.now()
	}
}
