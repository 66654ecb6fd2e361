package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestHoldsInsideOfACachedHold checks that a call whose ctx descends from a local hold acts as its owner, and that the
// hold is released at its unlock if anything else stands under its owner key by then.
func TestHoldsInsideOfACachedHold(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		unlocked(t, mustCached(t, s, "x"))
		hold := mustCached(t, s, "x")
		_, err := s.Lock(hold.Context(), "x")
		wantErr(t, err, ErrAlreadyHeld)
		_, err = s.Lock(hold.Context(), "x", WithCached(kept))
		wantErr(t, err, ErrAlreadyHeld)
		nested, err := s.Lock(hold.Context(), "y")
		ok(t, err)
		unlocked(t, nested)
		unlocked(t, hold)
		if !s.idle("x") {
			t.Fatal("nothing is left under its owner key, and it is released")
		}

		hold = mustCached(t, s, "x")
		nested, err = s.Lock(hold.Context(), "y", WithCached(kept))
		ok(t, err)
		earlier := context.WithoutCancel(hold.Context())
		unlocked(t, hold)
		if s.idle("x") || f.held("x") != 0 {
			t.Fatal("it is kept with a hold under its owner key")
		}
		next := mustCached(t, s, "x")
		unlocked(t, next)
		again, err := s.Lock(earlier, "y", Reentrant()) // of the owner that still holds y
		ok(t, err)
		if again.ID() != nested.ID() {
			t.Fatal("another owner")
		}
		unlocked(t, again)
		unlocked(t, nested)
		if s.idle("y") || f.held("y") != 0 {
			t.Fatal("a hold of a known owner is cached")
		}

		other := mustLock(t, f.session(c), "z")
		hold = mustCached(t, s, "x")
		waits := soon(func(ctx context.Context) (*Hold, error) { return s.Lock(ctx, "z") }, context.WithoutCancel(hold.Context()))
		synctest.Wait()
		unlocked(t, hold)
		if f.held("x") != 0 {
			t.Fatal("it is kept with a wait under its owner key")
		}
		unlocked(t, other)
		unlocked(t, (<-waits).hold)
	})
}

// TestContextOfAnEarlierLocalHold checks that it belongs to another owner than the next local hold.
func TestContextOfAnEarlierLocalHold(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		earlier := mustCached(t, s, "x")
		ctx := context.WithoutCancel(earlier.Context())
		unlocked(t, earlier)
		hold := mustCached(t, s, "x")
		waits := soon(func(ctx context.Context) (*Hold, error) { return s.Lock(ctx, "x") }, ctx)
		synctest.Wait()
		if len(waits) != 0 {
			t.Fatal((<-waits).err)
		}
		unlocked(t, hold)
		got := <-waits
		ok(t, got.err)
		_, err := s.Lock(ctx, "x") // the same owner again
		wantErr(t, err, ErrAlreadyHeld)
		unlocked(t, got.hold)
	})
}

// TestReentrantInsideOfACachedHold checks that the cluster counts what is acquired again inside of a cached hold.
func TestReentrantInsideOfACachedHold(t *testing.T) {
	for _, outerFirst := range []bool{false, true} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			s := f.session(c)
			unlocked(t, mustCached(t, s, "x"))
			outer := mustCached(t, s, "x")
			inner, err := s.Lock(outer.Context(), "x", Reentrant())
			ok(t, err)
			if inner.Token() != outer.Token() || inner.ID() != outer.ID() || outer.Count() != 2 {
				t.Fatalf("tokens %d and %d, %d holds", inner.Token(), outer.Token(), outer.Count())
			}
			first, second := inner, outer
			if outerFirst {
				first, second = outer, inner
			}
			unlocked(t, first)
			if f.held("x") != s.ID() || second.Context().Err() != nil {
				t.Fatal("released too early")
			}
			unlocked(t, second)
			if f.held("x") != 0 {
				t.Fatal("not released")
			}
			unlocked(t, mustCached(t, s, "x"))
		})
	}
}

// TestCachedHoldCannotChange checks that requests that would change the hold for other local holders leave its token.
func TestCachedHoldCannotChange(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		unlocked(t, mustCached(t, s, "x"))
		hold := mustCached(t, s, "x")
		token := hold.Token()
		ok(t, hold.Upgrade(ctx))
		if hold.Token() != token {
			t.Fatalf("token %d became %d", token, hold.Token())
		}
		unlocked(t, hold)
		if next := mustCached(t, s, "x"); next.Token() != token+1 {
			t.Fatalf("token %d after %d", next.Token(), token)
		}
	})
}

// TestCachedOptionsAreChecked checks which options exclude each other, and that the error says what to do. Nothing is
// asked of the cluster, whether the lock is cached already or not.
func TestCachedOptionsAreChecked(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		for range 2 {
			before := f.frames()
			for text, opts := range map[string][]LockOption{
				"Reentrant exclude each other: leave one out": {WithCached(kept), Reentrant()},
				"WithValue exclude each other: leave one out": {WithValue([]byte("v")), WithCached(kept)},
				"leave WithShared and WithUnfair out":         {WithCached(kept), WithShared()},
				"exclusive lock in FIFO order":                {WithCached(kept), WithUnfair()},
				"idle 0s: give the time":                      {WithCached(0)},
				"idle -1s: give the time":                     {WithCached(-time.Second)},
				"1 ms to 49 days":                             {WithCached(50 * 24 * time.Hour)},
				"wait -1s: give 0 to 49 days":                 {WithCached(kept), WithWait(-time.Second)},
				"max_hold -1s: give 0 to 49 days":             {WithCached(kept), WithMaxHold(-time.Second)},
				"lock-delay -1s: give 0 to 49 days":           {WithCached(kept), WithLockDelay(-time.Second)},
			} {
				_, err := s.Lock(context.Background(), "x", opts...)
				wantErr(t, err, ErrInvalidArgument)
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v, want %q", err, text)
				}
			}
			_, err := s.Lock(context.Background(), "a//b", WithCached(kept))
			wantErr(t, err, ErrInvalidArgument)
			if f.frames() != before {
				t.Error("the cluster was asked")
			}
			unlocked(t, mustCached(t, s, "x"))
		}
		c.mu.Lock()
		defer c.unlock()
		if len(s.cached) != 1 {
			t.Errorf("%d locks are remembered", len(s.cached))
		}
	})
}

// TestCachedHoldsAreRefused checks that the answer of a cluster that refuses cached holds is passed on to all callers.
func TestCachedHoldsAreRefused(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		other := mustLock(t, f.session(c), "x")
		f.set(func() {
			f.service.refuses = &wire.Result{Status: wire.Status_UNSUPPORTED, Message: "needs feature level 2, the cluster is at 1: upgrade all nodes"}
			f.lag = func() time.Duration { return time.Millisecond }
		})
		var results []<-chan lockResult
		for range 3 {
			results = append(results, cachedSoon(context.Background(), s, "x"))
		}
		for _, r := range results {
			err := (<-r).err
			wantErr(t, err, ErrUnsupported)
			if !strings.Contains(err.Error(), "upgrade all nodes") {
				t.Fatal(err)
			}
		}
		ok(t, other.Unlock(context.Background()))
	})
}

// TestCachedWithHooks checks that both hooks are called once for each local hold.
func TestCachedWithHooks(t *testing.T) {
	type nthKey struct{}
	virtual(t, 1, func(t *testing.T, f *fake, _ *Client) {
		ctx := context.Background()
		var began []string
		var ends []HoldEnd
		cfg := f.config()
		cfg.Hooks = Hooks{
			Acquire: func(ctx context.Context, locks []string) (context.Context, func(*Hold, error)) {
				return context.WithValue(ctx, nthKey{}, len(began)), func(*Hold, error) { began = append(began, locks[0]) }
			},
			HoldEnded: func(e HoldEnd) { ends = append(ends, e) },
		}
		c, err := New(cfg)
		ok(t, err)
		defer c.Close()
		s := f.session(c)
		var tokens []uint64
		for i := range 3 {
			hold := mustCached(t, s, "x")
			tokens = append(tokens, hold.Token())
			if hold.Context().Value(nthKey{}) != i {
				t.Error("the hold's context is not that of the hook")
			}
			time.Sleep(time.Duration(i+1) * time.Second)
			unlocked(t, hold)
			time.Sleep(time.Second)
		}
		last := mustCached(t, s, "x")
		tokens = append(tokens, last.Token())
		time.Sleep(time.Second)
		f.force(last, "stuck")
		synctest.Wait()
		ok(t, s.Close(ctx))
		if len(began) != 4 || len(ends) != 4 || f.count(cachedAcquires) != 1 {
			t.Fatalf("%v, %+v", began, ends)
		}
		for i, e := range ends {
			want, reason := time.Duration(i+1)*time.Second, ErrReleased
			if i == 3 {
				want, reason = time.Second, ErrForced
			}
			if e.Token != tokens[i] || e.Held != want || !errors.Is(e.Reason, reason) || e.Locks[0] != "x" || e.Context.Value(nthKey{}) != i {
				t.Errorf("hold %d: %+v", i, e)
			}
		}
	})
}

// TestCachedNotices checks that the functions and channels of a local hold report what concerns that hold.
func TestCachedNotices(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s, other := f.session(c), f.session(c)
		var news []string
		var mu sync.Mutex
		say := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			news = append(news, text)
		}
		lock := func(name string) *Hold {
			return mustCached(t, s, "x", OnWanted(func() { say(name + " wanted") }), OnRevoked(func(r Revocation) { say(name + " revoked " + r.Reason) }))
		}
		first := lock("first")
		wanted, revoked := first.Wanted(), first.Revoked()
		unlocked(t, first)
		if _, more := <-revoked; more {
			t.Fatal("a revocation of an ended hold")
		}
		second := lock("second")
		f.revoke(second, "deploy", 0)
		synctest.Wait()
		got := lockSoon(ctx, other, "x")
		synctest.Wait()
		<-second.Wanted()
		if r := <-second.Revoked(); r.Reason != "deploy" {
			t.Fatal(r)
		}
		unlocked(t, second)
		unlocked(t, (<-got).hold)
		select {
		case <-wanted:
			t.Error("the first local hold was wanted")
		default:
		}
		if fmt.Sprint(news) != "[second revoked deploy second wanted]" {
			t.Error(news)
		}

		idle := lock("idle")
		wanted = idle.Wanted()
		unlocked(t, idle)
		ok(t, mustLock(t, other, "x").Unlock(ctx))
		synctest.Wait()
		select {
		case <-wanted:
			t.Error("a hold that has ended was wanted")
		default:
		}
		if len(news) != 2 {
			t.Error(news)
		}
	})
}
