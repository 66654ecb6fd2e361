package client

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func (f *fake) revoke(h *Hold, reason string, grace time.Duration) {
	f.set(func() {
		f.service.revision++
		f.service.revoke(&wire.Revoke{HoldId: h.ID(), Token: h.Token(), Reason: reason, GraceMs: uint32(grace / time.Millisecond)})
	})
}

func (f *fake) force(h *Hold, reason string) {
	f.set(func() {
		f.service.revision++
		f.service.force(&wire.ForceRelease{HoldId: h.ID(), Token: h.Token(), Reason: reason})
	})
}

func TestForcedHoldIsPushedAlone(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		hold, other := mustLock(t, s, "x"), mustLock(t, s, "y")
		inner, err := s.Lock(hold.Context(), "x", Reentrant())
		ok(t, err)
		f.force(hold, "stuck")
		<-hold.Context().Done()
		<-inner.Lost()
		cause := context.Cause(inner.Context())
		wantErr(t, cause, ErrForced)
		if errors.Is(cause, ErrSessionLost) || cause.Error() != "quorumlock: taken away by an operator: stuck" {
			t.Fatal(cause)
		}
		wantErr(t, hold.Unlock(ctx), ErrForced)
		wantErr(t, inner.Extend(ctx, time.Second), ErrForced)
		ok(t, other.Unlock(ctx))
		if s.Err() != nil || f.count(releases) != 1 {
			t.Fatal("the session is not as it was")
		}
		ok(t, mustLock(t, s, "x").Unlock(ctx))
	})
}

// TestForcedInABreak checks that a hold taken away while disconnected is missing from the answer to the
// attach.
func TestForcedInABreak(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		hold := mustLock(t, s, "x")
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		f.force(hold, "stuck")
		released := make(chan error, 1)
		other := mustLockDown(t, f, s, "y")
		go func() { released <- other.Unlock(ctx) }()
		synctest.Wait()
		f.set(func() { f.node("n1").down = false })
		<-hold.Context().Done()
		wantErr(t, context.Cause(hold.Context()), ErrForced, ErrNotHeld)
		ok(t, <-released)
		wantErr(t, hold.Unlock(ctx), ErrForced)
	})
}

// mustLockDown adds a hold to a session while no node answers, as if it had been there before.
func mustLockDown(t *testing.T, f *fake, s *Session, name string) *Hold {
	t.Helper()
	f.set(func() {
		f.service.plant(&claim{session: f.service.sessions[s.ID()], seq: 1, id: 77, token: 77, locks: []*wire.LockRequest{{Name: name}}})
	})
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	h := newHold(s, name, 77, 77, 1)
	h.asked = context.Background()
	return h
}

// TestForcedDuringUnlock checks that a release in flight when the hold is taken away returns the reason.
func TestForcedDuringUnlock(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		hold := mustLock(t, f.session(c), "x")
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetRelease() == nil {
					return false
				}
				f.intercept = nil
				f.service.force(&wire.ForceRelease{HoldId: hold.ID(), Token: hold.Token(), Reason: "stuck"})
				return false
			}
		})
		wantErr(t, hold.Unlock(context.Background()), ErrForced)
		wantErr(t, context.Cause(hold.Context()), ErrReleased)
	})
}

// TestGrantThatIsLostAlready checks that a grant is refused if its answer arrives after the report of its
// end, or after an attach has shown that it is gone.
func TestGrantThatIsLostAlready(t *testing.T) {
	for _, broken := range []bool{false, true} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			s := f.session(c)
			f.set(func() {
				f.intercept = func(cn *fakeConn, req *wire.Request) bool {
					if req.GetAcquire() == nil {
						return false
					}
					f.intercept = nil
					resp := f.service.serve(cn, req)
					f.service.revision++
					f.service.force(&wire.ForceRelease{HoldId: resp.Result.GetHoldId(), Token: resp.Result.GetToken(), Reason: "stuck"})
					if broken {
						_ = cn.nc.Close()
					} else {
						cn.answer(req, resp)
					}
					return true
				}
			})
			_, err := s.Lock(context.Background(), "x")
			wantErr(t, err, ErrForced)
			if s.holds.count()+len(s.early) != 0 {
				t.Fatal("it stays in the books")
			}
			mustLock(t, s, "x")
		})
	}
}

func TestHolderIsNotifiedOfWaiters(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		waiters := 0
		var told []Revocation
		hold, err := s.Lock(ctx, "x", OnWanted(func() { waiters++ }), OnRevoked(func(r Revocation) { told = append(told, r) }))
		ok(t, err)
		quiet := mustLock(t, s, "y")
		wanted, revocations := hold.Wanted(), hold.Revoked()
		lockSoon(ctx, s, "y")
		lockSoon(ctx, s, "x")
		lockSoon(ctx, s, "x")
		<-wanted
		<-hold.Wanted() // also for those who ask later
		if len(revocations) != 0 {
			t.Fatal("a waiter is no revocation")
		}
		f.revoke(hold, "deploy", 0)
		f.revoke(hold, "deploy now", 0)
		synctest.Wait()
		want := Revocation{Reason: "deploy now"}
		if got := <-revocations; got != want {
			t.Fatal(got)
		}
		f.cut("n1") // the answer to the attach repeats the notice
		mustLock(t, s, "z")
		synctest.Wait()
		if len(revocations) != 0 || waiters != 1 || len(told) == 0 || told[len(told)-1] != want {
			t.Fatal(waiters, told)
		}
		if hold.Remaining() != s.Remaining() {
			t.Fatal("a revocation without a grace bounds nothing")
		}
		f.revoke(quiet, "all of it", 0)
		synctest.Wait()
		if got := <-quiet.Revoked(); got != (Revocation{Reason: "all of it"}) {
			t.Fatal(got)
		}
		select {
		case <-quiet.Wanted():
			t.Fatal("nobody asked to be told of waiters")
		default:
		}
		ok(t, hold.Unlock(ctx))
		if _, more := <-revocations; more {
			t.Fatal("not closed")
		}
		if _, more := <-hold.Revoked(); more {
			t.Fatal("not closed")
		}
	})
}

// TestSlowNoticeFunction checks that the function is called one call at a time, skips outdated notices, and
// blocks nothing.
func TestSlowNoticeFunction(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		var told []string
		next := make(chan struct{})
		hold, err := s.Lock(ctx, "x", OnRevoked(func(r Revocation) {
			told = append(told, r.Reason)
			<-next
		}))
		ok(t, err)
		for _, reason := range []string{"1", "2", "3"} {
			f.revoke(hold, reason, 0)
			synctest.Wait()
		}
		ok(t, mustLock(t, s, "y").Unlock(ctx))
		next <- struct{}{}
		next <- struct{}{}
		if !slices.Equal(told, []string{"1", "3"}) {
			t.Fatal(told)
		}
		f.revoke(hold, "4", 0)
		synctest.Wait()
		f.revoke(hold, "5", 0)
		ok(t, hold.Unlock(ctx))
		next <- struct{}{}
		synctest.Wait()
		if len(told) != 3 {
			t.Fatal("told after its end")
		}
	})
}

// TestGrace checks that a grace ends here before it ends on the cluster.
func TestGrace(t *testing.T) {
	for _, grace := range []time.Duration{time.Second, 4 * time.Second, 30 * time.Second} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			f.set(func() { f.lag = func() time.Duration { return 30 * time.Millisecond } })
			s := f.session(c)
			hold := mustBound(t, s, "x", time.Minute)
			awaitOldProof(s, 4*time.Second)
			var late atomic.Bool
			f.set(func() {
				f.onLost = func(*claim, wire.HoldLost_Reason) { late.Store(plain(hold).Err() == nil) }
			})
			began := time.Now()
			f.revoke(hold, "deploy", grace)
			time.Sleep(100 * time.Millisecond)
			wantErr(t, hold.Extend(context.Background(), 0), ErrFailedPrecondition)
			<-hold.Context().Done()
			wantErr(t, context.Cause(hold.Context()), ErrForced)
			if took := time.Since(began); took < grace-margin(grace)-100*time.Millisecond || took >= grace {
				t.Fatalf("ended after %v of %v", took, grace)
			}
			time.Sleep(time.Minute)
			if late.Load() || f.held("x") != 0 {
				t.Fatal("late")
			}
		})
	}
}

// TestGraceDoesNotProlongAHold checks that a grace longer than the rest of the max_hold does not prolong
// the hold, and that Extend is refused during the grace.
func TestGraceDoesNotProlongAHold(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		const bound = 10 * time.Second
		began := time.Now()
		hold := mustBound(t, s, "x", bound)
		time.Sleep(2 * time.Second)
		f.revoke(hold, "deploy", time.Minute)
		time.Sleep(time.Second)
		f.revoke(hold, "deploy soon", time.Minute)
		if left := hold.Remaining(); left > bound-3*time.Second {
			t.Errorf("%v remain of %v", left, bound)
		}
		<-hold.Context().Done()
		wantErr(t, context.Cause(hold.Context()), ErrHoldExpired)
		if took := time.Since(began); took < bound-time.Second || took >= bound {
			t.Fatalf("ended after %v of %v", took, bound)
		}
	})
}

// TestGraceWithoutAnAnswer checks which time counts if no node answers after the notice: what is left as of
// the last proof, or half of the grace.
func TestGraceWithoutAnAnswer(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{2 * time.Second: time.Second, 30 * time.Second: 0} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			s, err := c.NewSession(context.Background(), SessionOptions{TTL: time.Minute})
			ok(t, err)
			hold := mustLock(t, s, "x")
			awaitOldProof(s, 4*time.Second)
			f.set(func() { f.intercept = func(*fakeConn, *wire.Request) bool { return true } })
			began := time.Now()
			f.revoke(hold, "deploy", grace)
			<-hold.Context().Done()
			took := time.Since(began)
			if want == 0 {
				want = grace - margin(grace) - 4*time.Second
				took = took.Round(100 * time.Millisecond)
				want = want.Round(100 * time.Millisecond)
			}
			if took > want || took < want-time.Second {
				t.Fatalf("ended after %v, want %v", took, want)
			}
		})
	}
}

// TestGraceThatBeganInABreak checks that a revocation made while disconnected is reported by the attach,
// and bounded by the last proof.
func TestGraceThatBeganInABreak(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "x")
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		began := time.Now()
		f.revoke(hold, "deploy", 10*time.Second)
		time.Sleep(2 * time.Second)
		f.set(func() { f.node("n1").down = false })
		got := <-hold.Revoked()
		if got != (Revocation{"deploy", 10 * time.Second}) {
			t.Fatal(got)
		}
		<-hold.Context().Done()
		if took := time.Since(began); took > 10*time.Second || took < 9*time.Second {
			t.Fatalf("ended after %v", took)
		}
		wantErr(t, context.Cause(hold.Context()), ErrForced)
	})
}

// TestGraceThroughABreak checks that a running grace, which the answer to the attach repeats, does not
// start over.
func TestGraceThroughABreak(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		calls := 0
		hold, err := s.Lock(context.Background(), "x", OnWanted(func() { calls++ }), OnRevoked(func(Revocation) { calls++ }))
		ok(t, err)
		began := time.Now()
		f.revoke(hold, "deploy", 20*time.Second)
		time.Sleep(10 * time.Second)
		asked := f.count(func(s seen) bool { return s.req.GetVerifyToken() != nil })
		f.set(func() {
			f.intercept = func(_ *fakeConn, req *wire.Request) bool { return req.GetVerifyToken() != nil }
		})
		f.cut("n1")
		lockSoon(context.Background(), f.session(c), "x") // adds a notice
		<-hold.Context().Done()
		if took := time.Since(began); took > 20*time.Second || took < 19*time.Second || calls != 2 || asked != 1 {
			t.Fatalf("ended after %v, told %d times", took, calls) // of the grace, and of the waiter
		}
	})
}

func TestOddNotices(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "x")
		f.set(func() {
			cn := f.node("n1").conns[0]
			for _, id := range []uint64{s.ID(), 99} {
				cn.push(&wire.Push{SessionId: id, Body: &wire.Push_HoldLost{HoldLost: &wire.HoldLost{HoldId: 1234}}})
				cn.push(&wire.Push{SessionId: id, Body: &wire.Push_HoldLost{}})
				cn.push(&wire.Push{SessionId: id, Body: &wire.Push_HoldNotice{}})
				cn.push(&wire.Push{SessionId: id, Body: &wire.Push_HoldNotice{HoldNotice: &wire.HoldNotice{HoldId: hold.ID()}}})
			}
			cn.push(&wire.Push{Body: &wire.Push_Watch{}})
			cn.push(&wire.Push{Body: &wire.Push_Watch{Watch: &wire.WatchPush{RequestId: 7}}})
		})
		ok(t, hold.Unlock(context.Background()))
	})
}
