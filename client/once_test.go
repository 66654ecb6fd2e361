package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func done(context.Context, uint64) error { return nil }

// TestOnceAmongMany starts a job on fifty machines within some seconds. One of them runs it, and all know
// when it is done.
func TestOnceAmongMany(t *testing.T) {
	const machines = 50
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx := context.Background()
		started := time.Now()
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			runs []time.Duration
		)
		for i := range machines {
			wg.Go(func() {
				c := f.client()
				defer c.Close()
				s := f.session(c)
				time.Sleep(time.Duration(i) * 100 * time.Millisecond) // clock skew of this machine
				ran, err := s.Once("cron/nightly/2026-11-21", time.Minute).Do(ctx, func(ctx context.Context, token uint64) error {
					mu.Lock()
					runs = append(runs, time.Since(started))
					mu.Unlock()
					time.Sleep(2 * time.Second)
					return ctx.Err()
				})
				ok(t, err)
				if at := time.Since(started); at < 2*time.Second {
					t.Errorf("machine %d takes it for done after %v, ran: %v", i, at, ran)
				}
				ok(t, s.Close(ctx))
			})
		}
		wg.Wait()
		if len(runs) != 1 {
			t.Errorf("runs began after %v", runs)
		}
	})
}

// TestOnceIsKept checks that the record is kept for as long as requested, even after the program has
// exited, and no longer.
func TestOnceIsKept(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx := context.Background()
		first := f.client()
		o := f.session(first).Once("migrate/7", time.Minute)
		known, err := o.Done(ctx)
		if o.Name() != "migrate/7" || known || err != nil {
			t.Error(o.Name(), known, err)
		}
		ran, err := o.Do(ctx, func(_ context.Context, token uint64) error {
			if known, err := o.Done(ctx); known || err != nil {
				t.Error("done while it is done:", err)
			}
			if l := f.service.locks["migrate/7"]; len(l.holders) != 1 || l.holders[0].token != token || !l.holders[0].exclusive() {
				t.Error("nobody else may hold it")
			}
			return nil
		})
		if !ran || err != nil {
			t.Fatal(ran, err)
		}
		ok(t, first.Close())

		o = f.session(c).Once("migrate/7", time.Minute)
		never := func(context.Context, uint64) error { t.Error("done again"); return nil }
		known, err = o.Done(ctx)
		if !known || err != nil {
			t.Error("it is not known to be done:", err)
		}
		if ran, err = o.Do(ctx, never, WithTry()); ran || err != nil {
			t.Error(ran, err)
		}
		time.Sleep(55 * time.Second)
		if ran, err = o.Do(ctx, never); ran || err != nil {
			t.Error(ran, err)
		}
		time.Sleep(6 * time.Second)
		if ran, err = o.Do(ctx, done, WithTry()); !ran || err != nil {
			t.Error("after the time for which it was kept:", ran, err)
		}
		if f.held("migrate/7") != 0 {
			t.Error("the lock is held still")
		}
	})
}

// TestOnceFallsToTheNext checks that a caller that fails, panics or dies leaves the job to the next one,
// until it is done.
func TestOnceFallsToTheNext(t *testing.T) {
	broke := errors.New("no disk")
	for name, end := range map[string]struct {
		fn   func(f *fake, s *Session) error
		want []error
	}{
		"it fails":                {func(*fake, *Session) error { return broke }, []error{broke}},
		"it panics":               {func(*fake, *Session) error { panic(broke) }, []error{broke}},
		"its session is closed":   {func(_ *fake, s *Session) error { return s.Close(context.Background()) }, []error{ErrClosed}},
		"its client is closed":    {func(f *fake, s *Session) error { f.expire(s); return s.client.Close() }, []error{ErrClientClosed}},
		"an operator takes it":    {func(f *fake, s *Session) error { f.take("job"); synctest.Wait(); return nil }, []error{ErrForced}},
		"its network is cut":      {func(f *fake, s *Session) error { f.part(s); <-s.Lost(); return nil }, []error{ErrExpired}},
		"and fails with its loss": {func(f *fake, s *Session) error { f.part(s); <-s.Lost(); return broke }, []error{ErrExpired, broke}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				f.readable()
				ctx := context.Background()
				s := f.session(f.client())
				var first, second uint64
				started, result := make(chan struct{}), make(chan error, 1)
				go func() {
					ran, err := s.Once("job", time.Minute).tryPanic(ctx, func(_ context.Context, token uint64) error {
						first = token
						<-started
						return end.fn(f, s)
					})
					if !ran {
						err = errors.Join(err, errors.New("it did not run"))
					}
					result <- err
				}()
				synctest.Wait()
				o := f.session(c).Once("job", time.Minute)
				_, err := o.Do(ctx, done, WithTry())
				wantErr(t, err, ErrNotAcquired)
				close(started)
				ran, err := o.Do(ctx, func(_ context.Context, token uint64) error { second = token; return nil })
				ok(t, err)
				if !ran || second <= first {
					t.Errorf("the next one ran: %v, tokens %d and %d", ran, first, second)
				}
				wantErr(t, <-result, end.want...)
			})
		})
	}
}

// tryPanic converts a panic to an error.
func (o *Once) tryPanic(ctx context.Context, fn func(context.Context, uint64) error) (ran bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			ran, err = true, p.(error)
		}
	}()
	return o.Do(ctx, fn)
}

func (f *fake) take(name string) {
	f.set(func() {
		k := f.service.locks[name].holders[0]
		f.service.revision++
		f.service.force(&wire.ForceRelease{HoldId: k.id, Token: k.token, Reason: "stuck"})
	})
}

// part cuts a session off: its requests fail, and it expires on the cluster.
func (f *fake) part(s *Session) {
	f.set(func() {
		inner := f.intercept
		f.intercept = func(cn *fakeConn, req *wire.Request) bool {
			return cn == f.service.sessionConn(s.ID()) || inner(cn, req)
		}
	})
	f.expire(s)
}

// expire ends a session on the cluster that has been cut off.
func (f *fake) expire(s *Session) {
	f.set(func() {
		v := f.service
		v.later(16_000, func() {
			if s := v.sessions[s.ID()]; s != nil {
				v.end(s)
			}
		})
	})
}

func (v *service) sessionConn(id uint64) *fakeConn {
	if s := v.sessions[id]; s != nil {
		return s.conn
	}
	return nil
}

// TestOnceChecksFirst checks that keep is validated before the job runs.
func TestOnceChecksFirst(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx := context.Background()
		f.set(func() {
			inner := f.intercept
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if ttl := req.GetAcquireLease().GetTtlMs(); ttl > 600_000 {
					cn.answer(req, respond(&wire.Result{Status: wire.Status_INVALID_ARGUMENT, Message: "ttl out of range"}))
					return true
				}
				return inner(cn, req)
			}
		})
		s := f.session(c)
		never := func(context.Context, uint64) error { t.Error("it was done"); return nil }
		for _, keep := range []time.Duration{0, -time.Second, time.Nanosecond, 11 * time.Minute} {
			ran, err := s.Once("job", keep).Do(ctx, never)
			wantErr(t, err, ErrInvalidArgument)
			if ran {
				t.Error("it ran")
			}
		}
		ok(t, s.Close(ctx))
		_, err := s.Once("job", time.Minute).Do(ctx, never)
		wantErr(t, err, ErrClosed)
		if f.held("job") != 0 || f.held("job/done") != 0 {
			t.Error("something is held still")
		}
	})
}

// TestOnceRunsNothingThatCannotBeRecorded refuses each request that is sent before the job runs, with every refusal. Then
// the job does not run. It also checks that nothing is asked for the first time after the job: the record was asked for in
// the same words, and the rest gives up what is held.
func TestOnceRunsNothingThatCannotBeRecorded(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		var sent []*wire.Request
		refuse, with := -1, wire.Status_OK
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if get := req.GetGetLock(); get != nil && len(sent) != refuse {
					cn.answer(req, f.service.getLock(get.GetName()))
				}
				if req.GetHeartbeat() != nil || req.GetOpenSession() != nil {
					return false
				}
				sent = append(sent, proto.CloneOf(req))
				if len(sent)-1 == refuse {
					cn.answer(req, respond(&wire.Result{Status: with}))
					return true
				}
				return req.GetGetLock() != nil
			}
		})
		s := f.session(c)
		before := 0
		ran, err := s.Once("job", time.Minute).Do(ctx, func(context.Context, uint64) error { before = len(sent); return nil })
		if !ran || err != nil || before == 0 {
			t.Fatalf("ran: %v, %v after %d requests", ran, err, before)
		}
		for _, late := range sent[before:] {
			if late.GetRelease() == nil && !slices.ContainsFunc(sent[:before], func(early *wire.Request) bool { return sameRecord(early, late) }) {
				t.Errorf("first asked for after the job: %v", late)
			}
		}
		for i := range before {
			for _, with = range []wire.Status_Code{wire.Status_INVALID_ARGUMENT, wire.Status_PERMISSION_DENIED, wire.Status_RESOURCE_EXHAUSTED} {
				name := fmt.Sprintf("job %d %v", i, with)
				sent, refuse = nil, i
				ran, err := s.Once(name, time.Minute).Do(ctx, func(context.Context, uint64) error { t.Errorf("%s: it runs", name); return nil })
				if ran || err == nil {
					t.Errorf("%s: ran: %v, %v", name, ran, err)
				}
				synctest.Wait()
				if f.held(name) != 0 || f.held(name+"/done") != 0 {
					t.Errorf("%s: something is held still", name)
				}
			}
		}
	})
}

// sameRecord reports whether two requests ask for the same lease, except for its secret.
func sameRecord(a, b *wire.Request) bool {
	x, y := proto.CloneOf(a.GetAcquireLease()), proto.CloneOf(b.GetAcquireLease())
	if x == nil || y == nil {
		return false
	}
	x.Secret, y.Secret = nil, nil
	return proto.Equal(x, y)
}

// TestOnceWaitsForRoom takes the room for the record away while the job runs. Do records the job as soon as there is room
// again; if there is none for too long, Do returns an error, and another caller may run the job.
func TestOnceWaitsForRoom(t *testing.T) {
	for full, recorded := range map[time.Duration]bool{20 * time.Second: true, time.Hour: false} {
		t.Run(fmt.Sprint(full), func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				f.readable()
				ctx := context.Background()
				var since time.Time // when the job ran
				f.set(func() {
					inner := f.intercept
					f.intercept = func(cn *fakeConn, req *wire.Request) bool {
						if req.GetAcquireLease() != nil && !since.IsZero() && time.Since(since) < full {
							cn.answer(req, respond(&wire.Result{Status: wire.Status_RESOURCE_EXHAUSTED, Message: "sessions"}))
							return true
						}
						return inner(cn, req)
					}
				})
				o := f.session(c).Once("job", 2*time.Hour)
				ran, err := o.Do(ctx, func(context.Context, uint64) error { f.set(func() { since = time.Now() }); return nil })
				if recorded {
					ok(t, err)
				} else {
					wantErr(t, err, ErrResourceExhausted)
				}
				if took := time.Since(since); !ran || took > recordTimeout+time.Second {
					t.Errorf("ran: %v, recorded after %v", ran, took)
				}
				time.Sleep(time.Until(since.Add(full)))
				ran, err = o.Do(ctx, done)
				ok(t, err)
				if ran == recorded {
					t.Error("recorded:", recorded, "and it runs:", ran)
				}
			})
		})
	}
}

// TestOnceAfterAForcedRelease has an operator take the lock of a job that does not heed it. The next caller does not wait
// for that job.
func TestOnceAfterAForcedRelease(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx := context.Background()
		stuck, result := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := f.session(f.client()).Once("job", time.Minute).Do(ctx, func(context.Context, uint64) error { <-stuck; return nil })
			result <- err
		}()
		synctest.Wait()
		f.take("job")
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ran, err := f.session(c).Once("job", time.Minute).Do(soon, done)
		ok(t, err)
		if !ran {
			t.Error("the next one did not run")
		}
		close(stuck)
		wantErr(t, <-result, ErrForced)
	})
}

// TestOnceAmongMachinesThatDie has machines that die at any moment or whose job fails. Two never run at the
// same time, no run follows a success while it is kept, and in the end the job is done.
func TestOnceAmongMachinesThatDie(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, _ *Client) { dieAtRandom(t, f, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func dieAtRandom(t *testing.T, f *fake, random *rand.Rand) {
	f.readable()
	var (
		wg                 sync.WaitGroup
		mu                 sync.Mutex
		working, succeeded int
		last               uint64
	)
	for range 12 {
		start, work := time.Duration(random.IntN(3000))*time.Millisecond, time.Duration(random.IntN(1000))*time.Millisecond
		dies, fails := time.Duration(random.IntN(4000))*time.Millisecond, random.IntN(3) == 0
		immortal := random.IntN(4) == 0
		wg.Go(func() {
			c := f.client()
			s := f.session(c)
			time.Sleep(start)
			if !immortal {
				time.AfterFunc(dies, func() {
					f.expire(s)
					_ = c.Close()
				})
			}
			_, err := s.Once("job", time.Minute).Do(context.Background(), func(ctx context.Context, token uint64) error {
				mu.Lock()
				defer mu.Unlock()
				if working++; working > 1 || token <= last || succeeded > 0 {
					t.Errorf("token %d after %d: %d at work, %d done", token, last, working, succeeded)
				}
				last = token
				mu.Unlock()
				select {
				case <-time.After(work):
				case <-ctx.Done():
				}
				mu.Lock()
				working--
				if fails {
					return errors.New("failed")
				}
				return context.Cause(ctx)
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				succeeded++
			}
		})
	}
	wg.Wait()
}
