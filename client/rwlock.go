package client

import (
	"context"
	"time"
)

// RWLock is a lock held by several readers or by one writer. Requests are granted in arrival order: a
// reader that arrives while a writer waits queues behind the writer, so a stream of readers cannot starve
// writers. [Hold.Upgrade] turns a reader's hold into a writer's, and [Hold.Downgrade] a writer's into a
// reader's.
//
// An RWLock is a name with options and has no state: create any number of them for one lock, and use each
// from any number of goroutines. As with [Session.Lock], each call is a separate owner. The methods return
// the errors of [Session.Lock].
//
// Only the token of a writer fences. The tokens of readers only show their order.
type RWLock struct {
	session *Session
	name    string
	opts    []LockOption
}

// RWLock returns a read-write lock. The options apply to every call, and the calls set the mode.
// [WithUnfair] is refused, since readers share.
func (s *Session) RWLock(name string, opts ...LockOption) *RWLock {
	return &RWLock{s, name, opts}
}

// Name returns the lock's name.
func (l *RWLock) Name() string { return l.name }

// Lock waits for the exclusive lock as long as ctx allows.
func (l *RWLock) Lock(ctx context.Context) (*Hold, error) {
	return l.session.Lock(ctx, l.name, l.as(Exclusive)...)
}

// TryLock acquires the exclusive lock if it is free and nobody waits for it. Otherwise it returns
// ErrNotAcquired.
func (l *RWLock) TryLock(ctx context.Context) (*Hold, error) {
	return l.session.TryLock(ctx, l.name, l.as(Exclusive)...)
}

// LockTimeout waits for the exclusive lock for at most wait, and then returns ErrTimeout.
func (l *RWLock) LockTimeout(ctx context.Context, wait time.Duration) (*Hold, error) {
	return l.session.LockTimeout(ctx, l.name, wait, l.as(Exclusive)...)
}

// RLock waits for the shared lock as long as ctx allows.
func (l *RWLock) RLock(ctx context.Context) (*Hold, error) {
	return l.session.Lock(ctx, l.name, l.as(Shared)...)
}

// TryRLock acquires the shared lock if no writer holds it and nobody waits for it. Otherwise it returns
// ErrNotAcquired.
func (l *RWLock) TryRLock(ctx context.Context) (*Hold, error) {
	return l.session.TryLock(ctx, l.name, l.as(Shared)...)
}

// RLockTimeout waits for the shared lock for at most wait, and then returns ErrTimeout.
func (l *RWLock) RLockTimeout(ctx context.Context, wait time.Duration) (*Hold, error) {
	return l.session.LockTimeout(ctx, l.name, wait, l.as(Shared)...)
}

// as returns the options for a call in the given mode.
func (l *RWLock) as(mode Mode) []LockOption { return inMode(l.opts, mode) }

// inMode returns the options with a mode appended, which overrides any mode in opts.
func inMode(opts []LockOption, mode Mode) []LockOption {
	return append(opts[:len(opts):len(opts)], func(o *lockOptions) { o.shared = mode == Shared })
}
