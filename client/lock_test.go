package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestLockTryTimeout(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		a, b := f.session(c), f.session(c)
		hold := mustLock(t, a, "x")
		if hold.Name() != "x" || hold.Token() == 0 || hold.ID() == 0 || hold.Revision() == 0 || hold.Remaining() <= 0 {
			t.Fatalf("%+v", hold)
		}
		_, err := b.Lock(ctx, "x", WithTry())
		wantErr(t, err, ErrNotAcquired)
		_, err = a.Lock(ctx, "")
		wantErr(t, err, ErrInvalidArgument)
		_, err = b.Lock(ctx, "x", WithWait(-time.Second))
		wantErr(t, err, ErrInvalidArgument)
		waiting := lockSoon(ctx, b, "x")
		ok(t, hold.SetValue(ctx, []byte("v")))
		ok(t, hold.Unlock(ctx))
		ok(t, hold.Unlock(ctx))
		wantErr(t, context.Cause(hold.Context()), ErrReleased)
		wantErr(t, hold.SetValue(ctx, nil), ErrNotHeld)
		select {
		case <-hold.Lost():
			t.Fatal("released, not lost")
		default:
		}
		got := <-waiting
		ok(t, got.err)
		if got.hold.Token() <= hold.Token() {
			t.Fatal("tokens do not grow")
		}
	})
}

func TestContextIsCancelledBeforeTheReleaseIsSent(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		hold := mustLock(t, f.session(c), "x")
		f.set(func() {
			f.intercept = func(_ *fakeConn, req *wire.Request) bool {
				if req.GetRelease() != nil && plain(hold).Err() == nil {
					t.Error("the cluster may grant, and the context lives")
				}
				return false
			}
		})
		ok(t, hold.Unlock(context.Background()))
	})
}

func TestOwnerFollowsTheContext(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		type key struct{}
		hold, err := s.Lock(context.WithValue(context.Background(), key{}, "v"), "x")
		ok(t, err)
		if hold.Context().Value(key{}) != "v" {
			t.Fatal("values are lost")
		}
		inner, cancel := context.WithCancel(hold.Context())
		defer cancel()
		_, err = s.Lock(inner, "x", WithTry())
		wantErr(t, err, ErrAlreadyHeld)
		nested, err := s.Lock(inner, "y")
		ok(t, err)
		_, err = s.Lock(nested.Context(), "x", WithTry())
		wantErr(t, err, ErrAlreadyHeld)
		_, err = s.Lock(context.Background(), "x", WithTry())
		wantErr(t, err, ErrNotAcquired)
		_, err = f.session(c).Lock(inner, "x", WithTry())
		wantErr(t, err, ErrNotAcquired)
		ok(t, hold.Unlock(context.Background()))
		_, err = s.Lock(inner, "z")
		wantErr(t, err, context.Canceled, ErrReleased)
		if nested.Context().Err() != nil {
			t.Fatal("the nested hold ended with the outer one")
		}
	})
}

func TestDo(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		own := errors.New("own")
		err := s.Do(context.Background(), "x", func(ctx context.Context, token uint64) error {
			if token == 0 || ctx.Err() != nil || f.held("x") != s.ID() {
				t.Error("not held")
			}
			return own
		})
		wantErr(t, err, own)
		ctx, cancel := context.WithCancel(context.Background())
		err = s.Do(ctx, "x", func(inner context.Context, _ uint64) error {
			cancel()
			<-inner.Done()
			return nil
		})
		ok(t, err)
		if f.held("x") != 0 {
			t.Fatal("still held")
		}
		err = s.Do(context.Background(), "x", func(inner context.Context, _ uint64) error {
			f.clock.suspended.Add(int64(time.Hour))
			return inner.Err()
		})
		wantErr(t, err, ErrExpired)
	})
}

func TestCancelledWaitLeavesNothing(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "x")
		ctx, cancel := context.WithCancelCause(context.Background())
		waiting := lockSoon(ctx, s, "x")
		own := errors.New("own")
		cancel(own)
		got := <-waiting
		wantErr(t, got.err, context.Canceled, own)
		if errors.Is(got.err, ErrUncertain) {
			t.Fatal("it is known")
		}
		if f.count(cancels) != 1 {
			t.Fatal("no cancel was sent")
		}
		ok(t, hold.Unlock(context.Background()))
		if f.held("x") != 0 {
			t.Fatal("a cancelled wait holds")
		}
		_, err := s.Lock(ctx, "x")
		wantErr(t, err, context.Canceled)
	})
}

func TestGrantThatWinsAgainstCancelIsReleased(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "x")
		ctx, cancel := context.WithCancel(context.Background())
		waiting := lockSoon(ctx, s, "x")
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetCancel() != nil {
					f.intercept = nil
					f.service.drop("x")
				}
				return false
			}
		})
		cancel()
		wantErr(t, (<-waiting).err, context.Canceled)
		synctest.Wait()
		if f.held("x") != 0 {
			t.Fatal("the grant was kept")
		}
		wantErr(t, hold.Unlock(context.Background()), ErrNotHeld)
	})
}

func TestUnknownOutcomeIsResolvedBehindTheCaller(t *testing.T) {
	for _, cut := range []bool{false, true} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			s := f.session(c)
			var late func()
			f.set(func() {
				f.intercept = func(cn *fakeConn, req *wire.Request) bool {
					if req.GetAcquire() == nil {
						return false
					}
					f.intercept = nil
					result := f.service.serve(cn, req)
					late = func() { cn.answer(req, result) }
					return true
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := s.Lock(ctx, "x")
			wantErr(t, err, context.DeadlineExceeded, ErrUncertain)
			if f.held("x") != s.ID() {
				t.Fatal("the test proves nothing")
			}
			if cut {
				f.cut("n1")
				time.Sleep(time.Second)
			} else {
				f.set(late)
			}
			synctest.Wait()
			if f.held("x") != 0 {
				t.Fatal("held silently")
			}
			if twice := f.twice(); len(twice) > 0 {
				t.Fatalf("executed twice: %v", twice)
			}
		})
	}
}

func TestNeverSentIsNotUncertain(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Lock(ctx, "x")
		wantErr(t, err, context.DeadlineExceeded, ErrUnavailable)
		if errors.Is(err, ErrUncertain) {
			t.Fatal(err)
		}
		f.set(func() { f.node("n1").down = false })
		time.Sleep(2 * time.Second)
		if f.count(acquires) != 0 {
			t.Fatal("it was sent after all")
		}
	})
}

func TestUnlockIsRepeatedUntilItIsAnswered(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "x")
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		wantErr(t, hold.Unlock(ctx), context.DeadlineExceeded, ErrUncertain)
		if f.held("x") == 0 {
			t.Fatal("the test proves nothing")
		}
		refused := 0
		f.set(func() {
			f.node("n1").down = false
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				codes := []wire.Status_Code{wire.Status_UNAVAILABLE, wire.Status_UNCERTAIN, wire.Status_RESOURCE_EXHAUSTED}
				if req.GetRelease() == nil || refused == len(codes) {
					return false
				}
				cn.answer(req, respond(status(codes[refused])))
				refused++
				return true
			}
		})
		ok(t, hold.Unlock(context.Background()))
		if f.held("x") != 0 {
			t.Fatal("still held")
		}
		sent := f.all(releases)
		if len(sent) != 4 {
			t.Fatalf("%d releases", len(sent))
		}
		for i, r := range sent {
			if same := r.req.GetSeq() == sent[0].req.GetSeq(); same != (i < 3) {
				t.Fatal("a release is repeated under its number, unless the window was full")
			}
		}
	})
}

func TestReleaseThatFailsKeepsTheHold(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		hold := mustLock(t, f.session(c), "x")
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				f.intercept = nil
				cn.answer(req, respond(status(wire.Status_INTERNAL)))
				return true
			}
		})
		wantErr(t, hold.Unlock(context.Background()), ErrInternal)
		ok(t, hold.Unlock(context.Background()))
		if f.held("x") != 0 {
			t.Fatal("still held")
		}
	})
}

func TestOutcomesOfWaitsAreAcknowledged(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		a, b := f.session(c), f.session(c)
		hold := mustLock(t, a, "x")
		waiting := lockSoon(ctx, b, "x")
		ok(t, hold.Unlock(ctx))
		got := <-waiting
		ok(t, got.err)
		ok(t, got.hold.Unlock(ctx))
		last := f.all(releases)[1].req
		if len(last.GetAcked()) != 1 || last.GetAcked()[0] != 1 || last.GetAckedBelow() != 2 {
			t.Fatalf("acked %v, below %d", last.GetAcked(), last.GetAckedBelow())
		}

		// Many holds at a time need a separate request to acknowledge them.
		holds := make([]*Hold, 200)
		results := make([]<-chan lockResult, len(holds))
		for i := range holds {
			name := fmt.Sprintf("y%d", i)
			holds[i] = mustLock(t, a, name)
			results[i] = lockSoon(ctx, b, name)
		}
		for i, h := range holds {
			ok(t, h.Unlock(ctx))
			ok(t, (<-results[i]).err)
		}
		synctest.Wait()
		if n := f.count(acks); n < 2 {
			t.Fatalf("%d acknowledgements", n)
		}
		f.set(func() {
			if n := len(f.service.sessions[b.ID()].outcomes); n > ackBatch+1 {
				t.Fatalf("%d outcomes are kept for us", n)
			}
		})
	})
}
