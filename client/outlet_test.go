package client

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogLinesAreDropped checks that a blocked log handler costs a bounded number of lines, and that the loss is logged.
func TestLogLinesAreDropped(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, _ *Client) {
		var logged []string
		cfg := f.config()
		cfg.Logger = slog.New(lines{to: &logged})
		first := true
		blocked := handler{call: func() {
			if first {
				first = false
				time.Sleep(time.Minute)
			}
		}}
		c := newClient(cfg)
		inner := c.lines.handler
		c.lines.handler = both{blocked, inner}
		for i := range 1_000 {
			c.say(slog.LevelInfo, "event", "n", i)
			if i == 0 {
				synctest.Wait()
			}
		}
		c.mu.Lock()
		n := len(c.lines.waiting)
		c.mu.Unlock()
		if n != 256 {
			t.Errorf("%d lines wait", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(logged); n != 258 || logged[256] != "event 256" || logged[257] != "log lines dropped 743" {
			t.Errorf("%d lines, the last ones %q", n, logged[max(0, n-2):])
		}
		ok(t, c.Close())
	})
}

// both is a log handler that calls one and then another.
type both struct{ handler, then slog.Handler }

func (b both) Enabled(context.Context, slog.Level) bool { return true }
func (b both) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b both) WithGroup(string) slog.Handler            { return b }
func (b both) Handle(ctx context.Context, r slog.Record) error {
	return errors.Join(b.handler.Handle(ctx, r), b.then.Handle(ctx, r))
}

// TestEveryEndIsReported checks that Hooks.HoldEnded is called for each hold, however long it was blocked, and that what
// waits for it is bounded.
func TestEveryEndIsReported(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, _ *Client) {
		ctx := context.Background()
		var ended []uint64
		release := make(chan struct{})
		cfg := f.config()
		cfg.Hooks.HoldEnded = func(e HoldEnd) {
			<-release
			ended = append(ended, e.Token)
		}
		c, err := New(cfg)
		ok(t, err)
		s := f.session(c)
		var tokens []uint64
		held := must(s.Lock(ctx, "held"))
		for len(tokens) < 20_000 {
			h, err := s.Lock(ctx, "x", WithCached(time.Minute))
			if err != nil {
				wantErr(t, err, ErrResourceExhausted)
				break
			}
			tokens = append(tokens, h.Token())
			ok(t, h.Unlock(ctx))
		}
		if len(tokens) != 16_385 { // one of them is being reported
			t.Errorf("%d ends wait", len(tokens))
		}
		if time.AfterFunc(500*time.Millisecond, func() { close(release) }); s.Err() != nil {
			t.Error(s.Err())
		}
		h, err := s.Lock(ctx, "y") // waits for room
		ok(t, err)
		ok(t, c.Close())
		tokens = append(tokens, held.Token(), h.Token())
		slices.Sort(tokens)
		slices.Sort(ended)
		if !slices.Equal(ended, tokens) {
			t.Errorf("%d ends for %d holds", len(ended), len(tokens))
		}
	})
}

// TestFunctionThatEndsItsGoroutine checks that an outlet goes on after a function that calls runtime.Goexit, as a test's
// FailNow does.
func TestFunctionThatEndsItsGoroutine(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, _ *Client) {
		calls := 0
		cfg := f.config()
		cfg.Hooks.HoldEnded = func(HoldEnd) {
			if calls++; calls == 1 {
				runtime.Goexit()
			}
		}
		c, err := New(cfg)
		ok(t, err)
		s := f.session(c)
		ok(t, must(s.Lock(context.Background(), "a")).Unlock(context.Background()))
		synctest.Wait()
		ok(t, must(s.Lock(context.Background(), "a")).Unlock(context.Background()))
		ok(t, c.Close())
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
}

// TestDialThatNeverReturns checks that a blocked Dial costs a bounded number of goroutines, and that a connection that it
// makes too late is closed.
func TestDialThatNeverReturns(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, _ *Client) {
		var calls, open atomic.Int32
		release := make(chan struct{})
		cfg := f.config()
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			calls.Add(1)
			<-release
			open.Add(1)
			nc, err := f.dial(ctx, addr)
			return &closing{nc, &open}, err
		}
		c, err := New(cfg)
		ok(t, err)
		_, err = c.NewSession(withTimeout(t, 10*time.Minute), SessionOptions{})
		wantErr(t, err, ErrUnavailable)
		if calls.Load() != mostOverdue || !strings.Contains(err.Error(), "have not returned") {
			t.Errorf("%d calls, %v", calls.Load(), err)
		}
		ok(t, c.Close())
		close(release)
		synctest.Wait()
		if open.Load() != 0 {
			t.Errorf("%d connections are open", open.Load())
		}
	})
}

// closing is a connection that counts down when it is closed.
type closing struct {
	net.Conn
	open *atomic.Int32
}

func (c *closing) Close() error {
	c.open.Add(-1)
	return c.Conn.Close()
}
