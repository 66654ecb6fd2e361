package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// panicked returns the value with which a function panics, as an error.
func panicked(t testing.TB, f func()) (err error) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			var l *LockerError
			if err, _ = p.(error); !errors.As(err, &l) || l.Name == "" {
				t.Fatalf("it panics with %v", p)
			}
		}
	}()
	f()
	return nil
}

func TestLocker(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		l := s.Locker(ctx, "till", func(reason error) { t.Error("lost:", reason) })
		wantErr(t, l.Err(), ErrNotHeld)
		for range 2 {
			l.Lock()
			if l.Err() != nil || l.Token() == 0 || l.Context().Err() != nil || f.held("till") != s.ID() {
				t.Error(l.Err(), l.Token())
			}
			held := l.Context()
			l.Unlock()
			wantErr(t, context.Cause(held), ErrReleased)
			wantErr(t, context.Cause(l.Context()), ErrNotHeld)
			if l.Token() != 0 || f.held("till") != 0 {
				t.Error("it is held after Unlock")
			}
		}
		wantErr(t, panicked(t, l.Unlock), ErrNotHeld)
		synctest.Wait()
	})
}

// TestLockerExcludes checks that goroutines of one program, and of two, exclude each other.
func TestLockerExcludes(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		var (
			wg    sync.WaitGroup
			in    atomic.Int32
			count int // guarded by the locks
		)
		for range 2 {
			l := f.session(c).Locker(ctx, "till", nil)
			for range 5 {
				wg.Go(func() {
					for range 10 {
						l.Lock()
						if in.Add(1) != 1 {
							t.Error("two at once")
						}
						time.Sleep(time.Millisecond)
						count++
						in.Add(-1)
						l.Unlock()
					}
				})
			}
		}
		wg.Wait()
		if count != 100 {
			t.Error(count)
		}
	})
}

// TestLockerLoss checks that a loss is reported immediately, that Unlock panics, and that another
// goroutine's hold is not released.
func TestLockerLoss(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		lost := make(chan error, 1)
		l := s.Locker(ctx, "till", func(reason error) { lost <- reason })
		l.Lock()
		next := make(chan struct{})
		go func() {
			l.Lock()
			close(next)
		}()
		synctest.Wait()
		f.force(l.hold, "stuck")
		wantErr(t, <-lost, ErrForced)
		wantErr(t, l.Err(), ErrForced)
		other := mustLock(t, f.session(c), "till")
		wantErr(t, panicked(t, l.Unlock), ErrForced)
		synctest.Wait()
		if f.held("till") == s.ID() {
			t.Error("it locked what another one holds")
		}
		ok(t, other.Unlock(ctx))
		<-next // the session is alive, so the Locker can be locked again
		l.Unlock()
		if len(lost) > 0 {
			t.Error("told twice:", <-lost)
		}
	})
}

// TestLockerExpires makes the session expire under a Locker whose program can no longer reach the cluster.
func TestLockerExpires(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		lost := make(chan error, 1)
		l := s.Locker(ctx, "till", func(reason error) { lost <- reason })
		quiet := s.Locker(ctx, "drawer", nil)
		l.Lock()
		quiet.Lock()
		started := time.Now()
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		waiting := make(chan error, 1)
		go func() { waiting <- panicked(t, l.Lock) }()
		wantErr(t, <-lost, ErrExpired)
		if took := time.Since(started); took >= 15*time.Second {
			t.Error("told after", took)
		}
		wantErr(t, <-waiting, ErrExpired)
		wantErr(t, panicked(t, quiet.Unlock), ErrExpired, ErrSessionLost)
		wantErr(t, panicked(t, l.Unlock), ErrExpired, ErrSessionLost)
		wantErr(t, panicked(t, l.Lock), ErrExpired)
		wantErr(t, panicked(t, l.Unlock), ErrNotHeld)
	})
}

func TestLockerGivesUpWithItsContext(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "till")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		l := s.Locker(ctx, "till", nil)
		first := make(chan error, 1)
		go func() { first <- panicked(t, l.Lock) }() // waits for the cluster
		synctest.Wait()
		wantErr(t, panicked(t, l.Lock), context.DeadlineExceeded) // waits for the other goroutine
		wantErr(t, <-first, context.DeadlineExceeded)
		ok(t, hold.Unlock(context.Background()))
		wantErr(t, panicked(t, l.Lock), context.DeadlineExceeded)

		// A lock that is held when its ctx ends remains held and is released by Unlock.
		ctx, cancel = context.WithCancel(context.Background())
		l = s.Locker(ctx, "till", nil)
		l.Lock()
		cancel()
		if l.Err() != nil {
			t.Error(l.Err())
		}
		l.Unlock()
		if f.held("till") != 0 {
			t.Error("it is held after Unlock")
		}
		wantErr(t, l.Err(), ErrNotHeld)
	})
}

// TestLockerRefused checks that a refused Lock leaves the Locker usable.
func TestLockerRefused(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s := f.session(c)
		hold := mustLock(t, s, "till")
		l := s.Locker(hold.Context(), "till", nil) // its own caller already holds it
		wantErr(t, panicked(t, l.Lock), ErrAlreadyHeld)
		wantErr(t, l.Err(), ErrNotHeld)
		stop := context.AfterFunc(ctx, func() { _ = hold.Unlock(context.Background()) })
		wantErr(t, panicked(t, l.Lock), ErrAlreadyHeld)
		if !stop() {
			t.Error("the second one waits for the first")
		}
	})
}
