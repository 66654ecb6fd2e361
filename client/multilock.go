package client

import (
	"context"
	"slices"
	"time"
)

// MultiLock is several locks that are held together: both accounts of a transfer, every
// part of a release. They are acquired in one step, all or none, and nothing is held
// while the call waits, so that two of them never wait for each other, in whichever order
// they name their locks. They come as one [Hold] with one token, which is greater than
// that of every earlier grant of any of them.
//
// It is a list of locks and options, without any state, like a [RWLock].
type MultiLock struct {
	session *Session
	specs   []LockSpec
	opts    []LockOption
}

// MultiLock makes one of 1 to 64 locks with different names: exclusive or shared ones and
// permits of semaphores in any mixture. The options go with every call.
func (s *Session) MultiLock(specs []LockSpec, opts ...LockOption) *MultiLock {
	return &MultiLock{s, slices.Clone(specs), opts}
}

// Names are locks for MultiLock and LockAll of which nothing but the name is to be said.
func Names(names ...string) []LockSpec {
	specs := make([]LockSpec, len(names))
	for i, name := range names {
		specs[i].Name = name
	}
	return specs
}

// Names are the names of the locks, in the order given.
func (l *MultiLock) Names() []string {
	names := make([]string, len(l.specs))
	for i, spec := range l.specs {
		names[i] = spec.Name
	}
	return names
}

// Lock waits for all of them, as long as ctx allows. Errors are those of [Session.LockAll].
func (l *MultiLock) Lock(ctx context.Context) (*Hold, error) {
	return l.session.LockAll(ctx, l.specs, l.opts...)
}

// TryLock takes all of them if all are free and nobody waits for any, else it returns
// ErrNotAcquired.
func (l *MultiLock) TryLock(ctx context.Context) (*Hold, error) {
	return l.session.TryLockAll(ctx, l.specs, l.opts...)
}

// LockTimeout waits at most wait for all of them, then it returns ErrTimeout.
func (l *MultiLock) LockTimeout(ctx context.Context, wait time.Duration) (*Hold, error) {
	return l.session.LockAllTimeout(ctx, l.specs, wait, l.opts...)
}

// Do calls fn while it holds all of them, as [Session.Do] does with one.
func (l *MultiLock) Do(ctx context.Context, fn func(ctx context.Context, token uint64) error) error {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return hold.during(ctx, fn)
}
