package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
)

// collect gathers the ids of sessions.
func collect(ids map[uint64]bool) func(fsm.Session) bool {
	return func(s fsm.Session) bool { ids[s.ID] = true; return true }
}

func hot(r *rand.Rand) string { return fmt.Sprint("hot/", r.IntN(hotLocks)) }

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// fast locks and unlocks.
func (l *load) fast(s *client.Session, r *rand.Rand) {
	for !l.stopping() {
		name := hot(r)
		h, entry, err := l.locking(s, name, func() (*client.Hold, error) { return s.Lock(l.ctx, name) })
		if err != nil {
			l.fault("lock %s: %v", name, err)
			return
		}
		pause(between(r, time.Millisecond, 60*time.Millisecond))
		l.must("unlock "+name, l.unlock(h, entry))
		pause(between(r, 50*time.Millisecond, 400*time.Millisecond))
	}
}

// brief holds what it was given for a moment.
func (l *load) brief(r *rand.Rand, h *client.Hold, entry *held) {
	pause(between(r, time.Millisecond, 20*time.Millisecond))
	l.must("unlock "+h.Name(), l.unlock(h, entry))
}

// timed waits for what it may not get.
func (l *load) timed(s *client.Session, r *rand.Rand) {
	for !l.stopping() {
		name := hot(r)
		if r.IntN(3) == 0 {
			name = "pinned/0"
		}
		wait := between(r, time.Millisecond, 400*time.Millisecond)
		h, entry, err := l.locking(s, name, func() (*client.Hold, error) { return s.LockTimeout(l.ctx, name, wait) })
		switch {
		case err == nil:
			l.brief(r, h, entry)
		case !errors.Is(err, client.ErrTimeout):
			l.fault("lock %s within %v: %v", name, wait, err)
			return
		}
		pause(between(r, 20*time.Millisecond, 300*time.Millisecond))
	}
}

// cancelling gives up waiting.
func (l *load) cancelling(s *client.Session, r *rand.Rand) {
	for !l.stopping() {
		name := hot(r)
		if r.IntN(3) == 0 {
			name = "pinned/1"
		}
		ctx, cancel := context.WithTimeout(l.ctx, between(r, time.Microsecond, 120*time.Millisecond))
		h, entry, err := l.locking(s, name, func() (*client.Hold, error) { return s.Lock(ctx, name) })
		cancel()
		switch {
		case err == nil:
			l.brief(r, h, entry)
		case !errors.Is(err, context.DeadlineExceeded):
			l.fault("lock %s for a while: %v", name, err)
			return
		}
		pause(between(r, 20*time.Millisecond, 300*time.Millisecond))
	}
}

// trying takes what is free.
func (l *load) trying(s *client.Session, r *rand.Rand) {
	for !l.stopping() {
		name := hot(r)
		h, entry, err := l.locking(s, name, func() (*client.Hold, error) { return s.TryLock(l.ctx, name) })
		switch {
		case err == nil:
			l.brief(r, h, entry)
		case !errors.Is(err, client.ErrNotAcquired):
			l.fault("try %s: %v", name, err)
			return
		}
		pause(between(r, 50*time.Millisecond, 500*time.Millisecond))
	}
}

// closing opens sessions and closes them while they hold and wait.
func (l *load) closing(cl *client.Client, r *rand.Rand) {
	for !l.stopping() {
		s, err := l.open(l.ctx, cl, "closing", steadyTTL, true)
		if err != nil {
			l.fault("open a session: %v", err)
			return
		}
		name := hot(r)
		_, _, err = l.locking(s, name, func() (*client.Hold, error) { return s.Lock(l.ctx, name) })
		l.must("lock "+name, err)
		waited := make(chan error, 1)
		go func() {
			_, _, err := l.locking(s, "pinned/0", func() (*client.Hold, error) { return s.Lock(l.ctx, "pinned/0") })
			waited <- err
		}()
		pause(between(r, time.Millisecond, 30*time.Millisecond))
		l.must("close", s.Close(l.ctx))
		if err := <-waited; !errors.Is(err, client.ErrClosed) {
			l.fault("a wait in a session that was closed: %v", err)
		}
		pause(between(r, 200*time.Millisecond, time.Second))
	}
}

// frail uses a machine that is cut off now and then: it may lose its session, and then
// opens another.
func (l *load) frail(cl *client.Client, i int, r *rand.Rand) {
	defer func() { _ = cl.Close() }()
	for !l.stopping() {
		s, err := l.open(l.ctx, cl, "frail", frailTTL, false)
		if err != nil {
			return
		}
		for !l.stopping() && s.Err() == nil {
			name := hot(r)
			if r.IntN(2) == 0 {
				name = fmt.Sprint("frail/", i)
			}
			l.hold(s, r, name)
			pause(between(r, 10*time.Millisecond, 200*time.Millisecond))
		}
		_ = s.Close(l.ctx)
	}
}

// hold takes a lock and works as long as it is held.
func (l *load) hold(s *client.Session, r *rand.Rand, name string) {
	h, entry, err := l.locking(s, name, func() (*client.Hold, error) { return s.Lock(l.ctx, name) })
	if err != nil {
		if !errors.Is(err, client.ErrSessionLost) {
			l.fault("lock %s: %v", name, err)
		}
		return
	}
	select {
	case <-h.Context().Done():
	case <-time.After(between(r, time.Millisecond, 300*time.Millisecond)):
	}
	if err := l.unlock(h, entry); err != nil && !errors.Is(err, client.ErrSessionLost) {
		l.fault("unlock %s: %v", name, err)
	}
}

// dying is processes that end while they hold a lock.
func (l *load) dying(r *rand.Rand) {
	for round := 0; !l.stopping(); round++ {
		cl := l.c.client(host(4))
		s, err := l.open(l.ctx, cl, "dying", frailTTL, false)
		if err == nil {
			name := fmt.Sprint("frail/", round%2)
			_, _, err = l.locking(s, name, func() (*client.Hold, error) { return s.Lock(l.ctx, name) })
		}
		if err != nil && !errors.Is(err, client.ErrSessionLost) {
			l.fault("dying: %v", err)
		}
		pause(between(r, time.Millisecond, 100*time.Millisecond))
		_ = cl.Close()
		pause(between(r, time.Second, 4*time.Second))
	}
}
