package client

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// cancelGrace is how long a caller whose ctx has ended waits to learn whether its wait
// was cancelled, before it is told that this is unknown.
const cancelGrace = 100 * time.Millisecond

// acquireCall is an acquire in one piece of memory.
type acquireCall struct {
	call
	body    wire.Request_Acquire
	acquire wire.Acquire
	lock    wire.LockRequest
	locks   [1]*wire.LockRequest
	ctx     context.Context // the caller's, for the values of the hold's
}

// Lock waits for the lock as long as ctx allows. If ctx ends first the error matches
// ctx's, and ErrUncertain as well if it is not known whether the lock was granted in
// the end; the session then gives it back as soon as it knows. Other errors:
// ErrAlreadyHeld, ErrAlreadyQueued, ErrSessionLost, ErrResourceExhausted, ErrInvalidArgument.
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
	if wait < 0 || wait > math.MaxUint32*time.Millisecond {
		return nil, invalid("wait %v: give 0 to 49 days, or use Lock to wait without bound", wait)
	}
	ms := uint32((wait + time.Millisecond - 1) / time.Millisecond)
	return s.acquire(ctx, name, ms, false, opts)
}

// Do calls fn while it holds the lock and returns what fn returns, after the lock is
// released. The ctx of fn ends with ctx and with the hold. If the lock was lost
// meanwhile the error matches the reason as well, whatever fn returned.
func (s *Session) Do(ctx context.Context, name string, fn func(ctx context.Context, token uint64) error, opts ...LockOption) (err error) {
	hold, err := s.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(hold.Context())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer func() {
		stop()
		cancel(nil)
		// Not ctx: a caller that gave up wants the lock released all the more. It ends
		// with the session at the latest.
		if uerr := hold.Unlock(context.WithoutCancel(ctx)); uerr != nil {
			err = errors.Join(err, uerr)
		}
	}()
	return fn(&holdContext{inner, hold}, hold.Token())
}

func (s *Session) acquire(ctx context.Context, name string, waitMs uint32, forever bool, opts []LockOption) (*Hold, error) {
	if ctx.Err() != nil {
		return nil, stopped(ctx, nil)
	}
	c := s.client
	k := &acquireCall{ctx: ctx}
	k.kind, k.done = kindAcquire, c.newDone()
	k.lock.Name, k.lock.Mode = name, wire.Mode_EXCLUSIVE
	k.locks[0] = &k.lock
	k.acquire.Locks, k.acquire.WaitMs, k.acquire.WaitForever = k.locks[:], waitMs, forever
	if len(opts) > 0 {
		k.acquire.Value = valueOf(opts)
	}
	k.body.Acquire = &k.acquire
	k.request.Body = &k.body
	k.acquired = k

	c.mu.Lock()
	if err := s.usable(); err != nil {
		c.unlock()
		return nil, err
	}
	s.enlist(&k.call)
	if outer, ok := ctx.Value(holdKey{}).(*Hold); ok && outer.session == s {
		k.acquire.Owner = outer.owner
	}
	c.submit(&k.call)
	c.unlock()

	select {
	case <-k.done:
		return c.take(&k.call)
	case <-ctx.Done():
		return c.stopWaiting(ctx, &k.call)
	}
}

func valueOf(opts []LockOption) []byte {
	var o lockOptions
	for _, opt := range opts {
		opt(&o)
	}
	return o.value
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
	c.dones.Put(k.done)
	return k.hold, k.err
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
	default:
		s.outcome(wait, result)
	}
	c.finish(k)
}

// acquireAnswered books the answer to an acquire.
func (s *Session) acquireAnswered(k *call, result *wire.Result) {
	if result.GetStatus() != wire.Status_QUEUED {
		s.outcome(k, result)
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

// outcome ends an acquire: its caller gets the hold, or the hold is given back.
func (s *Session) outcome(k *call, result *wire.Result) {
	if k.finished {
		return
	}
	waited := k.queued || k.sends > 1
	if result.GetStatus() == wire.Status_GRANTED {
		a := k.acquired
		k.hold = newHold(s, a.lock.Name, result.GetHoldId(), result.GetToken(), result.GetRevision())
		k.hold.owner = a.acquire.Owner
		k.hold.open(a.ctx)
	} else {
		k.err = statusError(result)
	}
	s.client.finish(k)
	if k.hold != nil && k.abandoned {
		k.hold.startRelease()
	}
	if waited {
		s.acknowledge(k.request.Seq)
	}
}
