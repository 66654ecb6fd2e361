package client

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// cancelGrace is how long a caller whose ctx has ended still waits for the answer to its cancel request
// before it gets ErrUncertain.
const cancelGrace = 100 * time.Millisecond

// Lock waits for the lock as long as ctx allows, or as [WithWait] or [WithTry] says. If ctx ends first, the
// error matches ctx's error. It also matches ErrUncertain if the client does not know whether the lock was
// granted in the end; the session then releases the lock as soon as it knows. Other errors are
// ErrNotAcquired, ErrTimeout, ErrAlreadyHeld, ErrAlreadyQueued, ErrDeadlock, ErrMismatch, ErrSessionLost,
// ErrResourceExhausted and ErrInvalidArgument.
//
// A call whose ctx descends from a hold's context acts as the owner of that hold: a function that locks
// what its caller already holds gets ErrAlreadyHeld instead of waiting for itself. Otherwise each call is a
// separate owner.
func (s *Session) Lock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	if len(opts) == 0 {
		return s.acquire(ctx, newAcquire(ctx, s.client).one(name))
	}
	o := s.client.freeLists.optionsOf(opts)
	defer s.client.freeLists.keepOptions(o)
	if o.cached {
		return s.lockCached(ctx, name, o)
	}
	k := newAcquire(ctx, s.client).one(name)
	if err := o.apply(k); err != nil {
		return nil, err
	}
	return s.acquire(ctx, k)
}

// Do calls fn while it holds the lock, releases the lock, and returns fn's error. The ctx passed to fn ends
// with ctx and with the hold. If the lock was lost in the meantime, the error also matches the reason for
// that, whatever fn returned.
func (s *Session) Do(ctx context.Context, name string, fn func(ctx context.Context, token uint64) error, opts ...LockOption) error {
	return do(ctx, s, name, fn, opts)
}

// owner is a session that can acquire locks, supervised or not.
type owner interface {
	Lock(ctx context.Context, name string, opts ...LockOption) (*Hold, error)
	LockAll(ctx context.Context, specs []LockSpec, opts ...LockAllOption) (*Hold, error)
	Lost() <-chan struct{}
	Err() error
}

func do(ctx context.Context, s owner, name string, fn func(ctx context.Context, token uint64) error, opts []LockOption) error {
	hold, err := s.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return hold.Do(ctx, fn)
}

// LockAll acquires up to 64 locks with different names in one step, as one hold with one token, or none of
// them. The token is greater than that of every earlier grant of any of the locks. While the call waits it
// holds none of them and keeps its place in every queue, so two such calls cannot deadlock each other.
// LockAll also acquires permits of semaphores, alone or among other locks. In all other respects it is like
// Lock.
func (s *Session) LockAll(ctx context.Context, specs []LockSpec, opts ...LockAllOption) (*Hold, error) {
	if len(specs) == 0 {
		return nil, invalid("no locks: give 1 to 64")
	}
	k := newAcquire(ctx, s.client)
	for _, spec := range specs {
		k.acquire.Locks = append(k.acquire.Locks, spec.request(Exclusive))
	}
	if err := optionsOf(opts).apply(k); err != nil {
		return nil, err
	}
	return s.acquire(ctx, k)
}

// Names returns specs of exclusive locks for [Session.LockAll] and [Client.AcquireLease].
func Names(names ...string) []LockSpec {
	specs := make([]LockSpec, len(names))
	for i, name := range names {
		specs[i].Name = name
	}
	return specs
}

// newAcquire returns an acquire that waits as long as ctx allows.
func newAcquire(ctx context.Context, c *Client) *acquireCall {
	k := c.freeLists.acquire()
	k.kind, k.ctx = kindAcquire, ctx
	k.acquire.WaitForever = true
	k.body.Acquire = &k.acquire
	k.request.Body = &k.body
	k.acquired = k
	return k
}

// one makes k an acquire of one exclusive lock.
func (k *acquireCall) one(name string) *acquireCall {
	k.lock.Name, k.lock.Mode = name, wire.Mode_EXCLUSIVE
	k.locks[0] = &k.lock
	k.acquire.Locks = k.locks[:]
	return k
}

// send sends an acquire and waits for its outcome.
func (s *Session) send(ctx context.Context, k *acquireCall) (*Hold, error) {
	if err := checkLocks(k.acquire.Locks); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, stopped(ctx, nil)
	}
	c := s.client
	c.mu.Lock()
	if err := s.usable(); err != nil {
		c.unlock()
		return nil, err
	}
	k.acquire.Owner = s.ownerOf(ctx)
	if k.cached.IdleMs == 0 || k.acquire.Owner != 0 { // the hold of a known owner would be released at its unlock
		s.addCall(&k.call)
		c.submit(&k.call)
	} else if err := s.cachedLock(k.lock.Name).enter(k); err != nil {
		c.unlock()
		return nil, err
	}
	c.unlock()
	return c.awaitWait(ctx, &k.call)
}

// awaitWait waits for the outcome of a call that may be queued by the cluster.
func (t *requestTable) awaitWait(ctx context.Context, k *call) (*Hold, error) {
	if !k.await(ctx) {
		return t.stopWaiting(ctx, k)
	}
	return t.take(k)
}

// usable returns an error if the session can no longer make requests.
func (s *Session) usable() error {
	if !s.alive() {
		return s.reason
	}
	return nil
}

// take returns the outcome of a finished call. The caller has received the token from k.done.
func (t *requestTable) take(k *call) (*Hold, error) {
	hold, err := k.hold, k.err
	if k.acquired != nil && k.simple() {
		t.client.freeLists.keepAcquire(k.acquired)
	} else {
		t.client.freeLists.dones.Put(k.done)
	}
	return hold, err
}

// stopWaiting handles a caller whose ctx has ended before its call finished.
func (t *requestTable) stopWaiting(ctx context.Context, k *call) (*Hold, error) {
	t.client.mu.Lock()
	if k.finished {
		t.client.unlock()
		<-k.done
		return t.take(k)
	}
	k.abandoned = true
	switch {
	case k.confirming:
		t.finish(k)
		k.hold.asked = nil // no call has returned it
		k.hold.startRelease()
		t.client.unlock()
		<-k.done
		t.client.freeLists.dones.Put(k.done)
		return nil, stopped(ctx, nil)
	case k.queued:
		k.session.cancel(k)
	case !k.uncertain():
		known := t.unreached()
		t.finish(k)
		t.client.unlock()
		return nil, stopped(ctx, known)
	}
	done := k.done
	t.client.unlock()

	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	select {
	case <-done:
		return nil, stopped(ctx, nil)
	case <-grace.C:
	}
	t.client.mu.Lock()
	defer t.client.unlock()
	if k.finished {
		return nil, stopped(ctx, nil)
	}
	k.done = nil
	return nil, stopped(ctx, ErrUncertain)
}

// cancel asks the cluster to end a wait.
func (s *Session) cancel(wait *call) {
	if wait.cancelled {
		return
	}
	wait.cancelled = true
	k := &call{kind: kindCancel, target: wait}
	k.request.Body = &wire.Request_Cancel{Cancel: &wire.Cancel{AcquireSeq: wait.request.Seq}}
	s.addCall(k)
	s.client.submit(k)
}

func (s *Session) cancelAnswered(k *call, result *wire.Result) {
	c, wait := s.client, k.target
	switch result.GetStatus() {
	case wire.Status_RESOURCE_EXHAUSTED:
		k.session.renumber(k) // the cancel must not be dropped
		return
	case wire.Status_INTERNAL, wire.Status_INVALID_ARGUMENT, wire.Status_UNSUPPORTED:
		// The wait goes on. If it is granted, the hold is released then.
		wait.cancelled = false
		if wait.sessionList != nil { // its answer was a mismatch, so no caller waits for it
			c.finish(wait)
		}
	default:
		s.outcome(wait, result, 0)
	}
	c.finish(k)
}

// acquireAnswered processes the answer to an acquire or an upgrade.
func (s *Session) acquireAnswered(k *call, result *wire.Result) {
	if result.GetStatus() != wire.Status_QUEUED {
		var since time.Duration
		if result.GetRevision() > s.resumed.revision {
			since = s.resumed.sentAt
		}
		s.outcome(k, result, since)
		return
	}
	if k.sessionList != nil {
		k.sessionList.remove(k)
	}
	k.queued, k.claim = true, result.GetHoldId()
	s.waits[k.request.Seq] = k
	if a := k.acquired; a != nil && a.of != nil && !a.finished {
		a.of.queued(a, result)
	}
	if k.abandoned {
		s.cancel(k)
	}
}

// outcome finishes an acquire or an upgrade. A grant happened after since.
func (s *Session) outcome(k *call, result *wire.Result, since time.Duration) {
	if k.finished || k.confirming {
		return
	}
	waited, seq := k.queued || k.sends > 1, k.request.Seq
	switch {
	case k.kind == kindUpgrade:
		s.upgraded(k, result)
	case result.GetStatus() == wire.Status_GRANTED:
		s.granted(k, result, max(since, k.firstAt))
	case result.GetStatus() == wire.Status_RESOURCE_EXHAUSTED && s.releaseUnused():
		s.renumber(k) // what the session only keeps must not stand in the way
		return
	default:
		k.err = statusError(result)
		s.client.finish(k)
	}
	if waited {
		s.acknowledge(seq)
	}
}

// granted hands the hold to the acquire's caller, or releases it if the caller has left.
func (s *Session) granted(k *call, result *wire.Result, since time.Duration) {
	c, a := s.client, k.acquired
	d := s.holds.find(result.GetHoldId())
	if k.err = s.lostAlready(k, result); k.err == nil && d != nil {
		k.err = d.gone
	}
	if k.err != nil {
		c.finish(k)
		return
	}
	h := s.handle(d, a, result)
	k.hold = h
	if n := s.notices[h.held.id]; n != nil && d == nil {
		delete(s.notices, h.held.id)
		defer h.held.noticedSince(n, since)
	}
	if d == nil && a.acquire.MaxHoldMs != 0 && h.boundGrant(k, result, since) {
		return
	}
	abandoned := k.abandoned
	c.finish(k)
	if abandoned && !(a.renewal && h.held.cached.unlock(h)) {
		h.startRelease()
	}
}

// handle returns the handle for a grant: of a new hold, or one more of d for a reentrant acquire.
func (s *Session) handle(d *held, a *acquireCall, result *wire.Result) *Hold {
	var h *Hold
	if d != nil {
		h = d.again()
	} else {
		h = newHold(s, a.acquire.Locks[0].Name, result.GetHoldId(), result.GetToken(), result.GetRevision())
		d = h.held
		d.owner, d.mode = a.acquire.Owner, Mode(a.acquire.Locks[0].Mode)
		if a.cached.Acquire != nil {
			a.of.keep(d, &a.cached)
		}
		if d.mode == 0 {
			d.mode = Permits
		}
		if n := len(a.acquire.Locks); n > 1 {
			d.names = make([]string, n)
			for i, l := range a.acquire.Locks {
				d.names[i] = l.Name
			}
		}
		if a.wanted != nil || a.revoked != nil {
			r := d.extra()
			r.wanted.call, r.revoked.call = a.wanted, a.revoked
		}
	}
	if !a.abandoned {
		h.askedBy(a.ctx)
	}
	return h
}

// askedBy records the ctx of the acquire and, for the hooks, the time of the grant.
func (h *Hold) askedBy(ctx context.Context) {
	h.asked = ctx
	if h.held.session.client.cfg.Hooks.HoldEnded == nil {
		return
	}
	r := h.held.extra()
	if r.grantedAt == nil {
		r.grantedAt = map[*Hold]time.Duration{}
	}
	r.grantedAt[h] = h.held.session.client.mu.now()
}
