package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestCachedHoldIsLost checks that a cached hold and those who wait for it end with the session, the client or an
// operator's order, whether the hold is idle or in use.
func TestCachedHoldIsLost(t *testing.T) {
	for name, test := range map[string]struct {
		end     func(t *testing.T, f *fake, c *Client, s *Session, h *Hold)
		reason  error
		session bool // the session has ended as well
	}{
		"expired":  {func(_ *testing.T, f *fake, _ *Client, _ *Session, _ *Hold) { f.node("n1").down = true; f.cut("n1") }, ErrSessionLost, true},
		"closed":   {func(t *testing.T, _ *fake, _ *Client, s *Session, _ *Hold) { ok(t, s.Close(context.Background())) }, ErrClosed, true},
		"client":   {func(t *testing.T, _ *fake, c *Client, _ *Session, _ *Hold) { ok(t, c.Close()) }, ErrClientClosed, true},
		"forced":   {func(_ *testing.T, f *fake, _ *Client, _ *Session, h *Hold) { f.force(h, "stuck") }, ErrForced, false},
		"missing":  {func(_ *testing.T, f *fake, _ *Client, _ *Session, _ *Hold) { f.lose("x") }, ErrForced, false},
		"no grace": {func(_ *testing.T, f *fake, _ *Client, _ *Session, h *Hold) { f.revoke(h, "deploy", time.Second) }, ErrForced, false},
	} {
		for _, idle := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, idle %v", name, idle), func(t *testing.T) {
				virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
					s := f.session(c)
					unlocked(t, mustCached(t, s, "x"))
					hold := mustCached(t, s, "x")
					var waits <-chan lockResult
					if idle {
						unlocked(t, hold)
					} else {
						waits = cachedSoon(context.Background(), s, "x")
					}
					test.end(t, f, c, s, hold)
					time.Sleep(ttl)
					synctest.Wait()
					if s.idle("x") || !test.session && idle && f.held("x") != 0 {
						t.Error("it is kept")
					}
					if !idle {
						wantErr(t, context.Cause(hold.Context()), test.reason)
						<-hold.Lost()
						wantErr(t, hold.Unlock(context.Background()), test.reason)
					}
					got := lockResult{err: errors.New("none")}
					switch {
					case test.session:
						got.hold, got.err = s.Lock(context.Background(), "x", WithCached(kept))
						wantErr(t, got.err, test.reason)
						if !idle {
							wantErr(t, (<-waits).err, test.reason)
						}
						return
					case idle:
						got.hold, got.err = s.Lock(context.Background(), "x", WithCached(kept))
					default:
						got = <-waits
					}
					ok(t, got.err)
					if got.hold.ID() == hold.ID() || got.hold.Token() <= hold.Token() {
						t.Errorf("hold %d with token %d after %d with %d", got.hold.ID(), got.hold.Token(), hold.ID(), hold.Token())
					}
					unlocked(t, got.hold)
				})
			})
		}
	}
}

// lose frees a lock while no client is connected, without notifying its holder.
func (f *fake) lose(name string) {
	f.set(func() { f.node("n1").down = true })
	f.cut("n1")
	f.set(func() {
		f.service.revision++
		f.service.drop(name)
		f.node("n1").down = false
	})
}

// TestNoLocalGrantWithoutContact checks what a local grant needs: an attached session, and an answer within half the
// TTL. Whoever asks meanwhile waits, and is served in order once there is contact again.
func TestNoLocalGrantWithoutContact(t *testing.T) {
	for name, test := range map[string]struct {
		inUse bool
		lapse func(f *fake, s *Session)
	}{
		"not attached":         {false, func(f *fake, _ *Session) { f.set(func() { f.node("n1").down = true }); f.cut("n1") }},
		"not attached, in use": {true, func(f *fake, _ *Session) { f.set(func() { f.node("n1").down = true }); f.cut("n1") }},
		"in Jeopardy":          {false, func(f *fake, s *Session) { f.silence(); time.Sleep(ttl * 2 / 3) }},
		"in Jeopardy, in use":  {true, func(f *fake, s *Session) { f.silence(); time.Sleep(ttl * 2 / 3) }},
		"after a suspend":      {false, func(f *fake, _ *Session) { f.silence(); f.clock.suspended.Add(int64(ttl * 2 / 3)) }},
		"suspended, in use":    {true, func(f *fake, _ *Session) { f.silence(); f.clock.suspended.Add(int64(ttl * 2 / 3)) }},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				ctx := context.Background()
				s := f.session(c)
				hold := mustCached(t, s, "x")
				id := hold.ID()
				var waiting []<-chan lockResult
				if test.inUse {
					waiting = append(waiting, cachedSoon(ctx, s, "x"))
				} else {
					unlocked(t, hold)
				}
				test.lapse(f, s)
				synctest.Wait()
				if test.inUse {
					ok(t, hold.Context().Err())
					ok(t, hold.Unlock(ctx))
				}
				waiting = append(waiting, cachedSoon(ctx, s, "x"), cachedSoon(ctx, s, "x"))
				for _, w := range waiting {
					if len(w) > 0 {
						t.Fatal("granted without contact")
					}
				}
				f.set(func() { f.node("n1").down, f.intercept = false, nil })
				f.cut("n1")
				for i, w := range waiting {
					got := <-w
					ok(t, got.err)
					if got.hold.ID() == id {
						t.Fatalf("caller %d got the hold that was to be released", i)
					}
					unlocked(t, got.hold)
				}
				if !s.idle("x") {
					t.Fatal("it is not cached any more")
				}
			})
		})
	}
}

// silence makes the nodes receive everything and answer nothing.
func (f *fake) silence() {
	f.set(func() { f.intercept = func(*fakeConn, *wire.Request) bool { return true } })
}

// TestIdleHoldSurvivesABreak checks that an idle hold that the cluster still lists is granted locally after a
// reconnect, to the next leader as well.
func TestIdleHoldSurvivesABreak(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustCached(t, s, "x")
		unlocked(t, hold)
		f.cut("n1")
		synctest.Wait()
		next := mustCached(t, s, "x")
		unlocked(t, next)
		f.elect("n2", 2)
		time.Sleep(time.Second)
		synctest.Wait()
		last := mustCached(t, s, "x")
		if next.ID() != hold.ID() || last.ID() != hold.ID() || last.Token() != hold.Token()+2 || f.frames() != 1 {
			t.Fatalf("holds %d, %d, %d, %d requests", hold.ID(), next.ID(), last.ID(), f.frames())
		}
		unlocked(t, last)
	})
}

// TestNoLocalGrantAfterTheDeadline checks that the clock is read at each use, so that a machine that was suspended
// neither uses nor grants what it may have lost.
func TestNoLocalGrantAfterTheDeadline(t *testing.T) {
	for _, inUse := range []bool{false, true} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			s := f.session(c)
			unlocked(t, mustCached(t, s, "x"))
			hold := mustCached(t, s, "x")
			var waits <-chan lockResult
			if inUse {
				waits = cachedSoon(context.Background(), s, "x")
			} else {
				unlocked(t, hold)
			}
			f.clock.suspended.Add(int64(ttl))
			if inUse {
				wantErr(t, hold.Unlock(context.Background()), ErrSessionLost)
				wantErr(t, (<-waits).err, ErrSessionLost)
			}
			_, err := s.Lock(context.Background(), "x", WithCached(kept))
			wantErr(t, err, ErrSessionLost)
		})
	}
}

// TestRevokedCachedHold checks that a revocation recalls a hold: at once if it is idle, otherwise at the end of the
// local hold, or of the grace.
func TestRevokedCachedHold(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		idle := mustCached(t, s, "x")
		unlocked(t, idle)
		f.revoke(idle, "deploy", time.Minute)
		synctest.Wait()
		if f.held("x") != 0 || s.idle("x") {
			t.Fatal("an idle hold was not released")
		}
		hold := mustCached(t, s, "y")
		f.revoke(hold, "deploy", 4*time.Second)
		waits := cachedSoon(context.Background(), s, "y")
		ok(t, hold.Context().Err())
		if left := hold.Remaining(); left > 4*time.Second || left < 3*time.Second {
			t.Fatal(left)
		}
		unlocked(t, hold)
		unlocked(t, (<-waits).hold)
	})
}

// TestAbandonedCachedCalls checks that callers that leave at any point neither leave a hold behind nor stop those
// behind them.
func TestAbandonedCachedCalls(t *testing.T) {
	for name, granted := range map[string]bool{"before the answer": false, "while the answer travels": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				var held []func()
				f.set(func() {
					f.intercept = func(cn *fakeConn, req *wire.Request) bool {
						if req.GetAcquireCached() == nil || len(held) > 0 {
							return false
						}
						if granted {
							resp := f.service.serve(cn, req)
							held = append(held, func() { cn.answer(req, resp) })
						} else {
							held = append(held, func() { cn.serveRequest(req) })
						}
						return true
					}
				})
				ctx, cancel := context.WithCancel(context.Background())
				first := cachedSoon(ctx, s, "x")
				second := cachedSoon(ctx, s, "x")
				third := cachedSoon(context.Background(), s, "x")
				cancel()
				wantErr(t, (<-second).err, context.Canceled)
				wantErr(t, (<-first).err, context.Canceled, ErrUncertain)
				f.set(func() { held[0]() })
				got := <-third
				ok(t, got.err)
				unlocked(t, got.hold)
				if !s.idle("x") || f.count(cachedAcquires) != 2 {
					t.Fatalf("%d acquires", f.count(cachedAcquires))
				}
				f.check("after the abandoned calls")
			})
		})
	}
}

// TestMismatchedAnswerOfACachedAcquire checks that it grants nothing, and that those behind it are served.
func TestMismatchedAnswerOfACachedAcquire(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		spoiled := false
		f.set(func() {
			f.lag = func() time.Duration { return time.Millisecond }
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetAcquireCached() == nil || spoiled {
					return false
				}
				spoiled = true
				resp := f.service.serve(cn, req)
				resp.Result.Digest++
				cn.answer(req, resp)
				return true
			}
		})
		first, second := cachedSoon(context.Background(), s, "x"), cachedSoon(context.Background(), s, "x")
		wantErr(t, (<-first).err, ErrMismatchedAnswer, ErrUncertain)
		time.Sleep(time.Second)
		if len(second) == 0 {
			t.Fatal("what the first call was granted is held")
		}
		got := <-second
		ok(t, got.err)
		unlocked(t, got.hold)
		f.check("after the mismatch")
	})
}

// TestCachedUnderContention checks that a lock that another session wants as well is not cached, and is cached again
// when only this session uses it.
func TestCachedUnderContention(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		a, b := f.session(c), f.session(c)
		for range 10 { // in turn, each idle when the other asks
			unlocked(t, mustCached(t, a, "x"))
			unlocked(t, mustCached(t, b, "x"))
		}
		if n := f.count(acquires); n < 10 {
			t.Errorf("%d of 20 acquires were not cached", n)
		}
		for range leastCalm + 1 {
			unlocked(t, mustCached(t, a, "x"))
		}
		if !a.idle("x") {
			t.Error("not cached again")
		}
		before := f.frames()
		for range 10 {
			unlocked(t, mustCached(t, a, "x"))
		}
		if f.frames() != before {
			t.Error("the cluster was asked")
		}
		ok(t, a.Close(ctx))
	})
}

// TestManyCallersAndOneForeignClaim checks that all callers of a session are served beside a foreign claim, which waits
// for one local hold at most, and that the lock is cached afterwards.
func TestManyCallersAndOneForeignClaim(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s, other := f.session(c), f.session(c)
		const callers, rounds = 16, 40
		var served, inside atomic.Int32
		done := make(chan struct{})
		for range callers {
			go func() {
				for range rounds {
					hold := mustCached(t, s, "x")
					if inside.Add(1) != 1 {
						t.Error("two holders")
					}
					time.Sleep(time.Millisecond)
					inside.Add(-1)
					served.Add(1)
					if err := hold.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
				done <- struct{}{}
			}()
		}
		time.Sleep(20*time.Millisecond + time.Microsecond)
		before := served.Load()
		hold := mustLock(t, other, "x")
		if inside.Load() != 0 || served.Load() > before+2 {
			t.Errorf("%d local holds before the foreign one", served.Load()-before)
		}
		unlocked(t, hold)
		for range callers {
			<-done
		}
		synctest.Wait()
		if served.Load() != callers*rounds || !s.idle("x") {
			t.Errorf("%d served, cached: %v", served.Load(), s.idle("x"))
		}
		if n := f.frames(); n > 150 {
			t.Errorf("%d requests for %d holds", n, served.Load())
		}
	})
}

// TestMemoryOfManyNames checks that a session bounds what it keeps for names that it does not use any more.
func TestMemoryOfManyNames(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() { f.intercept = func(*fakeConn, *wire.Request) bool { f.seen = f.seen[:0]; return false } })
		used := mustCached(t, s, "used")
		for i := range 10 * mostCached {
			ok(t, mustCached(t, s, fmt.Sprint("x", i)).Unlock(context.Background()))
			time.Sleep(time.Microsecond)
		}
		synctest.Wait()
		c.mu.Lock()
		locks, holds := len(s.cached), s.holds.count()
		c.unlock()
		if locks > mostCached || holds > mostCached || s.cached["used"] == nil {
			t.Errorf("%d locks, %d holds", locks, holds)
		}
		for i := 10*mostCached - mostCached/2; i < 10*mostCached; i++ {
			if !s.idle(fmt.Sprint("x", i)) {
				t.Errorf("x%d, used lately, is not kept", i)
			}
		}
		unlocked(t, used)
	})
}

// TestManyCachedLocksInUse checks that a session may use more locks at a time than it keeps unused, and that each costs
// the same.
func TestManyCachedLocksInUse(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		trims, most := 0, 0
		for i := range 5 * mostCached {
			mustCached(t, s, fmt.Sprint("x", i))
			if s.trimAt != most {
				trims, most = trims+1, s.trimAt
			}
		}
		if trims > 4 || len(s.cached) != 5*mostCached {
			t.Errorf("%d locks, looked through %d times", len(s.cached), trims)
		}
		f.set(func() { f.seen = nil })
	})
}
