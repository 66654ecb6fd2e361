package client

import (
	"context"
	"time"
)

// RWLock is a lock that readers hold together and a writer alone. Nobody overtakes: a
// reader who comes while a writer waits stands behind that writer, so that writers are
// not kept out by readers who keep coming. A reader's hold becomes a writer's with
// [Hold.Upgrade], a writer's a reader's with [Hold.Downgrade].
//
// It is a name and options, without any state: make as many of one lock as you like, and
// use each from any number of goroutines. Every call is an owner of its own, as those of
// [Session.Lock] are, whose errors these methods return.
//
// Only a writer's token fences. Those of readers say in which order they came.
type RWLock struct {
	session *Session
	name    string
	opts    []LockOption
}

// RWLock makes a lock for readers and writers. The options go with every call; the calls
// set the mode. [WithUnfair] is refused, since readers share.
func (s *Session) RWLock(name string, opts ...LockOption) *RWLock {
	return &RWLock{s, name, opts}
}

// Name is the lock's name.
func (l *RWLock) Name() string { return l.name }

// Lock waits for the lock alone, as long as ctx allows.
func (l *RWLock) Lock(ctx context.Context) (*Hold, error) {
	return l.session.Lock(ctx, l.name, l.as(Exclusive)...)
}

// TryLock takes the lock alone if nobody has it and nobody waits, else it returns
// ErrNotAcquired.
func (l *RWLock) TryLock(ctx context.Context) (*Hold, error) {
	return l.session.TryLock(ctx, l.name, l.as(Exclusive)...)
}

// LockTimeout waits at most wait for the lock alone, then it returns ErrTimeout.
func (l *RWLock) LockTimeout(ctx context.Context, wait time.Duration) (*Hold, error) {
	return l.session.LockTimeout(ctx, l.name, wait, l.as(Exclusive)...)
}

// RLock waits for the lock together with other readers, as long as ctx allows.
func (l *RWLock) RLock(ctx context.Context) (*Hold, error) {
	return l.session.Lock(ctx, l.name, l.as(Shared)...)
}

// TryRLock takes the lock together with other readers if no writer has it and nobody
// waits, else it returns ErrNotAcquired.
func (l *RWLock) TryRLock(ctx context.Context) (*Hold, error) {
	return l.session.TryLock(ctx, l.name, l.as(Shared)...)
}

// RLockTimeout waits at most wait for the lock together with other readers, then it
// returns ErrTimeout.
func (l *RWLock) RLockTimeout(ctx context.Context, wait time.Duration) (*Hold, error) {
	return l.session.LockTimeout(ctx, l.name, wait, l.as(Shared)...)
}

// as are the options of a call in that mode.
func (l *RWLock) as(mode Mode) []LockOption { return inMode(l.opts, mode) }

// inMode are the options with a mode that none of them changes.
func inMode(opts []LockOption, mode Mode) []LockOption {
	return append(opts[:len(opts):len(opts)], func(o *lockOptions) { o.shared = mode == Shared })
}
