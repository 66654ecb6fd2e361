package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func extends(s seen) bool { return s.req.GetExtend() != nil }

func mustBound(t testing.TB, s *Session, name string, d time.Duration) *Hold {
	t.Helper()
	hold, err := s.Lock(context.Background(), name, WithMaxHold(d))
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

func TestHoldExpiresBeforeTheLeadersDecision(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		began := time.Now()
		hold := mustBound(t, s, "x", 10*time.Second)
		free := mustLock(t, s, "y")
		if got := hold.Remaining(); got != 10*time.Second-100*time.Millisecond {
			t.Fatalf("%v remain", got)
		}
		notices := hold.Revoked()
		<-hold.Context().Done()
		if took := time.Since(began); took != 10*time.Second-100*time.Millisecond {
			t.Fatalf("ended after %v", took)
		}
		cause := context.Cause(hold.Context())
		wantErr(t, cause, ErrHoldExpired)
		if errors.Is(cause, ErrSessionLost) || f.held("x") != s.ID() {
			t.Fatal("that was not the hold's own time")
		}
		<-hold.Lost()
		if _, more := <-notices; more || hold.Remaining() != 0 || hold.Count() != 0 {
			t.Fatal("it lives on")
		}
		wantErr(t, hold.Unlock(ctx), ErrHoldExpired)
		wantErr(t, hold.Extend(ctx, 0), ErrHoldExpired)
		wantErr(t, hold.SetValue(ctx, nil), ErrHoldExpired)
		time.Sleep(time.Second)
		if f.held("x") != 0 || f.count(releases) != 0 {
			t.Fatal("it was not left to its time, and its lock-delay")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.holds.count() != 1 || len(s.bounded) != 0 || free.ended != nil {
			t.Fatal("the books are wrong")
		}
	})
}

func TestSuspendIsNoticedByABound(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		for name, use := range map[string]func(h *Hold){
			"Err":       func(h *Hold) { _ = h.Context().Err() },
			"Unlock":    func(h *Hold) { wantErr(t, h.Unlock(context.Background()), ErrHoldExpired) },
			"Remaining": func(h *Hold) { h.Remaining() },
			"Upgrade":   func(h *Hold) { wantErr(t, h.Upgrade(context.Background()), ErrHoldExpired) },
			"Lost":      func(h *Hold) { <-h.Lost() },
		} {
			hold := mustBound(t, s, name, time.Second)
			synctest.Wait()
			f.clock.suspended.Add(int64(2 * time.Second))
			use(hold)
			if plain(hold).Err() == nil {
				t.Errorf("%s: goes on after the deadline", name)
			}
		}
	})
}

func TestExtend(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		hold := mustBound(t, s, "x", 5*time.Second)
		for range 4 {
			time.Sleep(4 * time.Second)
			ok(t, hold.Extend(ctx, 0))
		}
		ok(t, hold.Extend(ctx, 20*time.Second))
		ok(t, s.Do(ctx, "beat", func(context.Context, uint64) error { return nil }))
		if got := hold.Remaining(); got != s.Remaining() {
			t.Fatalf("%v remain, the session %v", got, s.Remaining())
		}
		time.Sleep(15 * time.Second)
		ok(t, hold.Context().Err())
		ok(t, hold.Extend(ctx, 0)) // 20 s again
		time.Sleep(15 * time.Second)
		ok(t, hold.Context().Err())
		wantErr(t, hold.Extend(ctx, time.Millisecond), ErrInvalidArgument)
		wantErr(t, hold.Extend(ctx, -1), ErrInvalidArgument)
		ok(t, hold.Context().Err())
		ok(t, hold.Extend(ctx, time.Second)) // shorter
		if got := hold.Remaining(); got > time.Second {
			t.Fatalf("%v remain", got)
		}
		ok(t, hold.Unlock(ctx))

		free := mustLock(t, s, "y")
		wantErr(t, free.Extend(ctx, 0), ErrFailedPrecondition)
		ok(t, free.Extend(ctx, time.Second)) // adds a bound
		<-free.Context().Done()
		wantErr(t, context.Cause(free.Context()), ErrHoldExpired)
	})
}

// TestExtendWithoutAnAnswer checks that the shorter time counts while it is unknown whether an Extend was
// applied.
func TestExtendWithoutAnAnswer(t *testing.T) {
	for name, want := range map[string]struct{ d, left time.Duration }{
		"longer":  {time.Minute, 3960 * time.Millisecond},
		"shorter": {time.Second, 980 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				hold := mustBound(t, f.session(c), "x", 4*time.Second)
				f.set(func() {
					f.intercept = func(cn *fakeConn, req *wire.Request) bool {
						if req.GetExtend() != nil {
							f.service.serve(cn, req) // executed, but the answer is lost
						}
						return true
					}
				})
				began := time.Now()
				wantErr(t, hold.Extend(withTimeout(t, 100*time.Millisecond), want.d), ErrUncertain, context.DeadlineExceeded)
				<-hold.Context().Done()
				if took := time.Since(began); took != want.left {
					t.Fatalf("ended after %v, want %v", took, want.left)
				}
			})
		})
	}
}

// TestBoundOfARepeatedAcquire checks that the time of a repeated acquire counts from the first request that
// may have been applied.
func TestBoundOfARepeatedAcquire(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		first := true
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetAcquire() == nil || !first {
					return false
				}
				first = false
				f.service.serve(cn, req)
				time.AfterFunc(4*time.Second, func() { _ = cn.nc.Close() })
				return true
			}
		})
		asked := time.Now()
		hold := mustBound(t, s, "x", 10*time.Second)
		if took := time.Since(asked); took < 4*time.Second {
			t.Fatal("the test proves nothing")
		}
		<-hold.Context().Done()
		if took := time.Since(asked); took > 10*time.Second-100*time.Millisecond {
			t.Fatalf("ended %v after the first request", took)
		}
	})
}

// TestBoundThatPassedWhileDisconnected checks that a hold whose bound passed before its grant
// arrived is reported as expired, not as forced.
func TestBoundThatPassedWhileDisconnected(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		first := true
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetAcquire() == nil || !first {
					return false
				}
				first = false
				f.service.serve(cn, req)
				time.AfterFunc(4*time.Second, func() { _ = cn.nc.Close() })
				return true
			}
		})
		_, err := s.Lock(context.Background(), "x", WithMaxHold(time.Second))
		wantErr(t, err, ErrHoldExpired)
		if errors.Is(err, ErrForced) {
			t.Fatalf("nobody forced it: %v", err)
		}
	})
}

// TestBoundOfAWait checks that a hold granted after a wait is extended before it is returned, if too little
// time is certain to remain.
func TestBoundOfAWait(t *testing.T) {
	for name, want := range map[string]struct {
		d      time.Duration
		broken bool // the connection, when the hold is granted
		answer wire.Status_Code
		err    error
	}{
		"long":          {d: 30 * time.Second},
		"short":         {d: time.Second},
		"in a break":    {d: time.Minute, broken: true},
		"refused":       {d: time.Second, answer: wire.Status_FAILED_PRECONDITION, err: ErrHoldExpired},
		"refused, long": {d: 30 * time.Second, answer: wire.Status_FAILED_PRECONDITION},
		"refused, late": {d: 30 * time.Second, answer: wire.Status_FAILED_PRECONDITION, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				ctx := context.Background()
				s := f.session(c)
				other := mustLock(t, f.session(c), "x")
				done := make(chan lockResult, 1)
				go func() {
					hold, err := s.Lock(ctx, "x", WithMaxHold(want.d))
					done <- lockResult{hold, err}
				}()
				time.Sleep(time.Minute)
				awaitOldProof(s, 3*time.Second)
				if want.answer != 0 {
					f.set(func() {
						f.intercept = func(cn *fakeConn, req *wire.Request) bool {
							if req.GetExtend() != nil {
								cn.answer(req, respond(status(want.answer)))
							}
							return req.GetExtend() != nil
						}
					})
				}
				granted := time.Now()
				if want.broken {
					f.set(func() { f.node("n1").down = true })
					f.cut("n1")
					f.set(func() { f.service.drop("x") })
					time.Sleep(2 * time.Second)
					f.set(func() { f.node("n1").down = false })
				} else {
					ok(t, other.Unlock(ctx))
				}
				got := <-done
				if want.err != nil {
					wantErr(t, got.err, want.err)
					synctest.Wait()
					if f.held("x") != 0 {
						t.Fatal("it is held for nobody")
					}
					return
				}
				ok(t, got.err)
				synctest.Wait()
				if f.count(extends) != 1 {
					t.Fatal("not extended")
				}
				<-got.hold.Context().Done()
				took := time.Since(granted)
				if took > want.d+4*time.Second || want.answer != 0 && took >= want.d || want.answer == 0 && took < want.d*9/10 {
					t.Fatalf("ended %v after the grant", took)
				}
			})
		})
	}
}

// TestGrantThatExpiredBeforeItsCallerHadIt checks that a hold whose time passed before its caller got it is
// lost to its max_hold, whatever the cluster knows about it by then.
func TestGrantThatExpiredBeforeItsCallerHadIt(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		other := mustLock(t, f.session(c), "x")
		done := make(chan error, 1)
		go func() {
			_, err := s.Lock(ctx, "x", WithMaxHold(time.Second))
			done <- err
		}()
		awaitOldProof(s, 3*time.Second)
		var late func()
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				late = func() { cn.answer(req, respond(status(wire.Status_NOT_HELD))) }
				return req.GetExtend() != nil
			}
		})
		ok(t, other.Unlock(ctx))
		synctest.Wait()
		f.set(func() {
			f.intercept = nil
			f.service.drop("x")
			late()
		})
		wantErr(t, <-done, ErrHoldExpired)
	})
}

// awaitOldProof waits until the last acknowledged request of the session is age old.
func awaitOldProof(s *Session, age time.Duration) {
	old := func() bool {
		s.client.mu.Lock()
		defer s.client.mu.Unlock()
		return s.client.clock.Now()-s.proofAt >= age
	}
	for !old() {
		time.Sleep(50 * time.Millisecond)
	}
}

// TestCallerLeavesWhileItsGrantIsConfirmed checks that a caller that leaves while its grant is being
// confirmed leaves nothing behind.
func TestCallerLeavesWhileItsGrantIsConfirmed(t *testing.T) {
	for _, lost := range []bool{false, true} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			s := f.session(c)
			other := mustLock(t, f.session(c), "x")
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() {
				_, err := s.Lock(ctx, "x", WithMaxHold(time.Second))
				done <- err
			}()
			awaitOldProof(s, 3*time.Second)
			var late func()
			f.set(func() {
				f.intercept = func(cn *fakeConn, req *wire.Request) bool {
					late = func() { cn.serveRequest(req) }
					return req.GetExtend() != nil
				}
			})
			ok(t, other.Unlock(context.Background()))
			synctest.Wait()
			if len(done) > 0 {
				t.Fatal("handed out though it may be over")
			}
			f.set(func() { f.intercept = nil })
			if lost {
				ok(t, s.Close(context.Background()))
				wantErr(t, <-done, ErrClosed)
			} else {
				cancel()
				wantErr(t, <-done, context.Canceled)
			}
			synctest.Wait()
			if f.held("x") != 0 { // immediately, not when its max_hold passes
				t.Fatal("held silently")
			}
			f.set(func() { late() })
			time.Sleep(time.Second)
			synctest.Wait()
			if f.held("x") != 0 || s.holds.count()+len(s.bounded) != 0 {
				t.Fatal("held again, or not forgotten")
			}
			cancel()
		})
	}
}

// boundCheck fails the test if the cluster ends a hold by its time, or by a grace, while the hold's user
// may still rely on it. Notices take less than half of any grace here.
type boundCheck struct {
	mu      sync.Mutex
	holds   map[uint64]*Hold
	expired int // of these, forced ones
	forced  int
	late    int
}

func (b *boundCheck) add(h *Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds[h.ID()] = h
}

func (b *boundCheck) onLost(k *claim, reason wire.HoldLost_Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.holds[k.id]
	b.expired++
	if reason == wire.HoldLost_FORCED {
		b.forced++ // by a grace, since no operator in this test forces a hold without one
	}
	if h == nil || reason == wire.HoldLost_FORCED && !h.knowsGrace() {
		return // the notice was lost with a connection
	}
	if plain(h).Err() == nil {
		b.late++
	}
}

// knowsGrace reports whether the notice of a grace has arrived.
func (h *Hold) knowsGrace() bool {
	h.held.session.client.mu.Lock()
	defer h.held.session.client.mu.Unlock()
	return h.held.rare.graced
}

// worker acquires bounded holds, extends, upgrades, unlocks late or never, and has operators ask for some
// of them.
func (b *boundCheck) worker(f *fake, s *Session, r *rand.Rand) {
	for range 30 {
		name := fmt.Sprint("x", r.IntN(3))
		opts := []LockOption{WithMaxHold(time.Duration(100+r.IntN(8000)) * time.Millisecond)}
		if r.IntN(3) == 0 {
			opts = append(opts, WithShared())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(20_000))*time.Millisecond)
		hold, err := s.Lock(ctx, name, opts...)
		if err != nil {
			cancel()
			continue
		}
		b.add(hold)
		for range r.IntN(6) {
			time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
			short, stop := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(2000))*time.Millisecond)
			switch r.IntN(6) {
			case 0:
				_ = hold.Upgrade(short, WithTry())
			case 2:
				if r.IntN(3) == 0 {
					f.revoke(hold, "deploy", time.Duration(1000+r.IntN(6000))*time.Millisecond)
				}
			case 1:
				_ = hold.Extend(short, 0)
			default:
				_ = hold.Extend(short, time.Duration(100+r.IntN(6000))*time.Millisecond)
			}
			stop()
		}
		if r.IntN(3) > 0 {
			_ = hold.Unlock(ctx)
		}
		cancel()
	}
}

func TestBoundIsNeverLaterThanTheLeaders(t *testing.T) {
	forced := 0
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
				r := rand.New(rand.NewPCG(seed, 3))
				check := &boundCheck{holds: make(map[uint64]*Hold)}
				f.set(func() {
					f.onLost = check.onLost
					f.lag = func() time.Duration { return time.Duration(r.IntN(1 + r.IntN(400)*int(time.Millisecond))) }
					if seed%2 == 1 {
						f.intercept = mischief(f, r)
					}
				})
				var wg sync.WaitGroup
				for i := range uint64(3) {
					s := f.session(c)
					wg.Go(func() { check.worker(f, s, rand.New(rand.NewPCG(seed, 30+2*i))) })
					wg.Go(func() { check.worker(f, s, rand.New(rand.NewPCG(seed, 31+2*i))) })
				}
				stop, moved := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(moved)
					if seed%3 != 0 {
						moveLeader(f, stop, 9*time.Second)
					}
				}()
				wg.Wait()
				close(stop)
				<-moved
				f.set(func() { f.intercept = nil })
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if check.late > 0 {
					t.Errorf("%d of %d holds ended on the cluster before they did here", check.late, check.expired)
				}
				if len(check.holds) < 20 || check.expired < 5 {
					t.Errorf("%d holds, %d expired: this proves little", len(check.holds), check.expired)
				}
				checkQuiet(t, f, c)
				forced += check.forced
			})
		})
	}
	if forced < 20 {
		t.Errorf("%d graces passed: this proves little", forced)
	}
}
