package client

import (
	"context"
	"slices"
	"time"
)

// MultiLock is several locks that are held together, such as both accounts of a transfer or all parts of a
// release. They are acquired in one step, all or none, and nothing is held while the call waits. Two
// MultiLocks therefore never deadlock, whatever the order of their locks. The result is one [Hold] with one
// token, which is greater than the token of every earlier grant of any of the locks.
//
// A MultiLock is a list of locks with options and has no state, like an [RWLock].
type MultiLock struct {
	session *Session
	specs   []LockSpec
	opts    []LockOption
}

// MultiLock returns a MultiLock of 1 to 64 locks with different names, in any mixture of exclusive locks,
// shared locks and semaphore permits. The options apply to every call.
func (s *Session) MultiLock(specs []LockSpec, opts ...LockOption) *MultiLock {
	return &MultiLock{s, slices.Clone(specs), opts}
}

// Names returns specs for MultiLock and LockAll that have only a name.
func Names(names ...string) []LockSpec {
	specs := make([]LockSpec, len(names))
	for i, name := range names {
		specs[i].Name = name
	}
	return specs
}

// Names returns the names of the locks, in the order given.
func (l *MultiLock) Names() []string {
	names := make([]string, len(l.specs))
	for i, spec := range l.specs {
		names[i] = spec.Name
	}
	return names
}

// Lock waits for all of the locks as long as ctx allows. Errors are those of [Session.LockAll].
func (l *MultiLock) Lock(ctx context.Context) (*Hold, error) {
	return l.session.LockAll(ctx, l.specs, l.opts...)
}

// TryLock acquires all of the locks if all are free and nobody waits for any. Otherwise it returns
// ErrNotAcquired.
func (l *MultiLock) TryLock(ctx context.Context) (*Hold, error) {
	return l.session.TryLockAll(ctx, l.specs, l.opts...)
}

// LockTimeout waits for all of the locks for at most wait, and then returns ErrTimeout.
func (l *MultiLock) LockTimeout(ctx context.Context, wait time.Duration) (*Hold, error) {
	return l.session.LockAllTimeout(ctx, l.specs, wait, l.opts...)
}

// Do calls fn while it holds all of the locks, as [Session.Do] does with one.
func (l *MultiLock) Do(ctx context.Context, fn func(ctx context.Context, token uint64) error) error {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return hold.during(ctx, fn)
}
