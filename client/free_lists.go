package client

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// acquireCall holds an acquire call and its request in one allocation.
type acquireCall struct {
	call
	body    wire.Request_Acquire
	acquire wire.Acquire
	lock    wire.LockRequest
	locks   [1]*wire.LockRequest
	ctx     context.Context  // the caller's, for the values of the hold's context
	wanted  func()           // of OnWanted
	revoked func(Revocation) // of OnRevoked

	// Of a call with WithCached.
	cachedBody wire.Request_AcquireCached
	cached     wire.AcquireCached
	of         *cachedLock
	claims     bool          // it waits in the cluster's queue
	limit      Timer         // of WithWait, while the call waits locally
	until      time.Duration // when limit fires
}

// releaseCall holds a release call and its request in one allocation.
type releaseCall struct {
	call
	body    wire.Request_Release
	release wire.Release
}

// freeLists are the free lists of finished calls. Each client has its own, because channels must not be shared
// between synctest bubbles.
type freeLists struct{ acquires, releases, dones, options sync.Pool }

// done returns a channel that carries one token from finish to the call's caller.
func (s *freeLists) done() chan struct{} {
	if done, ok := s.dones.Get().(chan struct{}); ok {
		return done
	}
	return make(chan struct{}, 1)
}

// acquire returns an empty acquire.
func (s *freeLists) acquire() *acquireCall {
	if k, ok := s.acquires.Get().(*acquireCall); ok {
		return k
	}
	k := &acquireCall{}
	k.done = s.done()
	return k
}

// release returns an empty release.
func (s *freeLists) release() *releaseCall {
	if k, ok := s.releases.Get().(*releaseCall); ok {
		return k
	}
	k := &releaseCall{}
	k.done = s.done()
	return k
}

// optionsOf collects the options of a call. The result is to be given back with keepOptions.
func (s *freeLists) optionsOf(opts []LockOption) *acquireOptions {
	o, ok := s.options.Get().(*acquireOptions)
	if !ok {
		o = new(acquireOptions)
	}
	for _, opt := range opts {
		opt.set(o)
	}
	return o
}

// keepOptions recycles options that nothing refers to any more.
func (s *freeLists) keepOptions(o *acquireOptions) {
	*o = acquireOptions{}
	s.options.Put(o)
}

// keepAcquire recycles an acquire whose caller has its outcome.
func (s *freeLists) keepAcquire(k *acquireCall) {
	done := k.done
	*k = acquireCall{}
	k.done = done
	s.acquires.Put(k)
}

// keepRelease recycles a release whose caller has its outcome.
func (s *freeLists) keepRelease(k *releaseCall) {
	done := k.done
	*k = releaseCall{}
	k.done = done
	s.releases.Put(k)
}

// simple reports whether a finished call was sent once and succeeded with the first answer, so that only
// its caller still refers to it.
func (k *call) simple() bool {
	return k.err == nil && k.sends == 1 && (k.acquired == nil || k.acquired.limit == nil) && !k.queued && !k.cancelled && !k.confirming && !k.abandoned
}

// shared prepares the call for another waiter.
func (k *call) shared() *call {
	if k.over == nil {
		k.over = make(chan struct{})
		if k.finished {
			close(k.over)
		}
	}
	return k
}
