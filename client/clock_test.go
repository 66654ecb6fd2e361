package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestSystemClock(t *testing.T) {
	for name, clock := range map[string]Clock{"system": systemClock(), "runtime": RuntimeClock()} {
		before := clock.Now()
		fired := make(chan time.Duration, 1)
		clock.AfterFunc(300*time.Millisecond, func() { fired <- clock.Now() })
		stopped := clock.AfterFunc(280*time.Millisecond, func() { t.Error("called after Stop") })
		if !stopped.Stop() || stopped.Stop() {
			t.Errorf("%s: Stop", name)
		}
		if after := <-fired - before; after < 300*time.Millisecond {
			t.Errorf("%s: early, after %v", name, after)
		}
	}
}

func TestNames(t *testing.T) {
	for state, want := range map[State]string{Active: "active", Jeopardy: "jeopardy", Lost: "lost", 9: "State(9)"} {
		if state.String() != want {
			t.Errorf("%d is %q", state, state)
		}
	}
	self := clientInfo(SessionOptions{Name: "n", Labels: map[string]string{"b": "2", "a": "1"}})
	started := time.Since(time.UnixMilli(self.GetProcessStartUnixMs()))
	if self.GetPid() == 0 || self.GetLabels()[0].GetKey() != "a" || started < -2*time.Second || started > time.Hour {
		t.Error(self, started)
	}
	for _, cfg := range []Config{{}, {Endpoints: []string{"x"}}, {Endpoints: []string{"x:1"}, RequestTimeout: -1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// countedClock counts reads of the clock.
type countedClock struct {
	Clock
	probes atomic.Int64
}

func (c *countedClock) Now() time.Duration {
	c.probes.Add(1)
	return c.Clock.Now()
}

// TestLooksAtTheClock checks that a lock and its release read the clock once when each is requested and
// once when each is answered, and that checking a hold always reads the clock.
func TestLooksAtTheClock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		cfg, ctx := f.config(), context.Background()
		clock := &countedClock{Clock: f.clock}
		cfg.Clock = clock
		c, err := New(cfg)
		ok(t, err)
		defer c.Close()
		s := f.session(c)
		synctest.Wait()
		clock.probes.Store(0)
		const pairs = 100
		for range pairs {
			ok(t, mustLock(t, s, "x").Unlock(ctx))
		}
		if n := clock.probes.Load(); n > 4*pairs+2 { // two for the alarm
			t.Errorf("%d looks for %d locks and releases", n, pairs)
		}
		hold := mustLock(t, s, "x")
		f.clock.suspended.Add(int64(time.Hour))
		wantErr(t, hold.Context().Err(), context.Canceled)
	})
}
