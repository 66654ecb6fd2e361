package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const ttl = 15 * time.Second

func TestHeartbeatsComeEveryThirdOfTheTTL(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		time.Sleep(10 * time.Minute)
		received := f.all(heartbeats)
		if len(received) < 120 || len(received) > 140 {
			t.Fatalf("%d heartbeats in 10 minutes", len(received))
		}
		same := 0
		for i := 1; i < len(received); i++ {
			gap := received[i].at - received[i-1].at
			if gap > ttl/3+10*time.Millisecond || gap < ttl/3*7/8-time.Millisecond {
				t.Fatalf("gap of %v", gap)
			}
			if gap == received[1].at-received[0].at {
				same++
			}
		}
		if same > 10 {
			t.Fatalf("no jitter: %d gaps are the same", same)
		}
		if s.State() != Active {
			t.Fatal(s.State())
		}
	})
}

// TestHeartbeatsOfManySessionsLeaveTogether checks that a client with many sessions does not wake up for
// each of them, and that no heartbeat is late because of that.
func TestHeartbeatsOfManySessionsLeaveTogether(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		const sessions = 100
		for range sessions {
			f.session(c)
		}
		time.Sleep(time.Minute)
		last, moments, all := map[uint64]time.Duration{}, map[time.Duration]bool{}, f.all(heartbeats)
		for _, sendHeartbeat := range all {
			if before, ok := last[sendHeartbeat.req.SessionId]; ok && sendHeartbeat.at-before > ttl/3+10*time.Millisecond {
				t.Errorf("session %d: a gap of %v", sendHeartbeat.req.SessionId, sendHeartbeat.at-before)
			}
			last[sendHeartbeat.req.SessionId] = sendHeartbeat.at
			moments[sendHeartbeat.at] = true
		}
		if len(last) != sessions || len(moments) > len(all)/5 {
			t.Errorf("%d heartbeats of %d sessions came at %d moments", len(all), len(last), len(moments))
		}
	})
}

func TestAnyRequestCountsAsHeartbeat(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		for range 60 {
			time.Sleep(time.Second)
			ok(t, mustLock(t, s, "a").Unlock(context.Background()))
		}
		if n := f.count(heartbeats); n != 0 {
			t.Fatalf("%d heartbeats though requests went", n)
		}
	})
}

func TestDeadlineCountsFromTheSending(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "a")
		// The first heartbeat is answered 3 s late. The time it was sent counts.
		var sent time.Time
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetHeartbeat() != nil && sent.IsZero() {
					sent = time.Now()
					time.AfterFunc(3*time.Second, func() { f.set(func() { cn.answer(req, respond(status(wire.Status_OK))) }) })
				}
				return true
			}
		})
		if got := <-s.StateChanges(); got != Active {
			t.Fatal(got)
		}
		var got []State
		var lostAt time.Time
		for state := range s.StateChanges() {
			got = append(got, state)
			if state == Lost {
				lostAt = time.Now()
			}
		}
		if lostAt.Sub(sent) != ttl-ttl/100 {
			t.Fatalf("lost %v after the sending, want %v", lostAt.Sub(sent), ttl-ttl/100)
		}
		if got[len(got)-1] != Lost || got[0] != Jeopardy {
			t.Fatal(got)
		}
		wantErr(t, context.Cause(hold.Context()), ErrExpired, ErrSessionLost)
		wantErr(t, s.Err(), ErrExpired)
		<-hold.Lost()
		<-s.Lost()
		if s.Remaining() != 0 || hold.Remaining() != 0 {
			t.Fatal("time remains")
		}
	})
}

func TestMarginIsAtLeast20ms(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second: 20 * time.Millisecond, 2 * time.Second: 20 * time.Millisecond, 10 * time.Minute: 6 * time.Second,
	} {
		if got := margin(ttl); got != want {
			t.Errorf("margin(%v) = %v, want %v", ttl, got, want)
		}
	}
}

func TestRefusalsDoNotProlong(t *testing.T) {
	for _, code := range []wire.Status_Code{wire.Status_UNAVAILABLE, wire.Status_UNCERTAIN, wire.Status_INTERNAL, wire.Status_RESOURCE_EXHAUSTED} {
		t.Run(code.String(), func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				opened := time.Now()
				f.set(func() {
					f.intercept = func(cn *fakeConn, req *wire.Request) bool {
						cn.answer(req, respond(status(code)))
						return true
					}
				})
				<-s.Lost()
				if got := time.Since(opened); got != ttl-ttl/100 {
					t.Fatalf("lost after %v", got)
				}
				if n := f.count(heartbeats); n < 10 {
					t.Fatalf("only %d heartbeats were tried", n)
				}
			})
		})
	}
}

func TestSuspendIsNoticedAtEachUse(t *testing.T) {
	uses := map[string]func(*Session, *Hold) error{
		"Err":          func(s *Session, _ *Hold) error { return s.Err() },
		"context's":    func(_ *Session, h *Hold) error { _ = h.Context().Err(); return context.Cause(h.Context()) },
		"Lock":         func(s *Session, _ *Hold) error { _, err := s.Lock(context.Background(), "b"); return err },
		"Unlock":       func(_ *Session, h *Hold) error { return h.Unlock(context.Background()) },
		"SetValue":     func(_ *Session, h *Hold) error { return h.SetValue(context.Background(), nil) },
		"State":        func(s *Session, _ *Hold) error { s.State(); return s.reason },
		"Remaining":    func(s *Session, _ *Hold) error { s.Remaining(); return s.reason },
		"hold's Lost":  func(s *Session, h *Hold) error { <-h.Lost(); return s.reason },
		"hold's left":  func(s *Session, h *Hold) error { h.Remaining(); return s.reason },
		"next wake-up": func(s *Session, h *Hold) error { <-h.Context().Done(); return s.Err() },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				hold := mustLock(t, s, "a")
				if hold.Context().Err() != nil {
					t.Fatal("ended too early")
				}
				synctest.Wait()
				f.clock.suspended.Add(int64(time.Hour))
				wantErr(t, use(s, hold), ErrExpired)
				wantErr(t, hold.Context().Err(), context.Canceled)
			})
		})
	}
}

func TestLostIsFinal(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		var late []func()
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				late = append(late, func() { cn.answer(req, respond(status(wire.Status_OK))) })
				return true
			}
		})
		waiting := lockSoon(context.Background(), s, "a")
		<-s.Lost()
		got := <-waiting
		wantErr(t, got.err, ErrExpired)
		f.set(func() {
			f.intercept = nil
			for _, answer := range late {
				answer()
			}
		})
		synctest.Wait()
		if s.State() != Lost || s.Remaining() != 0 {
			t.Fatal("it came back")
		}
		_, err := s.Lock(context.Background(), "b", WithTry())
		wantErr(t, err, ErrExpired, ErrSessionLost)
		time.Sleep(time.Minute)
		if n := f.count(heartbeats); n > 5 {
			t.Fatalf("%d heartbeats for a lost session", n)
		}
	})
}

func TestLostReasons(t *testing.T) {
	for reason, want := range map[wire.SessionLost_Reason]error{
		wire.SessionLost_EXPIRED: ErrExpired, wire.SessionLost_CLOSED: ErrClosed,
		wire.SessionLost_SUPERSEDED: ErrSuperseded, wire.SessionLost_FORCED: ErrForced,
		wire.SessionLost_RESTORED: ErrRestored,
	} {
		t.Run(reason.String(), func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				hold := mustLock(t, s, "a")
				waiting := lockSoon(context.Background(), f.session(c), "a")
				f.set(func() {
					conn := f.service.sessions[s.id].conn
					f.service.end(f.service.sessions[s.id])
					conn.push(&wire.Push{SessionId: s.id, Body: &wire.Push_Lost{Lost: &wire.SessionLost{Reason: reason}}})
				})
				<-hold.Context().Done()
				wantErr(t, context.Cause(hold.Context()), want, ErrSessionLost)
				wantErr(t, s.Err(), want)
				ok(t, (<-waiting).err)
			})
		})
	}
}

func TestCloseReleasesAndSurvivesABreak(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "a")
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetCloseSession() == nil {
					return false
				}
				f.intercept = nil
				_ = cn.nc.Close()
				return true
			}
		})
		ok(t, s.Close(context.Background()))
		wantErr(t, context.Cause(hold.Context()), ErrClosed)
		if f.held("a") != 0 {
			t.Fatal("still held")
		}
		ok(t, s.Close(context.Background()))
		if len(c.sessions) != 0 || len(c.schedule) != 0 {
			t.Fatal("the client keeps a closed session")
		}
	})
}

func TestCloseWithoutClusterGivesUpAtTheDeadline(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		wantErr(t, s.Close(ctx), context.DeadlineExceeded, ErrUncertain)
		wantErr(t, s.Close(context.Background()), ErrUncertain)
		if got := time.Since(f.start); got > ttl {
			t.Fatalf("gave up after %v", got)
		}
	})
}

func TestOpenIsRefusedAndAbandoned(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		_, err := c.NewSession(context.Background(), SessionOptions{TTL: time.Second})
		wantErr(t, err, ErrInvalidArgument)
		_, err = c.NewSession(context.Background(), SessionOptions{TTL: time.Microsecond})
		wantErr(t, err, ErrInvalidArgument)

		var late func()
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				f.intercept = nil
				late = func() { cn.serveRequest(req) }
				return true
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = c.NewSession(ctx, SessionOptions{})
		wantErr(t, err, context.DeadlineExceeded, ErrUncertain)
		f.set(func() { late() })
		synctest.Wait()
		f.set(func() {
			if len(f.service.sessions) != 0 {
				t.Error("an abandoned session lives on")
			}
		})
	})
}

func TestClientCloseEndsEverything(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "a")
		waiting := lockSoon(context.Background(), s, "a")
		ok(t, c.Close())
		wantErr(t, (<-waiting).err, ErrClientClosed, ErrClosed)
		wantErr(t, context.Cause(hold.Context()), ErrClientClosed)
		ok(t, s.Close(context.Background()))
		if f.held("a") != 0 {
			t.Error("the cluster keeps the session")
		}
		_, err := wirecall.Of(c).GetLock(context.Background(), &wire.GetLockRequest{Name: "a"})
		wantErr(t, err, ErrClientClosed)
		_, err = c.NewSession(context.Background(), SessionOptions{})
		wantErr(t, err, ErrClientClosed)
		ok(t, c.Close())
	})
}

// TestCloseDuringAttach calls Close at each stage of attaching the session to a new connection. The close
// must be sent on this connection, not at the end of the TTL.
func TestCloseDuringAttach(t *testing.T) {
	for name, meet := range map[string]func(cn *fakeConn, req *wire.Request) (answered bool){
		"not answered yet": func(cn *fakeConn, req *wire.Request) bool {
			time.AfterFunc(time.Second, func() { cn.f.set(func() { cn.serveRequest(req) }) })
			return true
		},
		"never answered": func(*fakeConn, *wire.Request) bool { return true },
		"refused for now": func(cn *fakeConn, req *wire.Request) bool {
			cn.answer(req, respond(status(wire.Status_UNAVAILABLE)))
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				mustLock(t, s, "a")
				closed := make(chan error, 1)
				f.set(func() {
					f.intercept = func(cn *fakeConn, req *wire.Request) bool {
						if req.GetAttach() == nil {
							return false
						}
						f.intercept = nil
						go func() { closed <- s.Close(context.Background()) }()
						return meet(cn, req)
					}
				})
				f.cut("n1")
				began := time.Now()
				ok(t, <-closed)
				if took := time.Since(began); took > 2*time.Second || f.held("a") != 0 {
					t.Fatalf("closed after %v", took)
				}
			})
		})
	}
}

// TestContextOfDoNoticesSuspend checks that the ctx of Do checks the clock as the hold's context does: a
// process that resumes from suspend after its deadline must not see a live ctx.
func TestContextOfDoNoticesSuspend(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		err := s.Do(context.Background(), "a", func(ctx context.Context, _ uint64) error {
			synctest.Wait()
			f.clock.suspended.Add(int64(time.Hour))
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.Error("goes on after the deadline")
			}
			if _, err := s.Lock(ctx, "b"); !errors.Is(err, ErrExpired) {
				t.Error(err)
			}
			return context.Cause(ctx)
		})
		wantErr(t, err, ErrExpired)
	})
}
