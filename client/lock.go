package client

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// cancelGrace is how long a caller whose ctx has ended waits to learn whether its wait
// was cancelled, before it is told that this is unknown.
const cancelGrace = 100 * time.Millisecond

// Lock waits for the lock as long as ctx allows. If ctx ends first the error matches
// ctx's, and ErrUncertain as well if it is not known whether the lock was granted in
// the end; the session then gives it back as soon as it knows. Other errors:
// ErrAlreadyHeld, ErrAlreadyQueued, ErrDeadlock, ErrMismatch, ErrSessionLost,
// ErrResourceExhausted, ErrInvalidArgument.
//
// A ctx that descends from a hold's context asks as that hold's owner, so that a
// function which locks again what its caller holds is refused with ErrAlreadyHeld
// rather than wait for itself. Otherwise each call is an owner of its own.
func (s *Session) Lock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, name, 0, true, opts)
}

// TryLock takes the lock if it is free and nobody waits for it, else it returns
// ErrNotAcquired at once. Otherwise it is like Lock.
func (s *Session) TryLock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	return s.acquire(ctx, name, 0, false, opts)
}

// LockTimeout waits at most wait, as the leader counts it, then it returns ErrTimeout.
// The wait is rounded up to a millisecond; after a change of leaders it begins anew.
// Otherwise it is like Lock.
func (s *Session) LockTimeout(ctx context.Context, name string, wait time.Duration, opts ...LockOption) (*Hold, error) {
	ms, err := millis("wait", wait)
	if err != nil {
		return nil, err
	}
	return s.acquire(ctx, name, ms, false, opts)
}

// Do calls fn while it holds the lock and returns what fn returns, after the lock is
// released. The ctx of fn ends with ctx and with the hold. If the lock was lost
// meanwhile the error matches the reason as well, whatever fn returned.
func (s *Session) Do(ctx context.Context, name string, fn func(ctx context.Context, token uint64) error, opts ...LockOption) error {
	hold, err := s.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return hold.during(ctx, fn)
}

// LockAll waits for all of up to 64 locks with different names, as long as ctx allows.
// It gets all of them in one step, under one hold and one token, or none, and while it
// waits it holds none and has its place in every queue: two of them never deadlock each
// other. A semaphore's permits are acquired by it too, alone or among others.
// Otherwise it is like Lock.
func (s *Session) LockAll(ctx context.Context, specs []LockSpec, opts ...LockOption) (*Hold, error) {
	return s.acquireAll(ctx, specs, 0, true, opts)
}

// TryLockAll is to LockAll what TryLock is to Lock.
func (s *Session) TryLockAll(ctx context.Context, specs []LockSpec, opts ...LockOption) (*Hold, error) {
	return s.acquireAll(ctx, specs, 0, false, opts)
}

// LockAllTimeout is to LockAll what LockTimeout is to Lock.
func (s *Session) LockAllTimeout(ctx context.Context, specs []LockSpec, wait time.Duration, opts ...LockOption) (*Hold, error) {
	ms, err := millis("wait", wait)
	if err != nil {
		return nil, err
	}
	return s.acquireAll(ctx, specs, ms, false, opts)
}

func (s *Session) acquireAll(ctx context.Context, specs []LockSpec, waitMs uint32, forever bool, opts []LockOption) (*Hold, error) {
	if len(specs) == 0 {
		return nil, invalid("no locks: give 1 to 64")
	}
	k := newAcquire(ctx, s.client, waitMs, forever)
	o := optionsOf(opts)
	for _, spec := range specs {
		k.acquire.Locks = append(k.acquire.Locks, spec.request(o.shared))
	}
	if err := o.apply(k); err != nil {
		return nil, err
	}
	return s.run(ctx, k)
}

func (s *Session) acquire(ctx context.Context, name string, waitMs uint32, forever bool, opts []LockOption) (*Hold, error) {
	k := newAcquire(ctx, s.client, waitMs, forever)
	k.lock.Name, k.lock.Mode = name, wire.Mode_EXCLUSIVE
	k.locks[0] = &k.lock
	k.acquire.Locks = k.locks[:]
	if len(opts) > 0 {
		o := optionsOf(opts)
		if o.shared {
			k.lock.Mode = wire.Mode_SHARED
		}
		if err := o.apply(k); err != nil {
			return nil, err
		}
	}
	return s.run(ctx, k)
}

func newAcquire(ctx context.Context, c *Client, waitMs uint32, forever bool) *acquireCall {
	k := c.spare.acquire()
	k.kind, k.ctx = kindAcquire, ctx
	k.acquire.WaitMs, k.acquire.WaitForever = waitMs, forever
	k.body.Acquire = &k.acquire
	k.request.Body = &k.body
	k.acquired = k
	return k
}

// run sends an acquire and waits for its outcome.
func (s *Session) run(ctx context.Context, k *acquireCall) (*Hold, error) {
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
	s.enlist(&k.call)
	if outer, ok := ctx.Value(holdKey{}).(*Hold); ok && outer.held.session == s {
		k.acquire.Owner = outer.held.owner
	}
	c.submit(&k.call)
	c.unlock()
	return c.awaitWait(ctx, &k.call)
}

// awaitWait waits for the outcome of a call that may have to wait.
func (c *Client) awaitWait(ctx context.Context, k *call) (*Hold, error) {
	if !k.await(ctx) {
		return c.stopWaiting(ctx, k)
	}
	return c.take(k)
}

// usable says why nothing can be asked of the session, if so.
func (s *Session) usable() error {
	if !s.alive() {
		return s.reason
	}
	return nil
}

// take returns the outcome of a finished call whose token has been received.
func (c *Client) take(k *call) (*Hold, error) {
	hold, err := k.hold, k.err
	if k.acquired != nil && k.simple() {
		c.spare.keepAcquire(k.acquired)
	} else {
		c.spare.dones.Put(k.done)
	}
	return hold, err
}

// stopWaiting ends the wait of a caller whose ctx has ended.
func (c *Client) stopWaiting(ctx context.Context, k *call) (*Hold, error) {
	c.mu.Lock()
	if k.finished {
		c.unlock()
		<-k.done
		return c.take(k)
	}
	k.abandoned = true
	switch {
	case k.confirming:
		c.finish(k)
		k.hold.startRelease()
		c.unlock()
		<-k.done
		c.spare.dones.Put(k.done)
		return nil, stopped(ctx, nil)
	case k.queued:
		k.session.cancel(k)
	case !k.uncertain():
		known := c.unreached()
		c.finish(k)
		c.unlock()
		return nil, stopped(ctx, known)
	}
	done := k.done
	c.unlock()

	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	select {
	case <-done:
		return nil, stopped(ctx, nil)
	case <-grace.C:
	}
	c.mu.Lock()
	defer c.unlock()
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
	s.enlist(k)
	s.client.submit(k)
}

func (s *Session) cancelAnswered(k *call, result *wire.Result) {
	c, wait := s.client, k.target
	switch result.GetStatus() {
	case wire.Status_RESOURCE_EXHAUSTED:
		k.session.renumber(k) // it has to get through
		return
	case wire.Status_INTERNAL, wire.Status_INVALID_ARGUMENT, wire.Status_UNSUPPORTED:
		// The wait goes on; if it is granted, that is when it is given back.
		wait.cancelled = false
		if wait.books != nil { // it was misanswered, and nobody waits for it
			c.finish(wait)
		}
	default:
		s.outcome(wait, result, 0)
	}
	c.finish(k)
}

// acquireAnswered books the answer to an acquire or an upgrade.
func (s *Session) acquireAnswered(k *call, result *wire.Result) {
	if result.GetStatus() != wire.Status_QUEUED {
		var since time.Duration
		if result.GetRevision() > s.resumed.revision {
			since = s.resumed.sentAt
		}
		s.outcome(k, result, since)
		return
	}
	if k.books != nil {
		k.books.remove(k)
	}
	k.queued = true
	s.waits[k.request.Seq] = k
	if k.abandoned {
		s.cancel(k)
	}
}

// outcome ends an acquire or an upgrade. What granted it happened after since.
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
	default:
		k.err = statusError(result)
		s.client.finish(k)
	}
	if waited {
		s.acknowledge(seq)
	}
}

// granted gives an acquire's caller the hold, or gives that back.
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
	if d == nil && a.acquire.MaxHoldMs != 0 && h.boundGrant(k, result, since) {
		return
	}
	abandoned := k.abandoned
	c.finish(k)
	if abandoned {
		h.startRelease()
	}
}

// handle is the hold that a grant gives: a new one, or one more of d.
func (s *Session) handle(d *held, a *acquireCall, result *wire.Result) *Hold {
	var h *Hold
	if d != nil {
		h = d.again()
	} else {
		h = newHold(s, a.acquire.Locks[0].Name, result.GetHoldId(), result.GetToken(), result.GetRevision())
		d = h.held
		d.owner, d.mode = a.acquire.Owner, Mode(a.acquire.Locks[0].Mode)
		if d.mode == 0 {
			d.mode = Permits
		}
		if n := len(a.acquire.Locks); n > 1 {
			d.names = make([]string, n)
			for i, l := range a.acquire.Locks {
				d.names[i] = l.Name
			}
		}
		if a.notice != nil {
			d.rarely().call = a.notice
		}
	}
	h.asked = a.ctx
	return h
}
