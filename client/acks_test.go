package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// withhold delays the answer to the next acquire of name, which is executed, until the returned function is
// called.
func withhold(f *fake, name string) (answer func()) {
	var late func()
	f.set(func() {
		f.intercept = func(cn *fakeConn, req *wire.Request) bool {
			if req.GetAcquire().GetLocks() == nil || req.GetAcquire().GetLocks()[0].GetName() != name {
				return false
			}
			f.intercept = nil
			resp := f.service.serve(cn, req)
			late = func() { cn.answer(req, resp) }
			return true
		}
	})
	return func() { f.set(func() { late() }) }
}

func lastAcked(f *fake, condition func(seen) bool) []uint64 {
	found := f.all(condition)
	return found[len(found)-1].req.GetAcked()
}

func TestNothingAboveTheMarkIsAcknowledged(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		other := mustLock(t, f.session(c), "x")
		answer := withhold(f, "slow")
		slow := lockSoon(ctx, s, "slow") // sequence number 1
		waiting := lockSoon(ctx, s, "x") // sequence number 2
		ok(t, other.Unlock(ctx))
		got := <-waiting
		ok(t, got.err)
		ok(t, got.hold.Unlock(ctx))
		if acked := lastAcked(f, releases); len(acked) != 0 {
			t.Fatalf("acknowledged %v while number 1 may come again", acked)
		}
		answer()
		ok(t, (<-slow).err)
		mustLock(t, s, "y")
		if acked := lastAcked(f, acquires); !slices.Equal(acked, []uint64{2}) {
			t.Fatalf("acknowledged %v, want 2", acked)
		}
	})
}

func TestOutcomeLearntByRepetitionIsAcknowledged(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		mustLock(t, f.session(c), "x")
		withhold(f, "x")
		waiting := lockSoon(ctx, s, "x")
		f.cut("n1")
		f.set(func() { f.service.drop("x") })
		got := <-waiting
		ok(t, got.err)
		ok(t, got.hold.Unlock(ctx))
		if acked := lastAcked(f, releases); !slices.Equal(acked, []uint64{1}) {
			t.Fatalf("acknowledged %v, want 1", acked)
		}
	})
}

func TestWaitOfADisconnectedCallerIsCancelled(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		mustLock(t, f.session(c), "x")
		answer := withhold(f, "x")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Lock(ctx, "x")
		wantErr(t, err, ErrUncertain, context.DeadlineExceeded)
		answer()
		synctest.Wait()
		if f.count(cancels) != 1 || len(f.service.locks["x"].queue) != 0 {
			t.Fatal("it waits on for nobody")
		}
	})
}

func TestFramesOfAnAbandonedConnectionAreIgnored(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		synctest.Wait()
		c.mu.Lock()
		cn := c.conn
		cn.err = errors.New("left")
		c.mu.Unlock()
		lost := &wire.Push{SessionId: s.ID(), Body: &wire.Push_Lost{Lost: &wire.SessionLost{Reason: wire.SessionLost_SUPERSEDED}}}
		if c.handle(cn, &wire.ServerFrame{Frame: &wire.ServerFrame_Push{Push: lost}}) == nil || s.Err() != nil {
			t.Fatal("a connection that we left still speaks for the session")
		}
	})
}

// TestLongLineLeavesTheWindowSmall has many callers of one session queue for locks, and those that were
// served unlock while others still wait. The node never has to remember more outcomes than there can be
// requests in flight.
func TestLongLineLeavesTheWindowSmall(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() {
			took := time.Millisecond
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				took += time.Nanosecond // answers arrive in log order
				time.AfterFunc(took, func() { f.set(func() { cn.serveRequest(req) }) })
				return true
			}
		})
		const callers = 1000
		done := make(chan error, callers)
		for i := range callers {
			go func() {
				hold, err := s.Lock(context.Background(), fmt.Sprint("free/", i), WithTry())
				if err == nil {
					err = hold.Unlock(context.Background())
				}
				done <- err
			}()
		}
		for range callers {
			ok(t, <-done)
		}
		widest := uint64(0)
		for _, r := range f.all(func(r seen) bool { return r.req.GetSeq() != 0 }) {
			widest = max(widest, r.req.GetSeq()-r.req.GetAckedBelow())
		}
		if widest > uint64(f.window) {
			t.Fatalf("up to %d outcomes to be remembered, with %d requests under way at most", widest, f.window)
		}
		if twice := f.twice(); len(twice) > 0 {
			t.Fatalf("executed twice: %v", twice)
		}
	})
}

// TestRefusedReleaseDoesNotHoldTheMark checks that a release refused because the window is full does not
// hold back the mark, because only the mark frees the window.
func TestRefusedReleaseDoesNotHoldTheMark(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "a")
		refused := uint64(0)
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetRelease() == nil {
					return false
				}
				if refused == 0 {
					refused = req.GetSeq()
				}
				full := req.GetAckedBelow() <= refused
				if full {
					cn.answer(req, respond(&wire.Result{Status: wire.Status_RESOURCE_EXHAUSTED, Message: "max_window"}))
				}
				return full
			}
		})
		asked := time.Now()
		ok(t, hold.Unlock(context.Background()))
		if took := time.Since(asked); took > 100*time.Millisecond || f.held("a") != 0 {
			t.Fatalf("took %v", took)
		}
	})
}
