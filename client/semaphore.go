package client

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Semaphore gives out a number of permits, not one lock: at most so many workers, or so
// many connections, over all machines. First come, first served, also if a later request
// is smaller and would fit.
//
// All who use one name the same limit; another is refused with ErrMismatch while anybody
// holds or waits for a permit. To change it at run time resize it with [Client.Resize],
// and give programs the new limit: those with the old one are refused from then on.
//
// It is a name, a limit and options, without any state, like a [RWLock]. A permit's hold
// is lost with its session as any other. Its token does not fence: others hold permits
// too.
type Semaphore struct {
	session *Session
	name    string
	limit   uint64
	opts    []LockOption
}

// Semaphore makes a semaphore of limit permits. The options go with every call; those
// about modes mean nothing here, and [WithUnfair] and [Reentrant] are refused.
func (s *Session) Semaphore(name string, limit uint64, opts ...LockOption) *Semaphore {
	return &Semaphore{s, name, limit, opts}
}

// Name is the semaphore's name.
func (l *Semaphore) Name() string { return l.name }

// Limit is how many permits there are, as this program knows it.
func (l *Semaphore) Limit() uint64 { return l.limit }

// Acquire waits for n permits, all of them in one hold, as long as ctx allows. Errors are
// Lock's, and ErrInvalidArgument unless n is 1 to the limit.
func (l *Semaphore) Acquire(ctx context.Context, n uint64) (*Hold, error) {
	specs, err := l.permits(n)
	if err != nil {
		return nil, err
	}
	return l.session.LockAll(ctx, specs, l.opts...)
}

// TryAcquire takes n permits if there are as many and nobody waits, else it returns
// ErrNotAcquired.
func (l *Semaphore) TryAcquire(ctx context.Context, n uint64) (*Hold, error) {
	specs, err := l.permits(n)
	if err != nil {
		return nil, err
	}
	return l.session.TryLockAll(ctx, specs, l.opts...)
}

// AcquireTimeout waits at most wait for n permits, then it returns ErrTimeout.
func (l *Semaphore) AcquireTimeout(ctx context.Context, n uint64, wait time.Duration) (*Hold, error) {
	specs, err := l.permits(n)
	if err != nil {
		return nil, err
	}
	return l.session.LockAllTimeout(ctx, specs, wait, l.opts...)
}

// permits is the request for n of them. Without a limit it would be another kind of lock,
// and 0 permits would be one.
func (l *Semaphore) permits(n uint64) ([]LockSpec, error) {
	switch {
	case l.limit == 0:
		return nil, invalid("semaphore %s has a limit of 0: give it 1 or more", wire.Printable(l.name))
	case n == 0 || n > l.limit:
		return nil, invalid("%d permits of semaphore %s: ask for 1 to %d", n, wire.Printable(l.name), l.limit)
	}
	return []LockSpec{{Name: l.name, Permits: n, Limit: l.limit}}, nil
}
