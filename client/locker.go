package client

import (
	"context"
	"fmt"
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Locker adapts a lock to [sync.Locker], for code that only knows Lock and Unlock and cannot receive
// errors. If Unlock returns, the lock was held continuously since Lock; the cluster has confirmed that, unless the
// session keeps the lock (see [WithCached]). A loss cannot go unnoticed:
//
//   - Lock panics if the lock cannot be acquired;
//   - if a held lock is lost, the onLost function runs immediately in a separate goroutine; it should stop
//     the work that the lock protects, or exit the program;
//   - Unlock panics if the lock was lost before it was released, whatever onLost did, and if the Locker is
//     not locked.
//
// The panic value is a *[LockerError] that matches the reason. Prefer [Session.Do] where possible: its ctx
// ends in time, and it returns errors.
//
// Like a [sync.Mutex], a Locker excludes the goroutines of a program from each other and is not reentrant:
// a goroutine that calls Lock while it has the Locker locked waits forever. Other goroutines contact the
// cluster only after the previous one has called Unlock, so Unlock never releases another goroutine's hold.
// After a loss the Locker can be locked again if its session is alive.
type Locker struct {
	ctx     context.Context
	session owner
	name    string
	onLost  func(error)
	opts    []LockOption
	turn    chan struct{} // holds a token while no goroutine has the Locker locked

	mu   sync.Mutex // guards the fields below
	hold *Hold      // nil while not locked
}

var _ sync.Locker = (*Locker)(nil)

// LockerError is the value that a [Locker] panics with.
type LockerError struct {
	// Name is the name of the lock.
	Name string
	// Err is why the lock could not be acquired, was lost, or could not be released.
	Err error
}

// Error names the lock and the reason.
func (e *LockerError) Error() string {
	return fmt.Sprintf("quorumlock: locker %s: %v", wire.Printable(e.Name), e.Err)
}

// Unwrap returns Err.
func (e *LockerError) Unwrap() error { return e.Err }

// Locker returns a Locker for the named lock. Its Lock waits as long as ctx allows. onLost is called once,
// with the reason, as soon as a held lock is lost. If onLost is nil, only Unlock reports the loss, and code
// between Lock and Unlock runs on without the lock until then. The options apply to every Lock; with
// [WithShared] it is a reader's Locker.
func (s *Session) Locker(ctx context.Context, name string, onLost func(reason error), opts ...LockOption) *Locker {
	return newLocker(ctx, s, name, onLost, opts)
}

func newLocker(ctx context.Context, s owner, name string, onLost func(reason error), opts []LockOption) *Locker {
	l := &Locker{ctx: ctx, session: s, name: name, onLost: onLost, opts: opts, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// Lock waits for the lock. It panics with a *[LockerError] that wraps the error of [Session.Lock].
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

// Unlock releases the lock and returns when that is certain, like [Hold.Unlock]. It panics if the lock was
// lost, or is lost before the acknowledgement.
func (l *Locker) Unlock() {
	l.mu.Lock()
	hold := l.hold
	l.hold = nil
	l.mu.Unlock()
	if hold == nil {
		panic(&LockerError{l.name, fmt.Errorf("%w: Unlock without Lock", ErrNotHeld)})
	}
	// Not the ctx of Lock: if that has ended, the lock still has to be released.
	err := hold.Unlock(context.WithoutCancel(l.ctx))
	l.turn <- struct{}{}
	if err != nil {
		panic(&LockerError{l.name, err})
	}
}

// Context returns a context that ends when the lock is lost or Unlock begins, with the reason as its cause.
// While the Locker is not locked it returns a context that has ended with ErrNotHeld.
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

// Err returns nil while the lock is certainly held. Otherwise it returns the reason, which is ErrNotHeld
// while the Locker is not locked.
func (l *Locker) Err() error {
	ctx := l.Context()
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// Token returns the fencing token of the lock, or 0 while the Locker is not locked.
func (l *Locker) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return 0
	}
	return l.hold.Token()
}
