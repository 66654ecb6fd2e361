package client

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	reopenFirst = 50 * time.Millisecond // the longest pause before the first attempt to reopen a session
	reopenMost  = 5 * time.Second
)

// SupervisedOptions configures a supervised session.
type SupervisedOptions struct {
	// SessionOptions are those of each session that is opened.
	SessionOptions
	// FailFast makes calls return an error that matches ErrSessionLost while no session is open. Otherwise
	// they wait for one as long as their ctx allows.
	FailFast bool
	// OnLost is called each time a session was lost, one call at a time, in a goroutine of its own; the next session is
	// opened meanwhile. Losses that come before it has returned are joined into one. It may call the SDK, Close
	// included. The end of the session by Close is no loss. A panic ends the program.
	OnLost func(Loss)
}

// Loss reports that a session was lost with everything that it held.
type Loss struct {
	// Reason matches ErrSessionLost.
	Reason error
	// Locks are the names of the locks that were held, in order. The contexts of their holds have ended with
	// the same reason.
	Locks []string
}

// SupervisedSession is a session that is reopened whenever it is lost, for services that run for a long time.
// After its process was stopped, or its cluster was unreachable, for longer than the TTL, it works again by
// itself. What the lost session held is lost: each hold's context ends, with the reason as its cause, as with
// any [Session]. A call that still waits for its grant continues on the next session, at the end of the queue.
// A wait that [WithWait] bounds starts over there.
//
// If the cluster refuses the client's credential or denies it every right, the supervised session continues to try,
// since the token file or the policy may change. Calls return ErrUnauthenticated or ErrPermissionDenied until the
// first session has been opened, and wait afterwards, as they do for an unreachable cluster.
type SupervisedSession struct {
	client *Client
	opts   SupervisedOptions
	lost   chan struct{} // closed when it has ended for good
	end    context.CancelFunc
	ended  chan struct{} // closed when its goroutine has ended

	// Guarded by the client's mutex.
	reports outlet // of OnLost
	loss    *Loss  // not reported yet; nil if there is none

	mu      sync.Mutex
	current *Session      // nil while none is open
	change  chan struct{} // closed when current or err changes
	err     error         // why it has ended for good
	last    error         // why the last session was lost, or could not be opened
	opened  bool          // a session has been opened
}

// Supervise returns a supervised session. The first session is opened in the background. It must be closed.
func (c *Client) Supervise(opts SupervisedOptions) *SupervisedSession {
	ctx, cancel := context.WithCancel(c.use)
	s := &SupervisedSession{client: c, opts: opts, lost: make(chan struct{}), end: cancel, ended: make(chan struct{}),
		change: make(chan struct{})}
	s.reports.next = s.report
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		close(s.ended)
		s.finish(ErrClientClosed)
		return s
	}
	c.wg.Go(func() {
		defer close(s.ended)
		s.finish(s.run(ctx))
	})
	return s
}

// run keeps a session open until ctx ends or none can ever be opened. It returns the reason.
func (s *SupervisedSession) run(ctx context.Context) error {
	for failures := 0; ; {
		current, err := s.client.NewSession(ctx, s.opts.SessionOptions)
		switch {
		case ctx.Err() != nil:
			return s.ending(current)
		case errors.Is(err, ErrInvalidArgument):
			return err
		case err != nil:
			failures++
			s.client.say(slog.LevelWarn, "no session opened", "err", err)
			s.set(nil, err)
		default:
			failures = 0
			s.set(current, nil)
			select {
			case <-current.Lost():
			case <-ctx.Done():
			}
			reason := current.Err()
			if reason == nil || ctx.Err() != nil && errors.Is(reason, ErrClosed) {
				return s.ending(current)
			}
			s.set(nil, reason)
			s.tell(Loss{reason, current.lostLocks()})
		}
		select {
		case <-time.After(backoff(failures, reopenFirst, reopenMost)):
		case <-ctx.Done():
			return s.ending(nil)
		}
	}
}

// ending returns why the supervised session ends.
func (s *SupervisedSession) ending(current *Session) error {
	if s.client.use.Err() != nil {
		return ErrClientClosed
	}
	s.set(current, nil)
	return ErrClosed
}

// set publishes the current session, or why there is none.
func (s *SupervisedSession) set(current *Session, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.opened = current, s.opened || current != nil
	if reason != nil {
		s.last = reason
	}
	close(s.change)
	s.change = make(chan struct{})
}

// finish ends the supervised session for good.
func (s *SupervisedSession) finish(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = reason
	close(s.lost)
	close(s.change)
	s.change = make(chan struct{})
}

// tell passes a loss on to OnLost. If it has not returned from the one before, the two become one.
func (s *SupervisedSession) tell(loss Loss) {
	if s.opts.OnLost == nil {
		return
	}
	s.client.mu.Lock()
	defer s.client.unlock()
	if s.loss != nil {
		loss.Locks = slices.Compact(slices.Sorted(slices.Values(append(s.loss.Locks, loss.Locks...))))
	}
	s.loss = &loss
	s.client.wake(&s.reports)
}

// report returns the call of OnLost for a loss that is not reported yet.
func (s *SupervisedSession) report() func() {
	if s.loss == nil {
		return nil
	}
	loss := *s.loss
	s.loss = nil
	return func() { s.opts.OnLost(loss) }
}

// open waits for a session other than the given one, which was lost.
func (s *SupervisedSession) open(ctx context.Context, lost *Session) (*Session, error) {
	for {
		s.mu.Lock()
		current, change, err, last, opened := s.current, s.change, s.err, s.last, s.opened
		s.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case current != nil && current != lost:
			return current, nil
		case s.opts.FailFast && last != nil:
			return nil, notOpen(last)
		case !opened && (errors.Is(last, ErrUnauthenticated) || errors.Is(last, ErrPermissionDenied)):
			return nil, last
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, stopped(ctx, last)
		}
	}
}

// notOpen returns the error of a call that does not wait for the next session.
func notOpen(last error) error {
	if errors.Is(last, ErrSessionLost) {
		return last
	}
	return &reason{"quorumlock: no session is open: " + last.Error(), []error{ErrSessionLost, last}}
}

// retry makes a call on the current session, and again on the next one if the session is lost before the
// call is granted.
func (s *SupervisedSession) retry(ctx context.Context, call func(*Session) (*Hold, error)) (*Hold, error) {
	var current *Session
	for {
		var err error
		if current, err = s.open(ctx, current); err != nil {
			return nil, err
		}
		hold, err := call(current)
		if err == nil || s.opts.FailFast || ctx.Err() != nil || current.Err() == nil || !errors.Is(err, ErrSessionLost) {
			return hold, err
		}
	}
}

// Lock is [Session.Lock] on the current session.
func (s *SupervisedSession) Lock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	return s.retry(ctx, func(current *Session) (*Hold, error) { return current.Lock(ctx, name, opts...) })
}

// LockAll is [Session.LockAll] on the current session.
func (s *SupervisedSession) LockAll(ctx context.Context, specs []LockSpec, opts ...LockAllOption) (*Hold, error) {
	return s.retry(ctx, func(current *Session) (*Hold, error) { return current.LockAll(ctx, specs, opts...) })
}

// Do is [Session.Do] on the current session.
func (s *SupervisedSession) Do(ctx context.Context, name string, fn func(ctx context.Context, token uint64) error, opts ...LockOption) error {
	return do(ctx, s, name, fn, opts)
}

// Semaphore is like [Session.Semaphore].
func (s *SupervisedSession) Semaphore(name string, limit uint64, opts ...LockAllOption) *Semaphore {
	return &Semaphore{s, name, limit, opts}
}

// Election is like [Session.Election].
func (s *SupervisedSession) Election(name string, opts ...ElectionOption) *Election {
	return &Election{s, s.client, name, opts}
}

// Once is like [Session.Once].
func (s *SupervisedSession) Once(name string, keep time.Duration, opts ...OnceOption) *Once {
	return &Once{s, s.client, name, keep, opts}
}

// Locker is like [Session.Locker].
func (s *SupervisedSession) Locker(ctx context.Context, name string, onLost func(reason error), opts ...LockOption) *Locker {
	return newLocker(ctx, s, name, onLost, opts)
}

// Current returns the session that is open now, or nil.
func (s *SupervisedSession) Current() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// Lost returns a channel that is closed when the supervised session has ended for good: after Close, when the
// client was closed, or if the cluster refuses the options.
func (s *SupervisedSession) Lost() <-chan struct{} { return s.lost }

// Err returns why the supervised session has ended for good, or nil.
func (s *SupervisedSession) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the supervised session and closes the current session, as [Session.Close] does: ctx bounds the wait only,
// and the session is closed even if ctx has already ended. Calls that wait return ErrClosed. Losses from before are still
// reported: Close waits for OnLost for at most one second, and as long as ctx allows.
func (s *SupervisedSession) Close(ctx context.Context) error {
	s.end()
	<-s.ended // which waits for nothing
	s.mu.Lock()
	current, err := s.current, s.err
	s.mu.Unlock()
	switch {
	case current != nil:
		err = current.Close(ctx)
	case !errors.Is(err, ErrClientClosed):
		err = nil
	}
	s.client.mu.Lock()
	reporting := s.client.calling[&s.reports]
	s.client.unlock()
	if reporting != nil {
		awaitCalls(ctx, reporting)
	}
	return err
}
