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

// kept is how long the tests' sessions keep a cached hold unused.
const kept = 10 * time.Minute

func mustCached(t testing.TB, s *Session, name string, opts ...LockOption) *Hold {
	t.Helper()
	hold, err := s.Lock(context.Background(), name, append(opts, WithCached(kept))...)
	if err != nil {
		t.Fatalf("Lock(%s): %v", name, err)
	}
	return hold
}

// cachedSoon locks in another goroutine.
func cachedSoon(ctx context.Context, s *Session, name string, opts ...LockOption) <-chan lockResult {
	ch := make(chan lockResult, 1)
	go func() {
		hold, err := s.Lock(ctx, name, append(opts, WithCached(kept))...)
		ch <- lockResult{hold, err}
	}()
	synctest.Wait()
	return ch
}

// unlocked releases a hold and returns what happened meanwhile.
func unlocked(t testing.TB, h *Hold) {
	t.Helper()
	ok(t, h.Unlock(context.Background()))
	synctest.Wait()
}

// idle reports whether the session keeps the lock unused.
func (s *Session) idle(name string) bool {
	s.client.mu.Lock()
	defer s.client.unlock()
	l := s.cached[name]
	return l != nil && l.hold != nil && l.hold.idle()
}

// frames counts the requests that acquire or release a lock.
func (f *fake) frames() int {
	return f.count(func(s seen) bool { return acquireOf(s.req) != nil || releases(s) })
}

// TestLocalGrants checks that a cached hold is granted again without a request, each time with the next token and a
// context of its own, until its tokens are used up. The session then acquires more of them.
func TestLocalGrants(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		tokens := uint64(0)
		var earlier *Hold
		for i := range firstTokens {
			hold := mustCached(t, s, "x")
			if i > 0 && (hold.Token() != tokens+1 || hold.ID() != earlier.ID() || hold.Revision() != earlier.Revision()) {
				t.Fatalf("local grant %d has token %d after %d, id %d", i, hold.Token(), tokens, hold.ID())
			}
			ok(t, hold.Context().Err())
			if hold.Count() != 1 || hold.Mode() != Exclusive || f.held("x") != s.ID() {
				t.Fatal("it is not held")
			}
			if i == firstTokens-1 && f.frames() != 1 {
				t.Fatalf("%d requests for %d grants", f.frames(), i+1)
			}
			tokens, earlier = hold.Token(), hold
			unlocked(t, hold)
			wantErr(t, context.Cause(hold.Context()), ErrReleased)
			ok(t, hold.Unlock(context.Background()))
			if hold.Count() != 0 || hold.Remaining() != 0 {
				t.Fatal("a released hold is held")
			}
			wantErr(t, hold.Extend(context.Background(), time.Minute), ErrNotHeld)
		}
		if f.held("x") != 0 || f.frames() != 2 {
			t.Fatalf("%d requests: the used-up hold was not released", f.frames())
		}
		hold := mustCached(t, s, "x")
		sent := f.all(cachedAcquires)
		if n := sent[len(sent)-1].req.GetAcquireCached().GetTokens(); n != firstTokens*tokensGrowth || hold.Token() <= tokens {
			t.Fatalf("%d more tokens from %d on, after %d", n, hold.Token(), tokens)
		}
		unlocked(t, hold)
	})
}

// TestRangeIsBounded checks the size of the ranges of a lock that is used all the time.
func TestRangeIsBounded(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		for range firstTokens + 8*firstTokens + 64*firstTokens + 2*mostTokens {
			ok(t, mustCached(t, s, "x").Unlock(context.Background()))
		}
		var sizes []uint32
		for _, sent := range f.all(cachedAcquires) {
			sizes = append(sizes, sent.req.GetAcquireCached().GetTokens())
		}
		if fmt.Sprint(sizes) != "[64 512 4096 16384 16384]" {
			t.Fatal(sizes)
		}
	})
}

// TestLocalOrder checks that local callers are served in the order of their arrival, also those that wait for the
// first grant, and those whose options differ.
func TestLocalOrder(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		other := mustLock(t, f.session(c), "x")
		var waiting []<-chan lockResult
		for i := range 40 {
			var opts []LockOption
			if i%10 == 7 {
				opts = append(opts, WithLockDelay(time.Second))
			}
			waiting = append(waiting, cachedSoon(context.Background(), s, "x", opts...))
			if i == 3 {
				unlocked(t, other)
			}
		}
		last := uint64(0)
		for i, w := range waiting {
			if len(w) != 1 {
				t.Fatalf("caller %d is not next", i)
			}
			got := <-w
			ok(t, got.err)
			if got.hold.Token() <= last {
				t.Fatalf("token %d after %d", got.hold.Token(), last)
			}
			last = got.hold.Token()
			unlocked(t, got.hold)
		}
	})
}

// TestRecall checks that nothing is granted locally once another request waits for the lock, and that the hold is
// released as soon as it is unused: whoever waits, and whether the hold is idle, in use, or waited for locally.
func TestRecall(t *testing.T) {
	for name, test := range map[string]struct {
		inUse   bool
		waiting int
		claim   func(ctx context.Context, s, other *Session, h *Hold) (*Hold, error)
	}{
		"idle":             {false, 0, nil},
		"in use":           {true, 0, nil},
		"with waiters":     {true, 3, nil},
		"of its session":   {true, 2, func(ctx context.Context, s, _ *Session, _ *Hold) (*Hold, error) { return s.Lock(ctx, "x") }},
		"idle, of its own": {false, 0, func(ctx context.Context, s, _ *Session, _ *Hold) (*Hold, error) { return s.Lock(ctx, "x") }},
		"inside of a hold": {true, 0, func(ctx context.Context, s, _ *Session, h *Hold) (*Hold, error) {
			return s.Lock(h.Context(), "x", WithCached(kept))
		}},
		"of another lock's hold": {false, 0, func(ctx context.Context, s, _ *Session, h *Hold) (*Hold, error) {
			return s.Lock(h.Context(), "x", WithCached(kept))
		}},
		"several locks": {true, 1, func(ctx context.Context, _, other *Session, _ *Hold) (*Hold, error) {
			return other.LockAll(ctx, Names("x", "z"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				ctx := context.Background()
				s, other := f.session(c), f.session(c)
				outer := mustLock(t, s, "y")
				hold := mustCached(t, s, "x")
				if !test.inUse {
					unlocked(t, hold)
				}
				var waiting []<-chan lockResult
				for range test.waiting {
					waiting = append(waiting, cachedSoon(ctx, s, "x"))
				}
				claim := test.claim
				if claim == nil {
					claim = func(ctx context.Context, _, other *Session, _ *Hold) (*Hold, error) { return other.Lock(ctx, "x") }
				}
				got := soon(func(ctx context.Context) (*Hold, error) { return claim(ctx, s, other, outer) }, ctx)
				if test.inUse {
					if len(got) != 0 || s.idle("x") {
						t.Fatal("the hold in use is gone")
					}
					late := cachedSoon(ctx, s, "x")
					_, err := s.Lock(ctx, "x", WithCached(kept), WithTry())
					wantErr(t, err, ErrNotAcquired)
					waiting = append(waiting, late)
					unlocked(t, hold)
				}
				first := <-got
				ok(t, first.err)
				if first.hold.ID() == hold.ID() {
					t.Fatal("the other request got the same hold")
				}
				unlocked(t, first.hold)
				for i, w := range waiting {
					if len(w) != 1 {
						t.Fatalf("caller %d is not next", i)
					}
					next := <-w
					ok(t, next.err)
					unlocked(t, next.hold)
				}
				unlocked(t, outer)
				ok(t, s.Close(ctx))
			})
		})
	}
}

// TestRecallIsRepeated checks that a recall that was lost is repeated with heartbeats and at an attach, and that a
// release that failed is tried again then.
func TestRecallIsRepeated(t *testing.T) {
	for name, test := range map[string]struct {
		lost, refused, attach bool
	}{
		"heartbeat":            {lost: true},
		"attach":               {lost: true, attach: true},
		"refused":              {refused: true},
		"refused, then attach": {refused: true, attach: true},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				ctx := context.Background()
				s := f.session(c)
				unlocked(t, mustCached(t, s, "x"))
				refusals := 1
				f.set(func() {
					if test.lost {
						f.service.sessions[s.ID()].conn = nil // pushes do not arrive
					}
					f.intercept = func(cn *fakeConn, req *wire.Request) bool {
						if req.GetRelease() == nil || !test.refused || refusals == 0 {
							return false
						}
						refusals--
						cn.answer(req, respond(status(wire.Status_INTERNAL)))
						return true
					}
				})
				other := f.session(c)
				got := lockSoon(ctx, other, "x")
				f.set(func() { f.service.sessions[s.ID()].conn = f.service.sessions[other.ID()].conn })
				if len(got) != 0 {
					t.Fatal("it was released already")
				}
				if test.attach {
					f.cut("n1")
					synctest.Wait()
				} else {
					time.Sleep(ttl / 3)
				}
				synctest.Wait()
				if len(got) != 1 {
					t.Fatal("the recall was not repeated, or in vain")
				}
				unlocked(t, (<-got).hold)
			})
		})
	}
}

// TestIdleHoldIsReleased checks when a hold that is not used any more is released, in the background.
func TestIdleHoldIsReleased(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		for _, name := range []string{"x", "y"} {
			hold, err := s.Lock(ctx, name, WithCached(time.Second))
			ok(t, err)
			time.Sleep(3 * time.Second) // in use
			unlocked(t, hold)
		}
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if !s.idle("y") || s.idle("x") || f.held("x") != 0 {
			t.Fatal("not released after exactly that time")
		}
		hold, err := s.Lock(ctx, "y", WithCached(time.Second))
		ok(t, err)
		unlocked(t, hold)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if !s.idle("y") || f.held("y") != s.ID() {
			t.Fatal("it was used, and is released")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if s.idle("y") || f.held("y") != 0 || f.count(releases) != 2 {
			t.Fatal("it was not used, and is kept")
		}
		ok(t, hold.Unlock(ctx))
	})
}

// TestHeartbeatReportsIdleHolds checks that the cluster learns which holds are unused and for how long.
func TestHeartbeatReportsIdleHolds(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		idle, used := mustCached(t, s, "x"), mustCached(t, s, "y")
		unlocked(t, idle)
		before := time.Since(f.start)
		time.Sleep(ttl / 3)
		synctest.Wait()
		beat := f.all(heartbeats)[0]
		reported := beat.req.GetHeartbeat().GetIdle()
		if len(reported) != 1 || reported[0].GetHoldId() != idle.ID() || time.Duration(reported[0].GetIdleMs())*time.Millisecond != (beat.at-before).Truncate(time.Millisecond) {
			t.Fatal(reported)
		}
		unlocked(t, used)
	})
}

// TestLocalWaitEnds checks what ends the wait of a local caller, and with which error.
func TestLocalWaitEnds(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustCached(t, s, "x")
		ctx, cancel := context.WithCancelCause(context.Background())
		reason := errors.New("the caller's reason")
		left := cachedSoon(ctx, s, "x", WithWait(time.Hour))
		cancel(reason)
		got := <-left
		wantErr(t, got.err, context.Canceled)
		if errors.Is(got.err, ErrUncertain) {
			t.Fatal(got.err)
		}
		_, err := s.Lock(context.Background(), "x", WithCached(kept), WithTry())
		wantErr(t, err, ErrNotAcquired)
		if !strings.Contains(err.Error(), "another caller of this session holds the lock") {
			t.Fatal(err)
		}
		_, err = s.Lock(ctx, "x", WithCached(kept))
		wantErr(t, err, context.Canceled)

		began := time.Now()
		timed := cachedSoon(context.Background(), s, "x", WithWait(3*time.Second))
		behind := cachedSoon(context.Background(), s, "x")
		got = <-timed
		wantErr(t, got.err, ErrTimeout)
		if took := time.Since(began); took != 3*time.Second || !strings.Contains(got.err.Error(), "other callers of this session") {
			t.Fatal(took, got.err)
		}
		if f.frames() != 1 {
			t.Fatal("the cluster was asked")
		}
		unlocked(t, hold)
		unlocked(t, (<-behind).hold)
	})
}

// TestLocalWaitGoesOn checks that a wait with a limit that begins locally and goes on at the cluster has one limit.
func TestLocalWaitGoesOn(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustCached(t, s, "x")
		began := time.Now()
		timed := cachedSoon(context.Background(), s, "x", WithWait(5*time.Second))
		time.Sleep(2 * time.Second)
		other := lockSoon(context.Background(), f.session(c), "x")
		sent := f.all(acquires)
		if ms := sent[len(sent)-1].req.GetAcquire().GetWaitMs(); ms != 3000 {
			t.Fatalf("it waits for %d ms more", ms)
		}
		unlocked(t, hold)
		foreign := <-other
		wantErr(t, (<-timed).err, ErrTimeout)
		if took := time.Since(began); took != 5*time.Second {
			t.Fatal(took)
		}
		unlocked(t, foreign.hold)
	})
}

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
	virtual(t, 1, func(t *testing.T, f *fake, _ *Client) {
		ctx := context.Background()
		var began []string
		var ends []HoldEnd
		cfg := f.config()
		cfg.Hooks = Hooks{
			Acquire: func(ctx context.Context, locks []string) (context.Context, func(*Hold, error)) {
				return context.WithValue(ctx, "n", len(began)), func(*Hold, error) { began = append(began, locks[0]) } //nolint:staticcheck
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
			if hold.Context().Value("n") != i {
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
			if e.Token != tokens[i] || e.Held != want || !errors.Is(e.Reason, reason) || e.Locks[0] != "x" || e.Context.Value("n") != i {
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
