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

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func downgrades(s seen) bool { return s.req.GetDowngrade() != nil }

func mustShare(t testing.TB, s *Session, name string) *Hold {
	t.Helper()
	hold, err := s.Lock(context.Background(), name, WithShared())
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

// upgradeSoon upgrades in another goroutine.
func upgradeSoon(ctx context.Context, h *Hold) <-chan error {
	done := make(chan error, 1)
	go func() { done <- h.Upgrade(ctx) }()
	synctest.Wait()
	return done
}

func TestUpgradeAndDowngrade(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		hold, other := mustShare(t, s, "x"), mustShare(t, s, "x")
		token := hold.Token()
		wantErr(t, hold.Upgrade(ctx, WithTry()), ErrNotAcquired)
		wantErr(t, hold.Upgrade(ctx, WithWait(time.Second)), ErrTimeout)
		wantErr(t, hold.Upgrade(ctx, WithWait(-1)), ErrInvalidArgument)
		waiting := upgradeSoon(ctx, hold)
		wantErr(t, other.Upgrade(ctx, AllowDeadlock()), ErrUpgradeConflict)
		wantErr(t, hold.Upgrade(ctx), ErrAlreadyQueued)
		if hold.Mode() != Shared || hold.Token() != token {
			t.Fatal("changed while it waits")
		}
		ok(t, other.Unlock(ctx))
		ok(t, <-waiting)
		if hold.Mode() != Exclusive || hold.Token() <= token {
			t.Fatalf("%v, token %d", hold.Mode(), hold.Token())
		}
		upgraded := hold.Token()
		ok(t, hold.Upgrade(ctx)) // changes nothing
		ok(t, hold.SetValue(ctx, []byte("v")))
		_, err := s.Lock(ctx, "x", WithTry(), WithShared())
		wantErr(t, err, ErrNotAcquired)
		ok(t, hold.Downgrade(ctx))
		if hold.Mode() != Shared || hold.Token() != upgraded {
			t.Fatal("not shared, or another token")
		}
		ok(t, mustShare(t, s, "x").Unlock(ctx))
		ok(t, hold.Unlock(ctx))
		wantErr(t, hold.Upgrade(ctx), ErrNotHeld)
		wantErr(t, hold.Downgrade(ctx), ErrNotHeld)
		if f.held("x") != 0 {
			t.Fatal("still held")
		}
		many, err := s.LockAll(ctx, []LockSpec{{Name: "a"}, {Name: "b"}})
		ok(t, err)
		wantErr(t, many.Upgrade(ctx), ErrInvalidArgument)
	})
}

func TestUpgradeIsCancelled(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold, other := mustShare(t, s, "x"), mustShare(t, s, "x")
		ctx, cancel := context.WithCancel(context.Background())
		waiting := upgradeSoon(ctx, hold)
		cancel()
		err := <-waiting
		wantErr(t, err, context.Canceled)
		if errors.Is(err, ErrUncertain) || f.count(cancels) != 1 || hold.Context().Err() != nil {
			t.Fatal(err)
		}
		wantErr(t, hold.Upgrade(ctx), context.Canceled)
		wantErr(t, other.Upgrade(withTimeout(t, time.Second), AllowDeadlock()), context.DeadlineExceeded)
		ok(t, hold.Unlock(context.Background()))
		ok(t, other.Upgrade(context.Background()))
	})
}

// TestUpgradeThatWinsAgainstCancelIsDowngraded checks that an upgrade granted to a caller that has left is
// undone, but that the hold remains.
func TestUpgradeThatWinsAgainstCancelIsDowngraded(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustShare(t, s, "x")
		token := hold.Token()
		mustShare(t, s, "x")
		ctx, cancel := context.WithCancel(context.Background())
		waiting := upgradeSoon(ctx, hold)
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetCancel() != nil {
					f.intercept = nil
					l := f.service.locks["x"]
					f.service.remove(l.holders[1])
					f.service.grantAll()
				}
				return false
			}
		})
		cancel()
		wantErr(t, <-waiting, context.Canceled)
		synctest.Wait()
		if hold.Mode() != Shared || hold.Token() == token || hold.Context().Err() != nil || f.count(downgrades) != 1 {
			t.Fatalf("%v, token %d, %d downgrades", hold.Mode(), hold.Token(), f.count(downgrades))
		}
		mustShare(t, s, "x")
		ok(t, hold.Unlock(context.Background()))
	})
}

// TestUnlockDuringUpgrade checks that a release succeeds while an upgrade changes its token.
func TestUnlockDuringUpgrade(t *testing.T) {
	for _, granted := range []bool{false, true} {
		virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
			s := f.session(c)
			hold := mustShare(t, s, "x")
			var late func()
			f.set(func() {
				f.intercept = func(cn *fakeConn, req *wire.Request) bool {
					if req.GetUpgrade() == nil {
						return false
					}
					f.intercept = nil
					if !granted {
						late = func() { cn.serveRequest(req) }
						return true
					}
					resp := f.service.serve(cn, req)
					late = func() { cn.answer(req, resp) }
					return true
				}
			})
			upgraded := upgradeSoon(context.Background(), hold)
			done := make(chan error, 1)
			go func() { done <- hold.Unlock(context.Background()) }()
			synctest.Wait()
			if granted && (len(done) > 0 || f.held("x") == 0) {
				t.Fatal("the test proves nothing")
			}
			f.set(func() { late() })
			ok(t, <-done)
			err := <-upgraded
			if f.held("x") != 0 || granted != (err == nil) {
				t.Fatal("held silently", err)
			}
			if len(f.twice()) > 0 {
				t.Fatal("executed twice")
			}
		})
	}
}

func TestUpgradeThroughFailover(t *testing.T) {
	for name, meet := range map[string]func(f *fake, cn *fakeConn, req *wire.Request){
		"never executed":    func(*fake, *fakeConn, *wire.Request) {},
		"executed, unheard": func(f *fake, cn *fakeConn, req *wire.Request) { f.service.serve(cn, req) },
		"executed much late": func(f *fake, _ *fakeConn, req *wire.Request) {
			time.AfterFunc(50*time.Millisecond, func() { f.set(func() { f.service.straggler(req) }) })
		},
	} {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprint(name, alone), func(t *testing.T) {
				virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
					ctx := context.Background()
					s := f.session(c)
					hold := mustShare(t, s, "x")
					var other *Hold
					if !alone {
						other = mustShare(t, s, "x")
					}
					f.set(func() {
						f.intercept = func(cn *fakeConn, req *wire.Request) bool {
							if req.GetUpgrade() == nil {
								return false
							}
							f.intercept = nil
							meet(f, cn, req)
							f.leader = &wire.LeaderHint{Id: "n2", ClientAddr: "n2:7400", Term: 2}
							_ = cn.nc.Close()
							return true
						}
					})
					waiting := upgradeSoon(ctx, hold)
					time.Sleep(time.Second)
					if !alone {
						ok(t, other.Unlock(ctx))
					}
					ok(t, <-waiting)
					f.set(func() {
						if k := f.service.locks["x"].holders[0]; k.token != hold.Token() || !k.exclusive() {
							t.Errorf("token %d, the cluster's %d", hold.Token(), k.token)
						}
					})
					ok(t, hold.Unlock(ctx))
					if len(f.twice()) > 0 {
						t.Fatal("executed twice")
					}
				})
			})
		}
	}
}

func TestUpgradeOfALostHold(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		hold := mustShare(t, s, "x")
		mustShare(t, s, "x")
		waiting := upgradeSoon(ctx, hold)
		_, err := wirecall.Of(c).ForceRelease(ctx, &wire.ForceRelease{HoldId: hold.ID(), Token: hold.Token(), Reason: "r"})
		ok(t, err)
		wantErr(t, <-waiting, ErrNotHeld)
		wantErr(t, hold.Upgrade(ctx), ErrForced)

		hold = mustShare(t, s, "x")
		waiting = upgradeSoon(ctx, hold)
		ok(t, s.Close(ctx))
		wantErr(t, <-waiting, ErrClosed)
	})
}

// TestUpgradesThroughEverything has readers that upgrade, downgrade and leave during broken connections.
// There are never two writers, and nothing remains.
func TestUpgradesThroughEverything(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
				f.set(func() { f.intercept = mischief(f, rand.New(rand.NewPCG(seed, 7))) })
				s := f.session(c)
				var wg sync.WaitGroup
				var mu sync.Mutex
				writer, wrote := 0, 0
				for i := range uint64(4) {
					r := rand.New(rand.NewPCG(seed, 20+i))
					wg.Go(func() {
						for range 25 {
							hold, err := s.Lock(withTimeout(t, time.Minute), "hot", WithShared())
							if err != nil {
								t.Error(err)
								return
							}
							if hold.Upgrade(withTimeout(t, time.Duration(1+r.IntN(500))*time.Millisecond)) == nil {
								mu.Lock()
								if writer++; writer > 1 {
									t.Error("two writers at once")
								}
								wrote++
								mu.Unlock()
								time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
								mu.Lock()
								writer--
								mu.Unlock()
								if r.IntN(2) == 0 {
									_ = hold.Downgrade(withTimeout(t, time.Duration(1+r.IntN(300))*time.Millisecond))
								}
							}
							_ = hold.Unlock(withTimeout(t, time.Duration(1+r.IntN(300))*time.Millisecond))
						}
					})
				}
				stop, moved := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(moved)
					moveLeader(f, stop, 700*time.Millisecond)
				}()
				wg.Wait()
				close(stop)
				<-moved
				f.set(func() { f.intercept = nil })
				time.Sleep(10 * time.Second)
				synctest.Wait()
				checkQuiet(t, f, c)
				if wrote < 5 {
					t.Errorf("only %d upgrades: this proves little", wrote)
				}
			})
		})
	}
}

// withTimeout returns a ctx with a timeout.
func withTimeout(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
