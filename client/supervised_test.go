package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// supervise returns a supervised session that collects its losses.
func supervise(t *testing.T, c *Client, failFast bool) (*SupervisedSession, *[]Loss) {
	t.Helper()
	var losses []Loss
	s := c.Supervise(SupervisedOptions{
		SessionOptions: SessionOptions{TTL: 15 * time.Second}, FailFast: failFast,
		OnLost: func(l Loss) { losses = append(losses, l) },
	})
	synctest.Wait()
	if s.Current() == nil {
		t.Fatal("no session was opened")
	}
	return s, &losses
}

// outage makes the cluster unreachable for longer than the TTL of its sessions.
func (f *fake) outage(d time.Duration) {
	f.set(func() { f.node("n1").down = true })
	f.cut("n1")
	time.Sleep(d)
	f.set(func() {
		for _, s := range f.service.sessions {
			f.service.end(s)
		}
		f.node("n1").down = false
	})
}

// TestSupervisedSessionIsReopened checks that after an outage longer than the TTL the service works again
// without any action, and that its holders were told.
func TestSupervisedSessionIsReopened(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s, losses := supervise(t, c, false)
		first := s.Current()
		held := must(s.LockAll(ctx, Names("a", "b")))
		other := must(s.Lock(ctx, "c"))
		ok(t, must(s.Lock(ctx, "d")).Unlock(ctx))
		waiting := soon(func(ctx context.Context) (*Hold, error) { return s.Lock(ctx, "c") }, ctx)
		f.outage(time.Minute)
		wantErr(t, context.Cause(held.Context()), ErrExpired, ErrSessionLost)
		wantErr(t, context.Cause(other.Context()), ErrExpired)

		again := must(s.Lock(ctx, "a"))
		if s.Current() == first || s.Current().ID() == first.ID() || again.Token() <= held.Token() {
			t.Error("it is the session of before")
		}
		if w := <-waiting; w.err != nil || w.hold.Token() <= other.Token() {
			t.Error("the wait did not go on:", w.err)
		}
		synctest.Wait()
		if len(*losses) != 1 || !errors.Is((*losses)[0].Reason, ErrExpired) || !slices.Equal((*losses)[0].Locks, []string{"a", "b", "c"}) {
			t.Error(*losses)
		}
		ok(t, s.Close(ctx))
		wantErr(t, s.Err(), ErrClosed)
		<-s.Lost()
		if synctest.Wait(); len(*losses) != 1 {
			t.Error("a normal close is no loss:", *losses)
		}
		_, err := s.Lock(ctx, "a")
		wantErr(t, err, ErrClosed)
	})
}

// TestSupervisedSessionThatFailsFast checks that calls fail while no session is open, if asked for.
func TestSupervisedSessionThatFailsFast(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s, _ := supervise(t, c, true)
		ok(t, must(s.Lock(ctx, "x")).Unlock(ctx))
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		time.Sleep(time.Minute)
		began := time.Now()
		_, err := s.Lock(ctx, "x")
		wantErr(t, err, ErrSessionLost, ErrExpired)
		if took := time.Since(began); took > 0 {
			t.Errorf("it waited %v", took)
		}
		f.set(func() { f.node("n1").down = false })
		time.Sleep(10 * time.Second)
		ok(t, must(s.Lock(ctx, "x")).Unlock(ctx))
		ok(t, s.Close(ctx))
	})
}

// TestSupervisedSessionWaits checks that a call waits for a session only as long as its ctx allows.
func TestSupervisedSessionWaits(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		f.set(func() { f.node("n1").down = true })
		s := c.Supervise(SupervisedOptions{})
		_, err := s.Lock(withTimeout(t, time.Second), "x")
		wantErr(t, err, context.DeadlineExceeded)
		f.set(func() { f.node("n1").down = false })
		hold := must(s.Lock(ctx, "x"))
		_, err = s.Lock(ctx, "x", WithTry()) // no loss: the error is the caller's
		wantErr(t, err, ErrNotAcquired)
		ok(t, hold.Unlock(ctx))
		ok(t, s.Close(ctx))
		ok(t, s.Close(ctx))
	})
}

// TestSupervisedSessionEnds checks the reasons for which a supervised session ends for good.
func TestSupervisedSessionEnds(t *testing.T) {
	for name, test := range map[string]struct {
		opts SessionOptions
		end  func(c *Client)
		want error
	}{
		"invalid options": {SessionOptions{TTL: time.Microsecond}, func(*Client) {}, ErrInvalidArgument},
		"client closed":   {SessionOptions{}, func(c *Client) { _ = c.Close() }, ErrClientClosed},
	} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			s := c.Supervise(SupervisedOptions{SessionOptions: test.opts})
			synctest.Wait()
			test.end(c)
			<-s.Lost()
			_, err := s.Lock(context.Background(), "x")
			if !errors.Is(err, test.want) || !errors.Is(s.Err(), test.want) {
				t.Errorf("%s: %v, %v", name, err, s.Err())
			}
			_ = s.Close(context.Background())
		})
	}
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		_ = c.Close()
		s := c.Supervise(SupervisedOptions{})
		wantErr(t, s.Err(), ErrClientClosed)
		wantErr(t, s.Close(context.Background()), ErrClientClosed)
	})
}

// TestSlowOnLost checks that losses that come while OnLost runs are joined, and delay nothing.
func TestSlowOnLost(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		var told [][]string
		s := c.Supervise(SupervisedOptions{SessionOptions: SessionOptions{TTL: 5 * time.Second}, OnLost: func(l Loss) {
			told = append(told, l.Locks)
			time.Sleep(10 * time.Minute)
		}})
		for _, name := range []string{"a", "b", "c"} {
			must(s.Lock(ctx, name))
			f.outage(30 * time.Second)
		}
		must(s.Lock(ctx, "d"))
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if want := [][]string{{"a"}, {"b", "c"}}; !slices.EqualFunc(told, want, slices.Equal) {
			t.Errorf("told %v, want %v", told, want)
		}
		ok(t, s.Close(ctx))
	})
}

// TestCloseIsNoLoss checks the state after a normal close.
func TestCloseIsNoLoss(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		ok(t, s.Close(context.Background()))
		if got := <-s.StateChanges(); got != Closed || s.State() != Closed {
			t.Error(got, s.State())
		}
	})
}

// TestElectionRun checks that a candidate stands again after it lost its session and after it handed over,
// and that a waiter alone takes nothing from it.
func TestElectionRun(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s, _ := supervise(t, c, false)
		type term struct {
			ctx context.Context
			*Leadership
		}
		terms, next := make(chan term), make(chan error)
		result := make(chan error, 1)
		go func() {
			result <- s.Election("scheduler", WithValue([]byte("me")), OnWanted(nil)).Run(ctx, func(ctx context.Context, l *Leadership) error {
				terms <- term{ctx, l}
				select {
				case err := <-next:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
		leads := func() (next term) {
			select {
			case next = <-terms:
			case err := <-result:
				t.Fatalf("Run ended: %v", err)
			}
			return next
		}
		first := leads()
		rival := f.session(f.client())
		waiting := soon(func(ctx context.Context) (*Hold, error) { return rival.Lock(ctx, "scheduler") }, ctx)
		<-first.Wanted()
		if synctest.Wait(); first.ctx.Err() != nil {
			t.Fatal("a waiter ended the leadership")
		}
		next <- nil // handed over
		second := <-waiting
		ok(t, second.err)
		ok(t, second.hold.Unlock(ctx))
		third := leads()
		f.outage(time.Minute)
		<-third.ctx.Done()
		wantErr(t, context.Cause(third.ctx), ErrExpired)
		fourth := leads()
		if fourth.Token() <= third.Token() {
			t.Error(fourth.Token(), third.Token())
		}
		if leader, err := c.Leader(ctx, "scheduler"); err != nil || string(leader.Value) != "me" || leader.Token != fourth.Token() {
			t.Error(leader, err)
		}
		broke := errors.New("cannot lead")
		next <- broke
		wantErr(t, <-result, broke)
		if f.held("scheduler") != 0 {
			t.Error("still held after Run")
		}
		ok(t, s.Close(ctx))
	})
}

// TestElectionRunEnds checks that Run ends with its ctx, and resigns.
func TestElectionRunEnds(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx, cancel := context.WithCancel(context.Background())
		s := f.session(c)
		result := make(chan error, 1)
		go func() {
			result <- s.Election("x").Run(ctx, func(ctx context.Context, _ *Leadership) error { <-ctx.Done(); return nil })
		}()
		synctest.Wait()
		if f.held("x") != s.ID() {
			t.Fatal("nobody leads")
		}
		cancel()
		wantErr(t, <-result, context.Canceled)
		if f.held("x") != 0 {
			t.Error("still held after Run")
		}
		lost := f.session(c)
		ok(t, lost.Close(context.Background()))
		wantErr(t, lost.Election("x").Run(context.Background(), nil), ErrClosed)
	})
}
