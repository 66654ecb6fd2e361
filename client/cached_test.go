package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
func (s *cachedLocks) idle(name string) bool {
	s.session.client.mu.Lock()
	defer s.session.client.unlock()
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
		if f.frames() != 3 {
			t.Fatalf("%d requests: the used-up hold was not released and acquired anew", f.frames())
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
		if fmt.Sprint(sizes) != "[64 512 4096 16384 16384 16384]" {
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

// recallCase is who waits for a cached hold, and whether it is in use.
type recallCase struct {
	inUse   bool
	waiting int
	claim   func(ctx context.Context, s, other *Session, h *Hold) (*Hold, error)
}

var recallCases = map[string]recallCase{
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
}

// TestRecall checks that nothing is granted locally once another request waits for the lock, and that the hold is
// released as soon as it is unused: whoever waits, and whether the hold is idle, in use, or waited for locally.
func TestRecall(t *testing.T) {
	for name, test := range recallCases {
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
				synctest.Wait()
				if len(got) != 1 {
					t.Fatal("the other request still waits")
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
		heartbeat := f.all(heartbeats)[0]
		reported := heartbeat.req.GetHeartbeat().GetIdle()
		if len(reported) != 1 || reported[0].GetHoldId() != idle.ID() || time.Duration(reported[0].GetIdleMs())*time.Millisecond != (heartbeat.at-before).Truncate(time.Millisecond) {
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
