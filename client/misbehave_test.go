package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestGarbageFromTheNode(t *testing.T) {
	response := func(r *wire.Response) *wire.ServerFrame {
		return &wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: r}}
	}
	raw := func(b []byte) func(*fakeConn, *wire.Request) {
		return func(cn *fakeConn, _ *wire.Request) { _, _ = cn.nc.Write(b) }
	}
	frame := func(f *wire.ServerFrame) func(*fakeConn, *wire.Request) {
		return func(cn *fakeConn, _ *wire.Request) { _ = cn.out.Send(f) }
	}
	noise := make([]byte, 1<<10)
	_, _ = rand.Read(noise)
	copy(noise, []byte{0, 0, 1, 0}) // a plausible length
	for name, answer := range map[string]func(*fakeConn, *wire.Request){
		"noise":        raw(noise),
		"huge frame":   raw(binary.BigEndian.AppendUint32(nil, 1<<31)),
		"half a frame": func(cn *fakeConn, _ *wire.Request) { _, _ = cn.nc.Write([]byte{0, 0, 0, 9, 1}); _ = cn.nc.Close() },
		"empty frame":  frame(&wire.ServerFrame{}),
		"second hello": frame(&wire.ServerFrame{Frame: &wire.ServerFrame_Hello{Hello: &wire.HelloReply{}}}),
		"unknown id":   frame(response(&wire.Response{Id: 1 << 60, Result: status(wire.Status_OK)})),
		"no result":    func(cn *fakeConn, req *wire.Request) { cn.answer(req, &wire.Response{}) },
		"answered once": func(cn *fakeConn, req *wire.Request) {
			cn.serveRequest(req)
			cn.answer(req, respond(status(wire.Status_OK)))
		},
		"odd pushes": func(cn *fakeConn, req *wire.Request) {
			cn.push(&wire.Push{})
			cn.push(&wire.Push{SessionId: 77, Body: &wire.Push_Outcome{}})
			cn.push(&wire.Push{SessionId: req.GetSessionId(), Body: &wire.Push_Outcome{Outcome: &wire.Result{Seq: 1 << 40, Status: wire.Status_GRANTED}}})
			cn.push(&wire.Push{SessionId: 78, Body: &wire.Push_Lost{}})
			cn.push(&wire.Push{Body: &wire.Push_Leader{}})
			cn.serveRequest(req)
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				left := 3
				f.set(func() {
					f.intercept = func(cn *fakeConn, req *wire.Request) bool {
						if left--; left < 0 || req.GetAttach() != nil {
							return false
						}
						answer(cn, req)
						return true
					}
				})
				ok(t, mustLock(t, s, "x").Unlock(context.Background()))
				if s.State() == Lost {
					t.Fatal(s.Err())
				}
				if twice := f.twice(); len(twice) > 0 {
					t.Fatalf("executed twice: %v", twice)
				}
			})
		})
	}
}

func TestNodeThatAlwaysHangsUpIsNotHammered(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.set(func() {
			f.intercept = func(cn *fakeConn, _ *wire.Request) bool { _ = cn.nc.Close(); return true }
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := c.NewSession(ctx, SessionOptions{})
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		if n := f.node("n1").dials; n > 300 {
			t.Fatalf("%d connections in a minute", n)
		}
	})
}

func TestGoodbyeMovesOn(t *testing.T) {
	virtual(t, 2, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "x")
		f.set(func() {
			cn := f.node("n1").conns[0]
			f.node("n1").down = true
			_ = cn.out.Send(transport.GoodbyeFrame(wire.Goodbye_SHUTDOWN, "stopping"))
		})
		f.lead("n2", 2)
		ok(t, hold.Unlock(context.Background()))
		if f.count(releases, at("n2")) != 1 {
			t.Fatal("it did not move on")
		}
	})
}

func TestIdleClientStaysDisconnected(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ok(t, f.session(c).Close(context.Background()))
		f.cut("n1")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := f.node("n1").dials; n != 1 {
			t.Fatalf("%d connections", n)
		}
		f.session(c)
	})
}

func TestWindowIsKept(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.set(func() { f.window = 8 })
		s := f.session(c)
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				time.AfterFunc(10*time.Millisecond, func() { f.set(func() { cn.serveRequest(req) }) })
				return true
			}
		})
		results := make([]<-chan lockResult, 100)
		for i := range results {
			results[i] = lockSoon(context.Background(), s, fmt.Sprintf("x%d", i))
		}
		for _, r := range results {
			got := <-r
			ok(t, got.err)
			go func() { _ = got.hold.Unlock(context.Background()) }()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if f.highest > 8 || f.highest < 7 {
			t.Fatalf("%d at once", f.highest)
		}
		if n := len(f.service.locks); n != 0 {
			t.Fatalf("%d locks left", n)
		}
	})
}

func TestTooLargeARequestIsRefusedHere(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		_, err := s.Lock(context.Background(), "x", WithValue(make([]byte, 2<<20)))
		wantErr(t, err, ErrInvalidArgument)
		mustLock(t, s, "x")
	})
}

func TestThousandSessionsOnOneConnection(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		const n = 1000
		done := make(chan error, n)
		for i := range n {
			go func() {
				s, err := c.NewSession(context.Background(), SessionOptions{TTL: 15 * time.Second})
				if err == nil {
					_, err = s.Lock(context.Background(), string(rune(0x4e00+i)))
				}
				done <- err
			}()
		}
		for range n {
			ok(t, <-done)
		}
		f.cut("n1") // all sessions resume
		time.Sleep(time.Minute)
		synctest.Wait()
		if f.node("n1").dials != 2 {
			t.Fatalf("%d connections", f.node("n1").dials)
		}
		if got := f.count(attaches); got != n {
			t.Fatalf("%d attaches", got)
		}
		c.mu.Lock()
		sessions := make([]*Session, 0, n)
		for _, s := range c.sessions {
			sessions = append(sessions, s)
		}
		c.mu.Unlock()
		for _, s := range sessions {
			if s.State() != Active {
				t.Fatal(s.Err())
			}
			go func() { done <- s.Close(context.Background()) }()
		}
		for range n {
			ok(t, <-done)
		}
		synctest.Wait()
		if len(c.sessions)+len(c.schedule)+c.flight.n+len(f.service.sessions)+len(f.service.locks) != 0 {
			t.Fatal("something is left")
		}
	})
}
