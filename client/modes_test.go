package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestReadersShareAndWritersDoNot(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		first, err := s.Lock(ctx, "x", WithShared())
		ok(t, err)
		second, err := s.Lock(ctx, "x", WithTry(), WithShared())
		ok(t, err)
		if first.Mode() != Shared || second.ID() == first.ID() {
			t.Fatal(first.Mode())
		}
		_, err = s.Lock(ctx, "x", WithTry())
		wantErr(t, err, ErrNotAcquired)
		waiting := lockSoon(ctx, s, "x")
		ok(t, first.Unlock(ctx))
		ok(t, second.Unlock(ctx))
		writer := <-waiting
		ok(t, writer.err)
		if writer.hold.Mode() != Exclusive {
			t.Fatal(writer.hold.Mode())
		}
	})
}

func TestOptionsAreSent(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		_, err := s.Lock(ctx, "x", WithUnfair(), Reentrant(), WithMaxHold(time.Second+time.Microsecond), WithLockDelay(2*time.Second),
			OnWanted(nil), AllowDeadlock(), WithValue([]byte("v")))
		ok(t, err)
		got := f.all(acquires)[0].req.GetAcquire()
		if got.GetOrder() != wire.Order_UNFAIR || !got.GetReentrant() || got.GetMaxHoldMs() != 1001 || got.GetLockDelayMs() != 2000 ||
			!got.GetNotify() || !got.GetAllowDeadlock() || string(got.GetValue()) != "v" {
			t.Fatal(got)
		}
		for _, opt := range []interface {
			LockOption
			LockAllOption
		}{WithMaxHold(-1), WithLockDelay(60 * 24 * time.Hour), WithWait(-1)} {
			_, err := s.Lock(ctx, "y", opt)
			wantErr(t, err, ErrInvalidArgument)
			_, err = s.LockAll(ctx, []LockSpec{{Name: "y"}}, opt)
			wantErr(t, err, ErrInvalidArgument)
		}
	})
}

func TestSeveralAtOnce(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		b := mustLock(t, s, "b")
		specs := []LockSpec{{Name: "a"}, {Name: "b", Mode: Shared}, {Name: "c", Limit: 3, Permits: 2}}
		_, err := s.LockAll(ctx, specs, WithTry())
		wantErr(t, err, ErrNotAcquired)
		_, err = s.LockAll(ctx, specs, WithWait(time.Second))
		wantErr(t, err, ErrTimeout)
		_, err = s.LockAll(ctx, specs, WithWait(-1))
		wantErr(t, err, ErrInvalidArgument)
		_, err = s.LockAll(ctx, nil)
		wantErr(t, err, ErrInvalidArgument)
		done := make(chan lockResult, 1)
		go func() {
			hold, err := s.LockAll(ctx, specs)
			done <- lockResult{hold, err}
		}()
		synctest.Wait()
		if f.held("a") != 0 {
			t.Fatal("it holds while it waits")
		}
		ok(t, b.Unlock(ctx))
		got := <-done
		ok(t, got.err)
		if !slices.Equal(got.hold.Names(), []string{"a", "b", "c"}) || got.hold.Name() != "a" || !slices.Equal(b.Names(), []string{"b"}) {
			t.Fatal(got.hold.Names())
		}
		f.cut("n1") // the attach reports it again
		_, err = s.Lock(ctx, "a", WithTry())
		wantErr(t, err, ErrNotAcquired)
		ok(t, got.hold.Context().Err())
		ok(t, got.hold.Unlock(ctx))
		f.set(func() {
			if len(f.service.locks) != 0 {
				t.Error("not all are free")
			}
		})
	})
}

func TestSemaphore(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		two, err := s.LockAll(ctx, []LockSpec{{Name: "pool", Limit: 3, Permits: 2}})
		ok(t, err)
		if two.Mode() != Permits || two.Mode().String() != "permits" {
			t.Fatal(two.Mode())
		}
		_, err = s.LockAll(ctx, []LockSpec{{Name: "pool", Limit: 3, Permits: 2}}, WithTry())
		wantErr(t, err, ErrNotAcquired)
		_, err = s.LockAll(ctx, []LockSpec{{Name: "pool", Limit: 4}}, WithTry())
		wantErr(t, err, ErrMismatch)
		_, err = s.LockAll(ctx, []LockSpec{{Name: "pool", Limit: 3}}, WithTry())
		ok(t, err)
	})
}

func TestReentry(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		outer := mustLock(t, s, "x")
		_, err := s.Lock(outer.Context(), "x")
		wantErr(t, err, ErrAlreadyHeld)
		inner, err := s.Lock(outer.Context(), "x", Reentrant(), WithShared())
		ok(t, err)
		if inner.Token() != outer.Token() || inner.ID() != outer.ID() || inner.Count() != 2 || outer.Count() != 2 || inner.Mode() != Exclusive {
			t.Fatalf("count %d, token %d", inner.Count(), inner.Token())
		}
		// The first handle may be released first, and repeated Unlocks count once.
		ok(t, outer.Unlock(ctx))
		ok(t, outer.Unlock(ctx))
		wantErr(t, context.Cause(outer.Context()), ErrReleased)
		if inner.Context().Err() != nil || inner.Count() != 1 || f.held("x") != s.ID() {
			t.Fatal("the lock is free while it is held once more")
		}
		f.cut("n1")
		third, err := s.Lock(inner.Context(), "x", Reentrant())
		ok(t, err)
		ok(t, inner.Unlock(ctx))
		ok(t, third.SetValue(ctx, []byte("v")))
		ok(t, third.Unlock(ctx))
		if f.held("x") != 0 || third.Count() != 0 {
			t.Fatal("still held")
		}
	})
}

// TestReentryThroughBreaks checks that a reentrant acquire whose caller left is released alone, and that
// one interrupted by a break counts once.
func TestReentryThroughBreaks(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		outer := mustLock(t, s, "x")
		withhold(f, "x")
		ctx, cancel := context.WithTimeout(outer.Context(), time.Second)
		defer cancel()
		_, err := s.Lock(ctx, "x", Reentrant())
		wantErr(t, err, ErrUncertain)
		f.cut("n1")
		time.Sleep(time.Second)
		synctest.Wait()
		f.set(func() {
			if h := f.service.locks["x"].holders[0]; h.count != 1 {
				t.Errorf("counted %d", h.count)
			}
		})
		if outer.Count() != 1 {
			t.Fatal(outer.Count())
		}
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetRelease() == nil {
					return false
				}
				f.intercept = nil
				f.service.serve(cn, req)
				_ = cn.nc.Close()
				return true
			}
		})
		ok(t, outer.Unlock(context.Background()))
		if f.held("x") != 0 || len(f.twice()) > 0 {
			t.Fatal("still held")
		}
	})
}

// TestUnknownReentrantHoldIsReleased checks that a counted hold without a caller is released as often
// as it counts.
func TestUnknownReentrantHoldIsReleased(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() {
			k := &claim{session: f.service.sessions[s.ID()], seq: 99, id: 99, token: 99, locks: []*wire.LockRequest{{Name: "x"}}}
			f.service.plant(k)
			k.count = 3
		})
		f.cut("n1")
		time.Sleep(time.Second)
		if f.held("x") != 0 || f.count(releases) != 3 {
			t.Fatal("held silently")
		}
	})
}

func TestRefusalsOfTheFamily(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		var refusal *wire.Result
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				refusal.Digest, refusal.Name = req.Digest(), f.service.firstName(req)
				cn.answer(req, respond(refusal))
				return true
			}
		})
		for code, want := range map[wire.Status_Code]error{
			wire.Status_MISMATCH: ErrMismatch, wire.Status_UPGRADE_CONFLICT: ErrUpgradeConflict, wire.Status_DEADLOCK: ErrDeadlock,
		} {
			refusal = &wire.Result{Status: code, Message: "because"}
			_, err := s.Lock(context.Background(), "x")
			wantErr(t, err, want)
			if !strings.Contains(err.Error(), "because") {
				t.Error(err)
			}
		}
		refusal = &wire.Result{Status: wire.Status_DEADLOCK, Cycle: []*wire.DeadlockStep{
			{SessionId: 7, ClientName: "billing", Owner: 3, Lock: "a"}, {SessionId: 9, Lock: "b", WaitId: 4},
		}}
		_, err := s.Lock(context.Background(), "x")
		wantErr(t, err, ErrDeadlock)
		var cycle *DeadlockError
		if !errors.As(err, &cycle) || len(cycle.Cycle) != 2 {
			t.Fatal(err)
		}
		want := "quorumlock: deadlock: session 7 (billing) owner 3 waits for a of session 9, session 9 waits for b of session 7 (billing) owner 3"
		if err.Error() != want {
			t.Errorf("%q", err)
		}
	})
}

func TestOperators(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		hold := mustLock(t, f.session(c), "x")
		held, err := c.VerifyToken(ctx, "x", hold.Token())
		ok(t, err)
		other, err := c.VerifyToken(ctx, "x", hold.Token()+1)
		ok(t, err)
		if !held || other {
			t.Fatal(held, other)
		}
		_, err = wirecall.Of(c).ForceRelease(ctx, &wire.ForceRelease{HoldId: hold.ID(), Token: 99, Reason: "r"})
		wantErr(t, err, ErrNotHeld)
		if hold.Context().Err() != nil {
			t.Fatal("another token was enough")
		}
		resp, err := wirecall.Of(c).ForceRelease(ctx, &wire.ForceRelease{HoldId: hold.ID(), Token: hold.Token(), Reason: "stuck"})
		ok(t, err)
		if resp.GetStatus() != wire.Status_OK || resp.GetRevision() == 0 {
			t.Fatal(resp)
		}
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				cn.answer(req, answered5(req))
				return true
			}
		})
		skipped, err := wirecall.Of(c).SkipDelay(ctx, &wire.SkipDelay{Name: "x", Reason: "test"})
		ok(t, err)
		resized, err := wirecall.Of(c).Resize(ctx, &wire.Resize{Name: "x", Limit: 2, Reason: "test"})
		ok(t, err)
		restored, err := wirecall.Of(c).Restore(ctx, &wire.RestoreRequest{})
		ok(t, err)
		deadlocks, err := wirecall.Of(c).ListDeadlocks(ctx, &wire.ListDeadlocksRequest{})
		ok(t, err)
		contended, err := wirecall.Of(c).ListContended(ctx, &wire.ListContendedRequest{})
		ok(t, err)
		one, err := wirecall.Of(c).GetSession(ctx, &wire.GetSessionRequest{})
		ok(t, err)
		audit, err := wirecall.Of(c).ListAudit(ctx, &wire.ListAuditRequest{})
		ok(t, err)
		if skipped.GetRevision()+resized.GetRevision()+restored.GetRevision()+deadlocks.GetRevision()+audit.GetRevision()+contended.GetRevision()+one.GetRevision() != 35 {
			t.Fatal("an answer is lost")
		}
		// It may have been executed, so it is not repeated.
		asked := f.count()
		f.set(func() {
			f.intercept = func(cn *fakeConn, _ *wire.Request) bool { _ = cn.nc.Close(); return true }
		})
		_, err = wirecall.Of(c).Revoke(ctx, &wire.Revoke{HoldId: 1, Token: 1, Reason: "r"})
		wantErr(t, err, ErrUncertain)
		if revokes := f.count(func(s seen) bool { return s.req.GetRevoke() != nil }); revokes != 1 || f.count() < asked {
			t.Fatalf("sent %d times", revokes)
		}
	})
}

// answered5 answers requests that the fake does not serve, as of revision 5.
func answered5(req *wire.Request) *wire.Response {
	resp := &wire.Response{Result: &wire.Result{Status: wire.Status_OK, Revision: 5}}
	switch {
	case req.GetRestore() != nil:
		resp.Body = &wire.Response_Restore{Restore: &wire.RestoreResponse{Revision: 5}}
	case req.GetListDeadlocks() != nil:
		resp.Body = &wire.Response_ListDeadlocks{ListDeadlocks: &wire.ListDeadlocksResponse{Revision: 5}}
	case req.GetListContended() != nil:
		resp.Body = &wire.Response_ListContended{ListContended: &wire.ListContendedResponse{Revision: 5}}
	case req.GetGetSession() != nil:
		resp.Body = &wire.Response_GetSession{GetSession: &wire.GetSessionResponse{Revision: 5}}
	case req.GetListAudit() != nil:
		resp.Body = &wire.Response_ListAudit{ListAudit: &wire.ListAuditResponse{Revision: 5}}
	}
	return resp
}
