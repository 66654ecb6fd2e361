package client

import (
	"context"
	"fmt"
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Locker is a lock as a [sync.Locker], for code that knows only Lock and Unlock and
// cannot be told that it has lost what it holds. If Unlock returns, the lock was held all
// the time since Lock: the cluster has said so. A loss cannot pass unnoticed:
//
//   - Lock panics if the lock cannot be had;
//   - when a lock that is held is lost, the function that the Locker was given is called
//     at once, in a goroutine of its own: it should end what the lock protects, or the
//     program;
//   - Unlock panics if the lock was lost before it was released, whatever that function
//     did, and if it is not locked.
//
// They panic with a *[LockerError] that matches the reason. Where there is a choice take
// [Session.Do]: its ctx ends in time, and its errors are errors.
//
// Like a [sync.Mutex] a Locker keeps the goroutines of a program apart, and is not
// reentrant: Lock by whoever has it locked waits for ever. Others of the program ask the
// cluster only when the one before has called Unlock, so that Unlock never gives back
// what somebody else holds. After a loss it can be locked again if its session lives.
type Locker struct {
	ctx     context.Context
	session *Session
	name    string
	onLost  func(error)
	opts    []LockOption
	turn    chan struct{} // carries a token while nobody in the program has it locked

	mu   sync.Mutex // guards what follows
	hold *Hold      // nil while it is not locked
}

var _ sync.Locker = (*Locker)(nil)

// LockerError is what a [Locker] panics with.
type LockerError struct {
	// Name is the lock's.
	Name string
	// Err is why it could not be had, was lost or could not be released.
	Err error
}

// Error says what happened to which lock.
func (e *LockerError) Error() string {
	return fmt.Sprintf("quorumlock: locker %s: %v", wire.Printable(e.Name), e.Err)
}

// Unwrap is the reason.
func (e *LockerError) Unwrap() error { return e.Err }

// Locker makes one. Lock waits as long as ctx allows. onLost is called with the reason as
// soon as a lock is lost, once. Without it only Unlock tells: code that takes long between
// Lock and Unlock goes on without the lock until then. The options go with every Lock;
// [WithShared] makes a reader's Locker.
func (s *Session) Locker(ctx context.Context, name string, onLost func(reason error), opts ...LockOption) *Locker {
	l := &Locker{ctx: ctx, session: s, name: name, onLost: onLost, opts: opts, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// Lock waits for the lock. It panics with the error that [Session.Lock] returns.
func (l *Locker) Lock() {
	select {
	case <-l.turn:
	case <-l.ctx.Done():
		panic(&LockerError{l.name, stopped(l.ctx, nil)})
	case <-l.session.Lost():
		panic(&LockerError{l.name, l.session.Err()})
	}
	hold, err := l.session.Lock(l.ctx, l.name, l.opts...)
	if err != nil {
		l.turn <- struct{}{}
		panic(&LockerError{l.name, err})
	}
	if l.onLost != nil {
		context.AfterFunc(hold.Context(), func() {
			if reason := context.Cause(hold.Context()); reason != ErrReleased {
				l.onLost(reason)
			}
		})
	}
	l.mu.Lock()
	l.hold = hold
	l.mu.Unlock()
}

// Unlock gives the lock back. It returns when the cluster has acknowledged that, and
// panics if it was lost, or is lost before that.
func (l *Locker) Unlock() {
	l.mu.Lock()
	hold := l.hold
	l.hold = nil
	l.mu.Unlock()
	if hold == nil {
		panic(&LockerError{l.name, fmt.Errorf("%w: Unlock without Lock", ErrNotHeld)})
	}
	// Not the ctx of Lock: whoever cannot wait any longer wants it released all the more.
	err := hold.Unlock(context.WithoutCancel(l.ctx))
	l.turn <- struct{}{}
	if err != nil {
		panic(&LockerError{l.name, err})
	}
}

// Context ends when the lock is lost or Unlock begins, with the reason as its cause. While
// it is not locked it is one that has ended, with ErrNotHeld.
func (l *Locker) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold != nil {
		return l.hold.Context()
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(l.ctx))
	cancel(ErrNotHeld)
	return ctx
}

// Err is nil while the lock is locked and held for certain. Otherwise it is the reason
// why not; ErrNotHeld while it is not locked.
func (l *Locker) Err() error {
	ctx := l.Context()
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// Token is the fencing token of the lock; 0 while it is not locked.
func (l *Locker) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return 0
	}
	return l.hold.Token()
}
