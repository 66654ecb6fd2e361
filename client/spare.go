package client

import (
	"context"
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// acquireCall is an acquire in one piece of memory.
type acquireCall struct {
	call
	body    wire.Request_Acquire
	acquire wire.Acquire
	lock    wire.LockRequest
	locks   [1]*wire.LockRequest
	ctx     context.Context // the caller's, for the values of the hold's
	notice  func(Notice)    // of WithRevocation
}

// releaseCall is a release in one piece of memory.
type releaseCall struct {
	call
	body    wire.Request_Release
	release wire.Release
}

// spare is memory of calls that are over, for others. A client has its own, so that the
// channels in a synctest bubble work.
type spare struct{ acquires, releases, dones sync.Pool }

// done is a channel that carries one token from finish to the call's caller.
func (s *spare) done() chan struct{} {
	if done, ok := s.dones.Get().(chan struct{}); ok {
		return done
	}
	return make(chan struct{}, 1)
}

// acquire is an empty acquire.
func (s *spare) acquire() *acquireCall {
	if k, ok := s.acquires.Get().(*acquireCall); ok {
		return k
	}
	k := &acquireCall{}
	k.done = s.done()
	return k
}

// release is an empty release.
func (s *spare) release() *releaseCall {
	if k, ok := s.releases.Get().(*releaseCall); ok {
		return k
	}
	k := &releaseCall{}
	k.done = s.done()
	return k
}

// keepAcquire takes an acquire whose caller has its outcome.
func (s *spare) keepAcquire(k *acquireCall) {
	done := k.done
	*k = acquireCall{}
	k.done = done
	s.acquires.Put(k)
}

// keepRelease takes a release whose caller has its outcome.
func (s *spare) keepRelease(k *releaseCall) {
	done := k.done
	*k = releaseCall{}
	k.done = done
	s.releases.Put(k)
}

// simple says that a finished call was sent once and succeeded by the answer to that, so
// that nobody but its caller knows of it any more.
func (k *call) simple() bool {
	return k.err == nil && k.sends == 1 && !k.queued && !k.cancelled && !k.confirming && !k.abandoned
}

// shared is the call for one more who waits for it.
func (k *call) shared() *call {
	if k.over == nil {
		k.over = make(chan struct{})
		if k.finished {
			close(k.over)
		}
	}
	return k
}
