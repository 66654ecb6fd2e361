package client

import (
	"testing"
	"time"
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
