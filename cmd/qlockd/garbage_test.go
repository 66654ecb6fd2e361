package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestGarbagePercent(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		allocated, live uint64
		want            int
	}{
		{0, 0, 10}, {mib, 301 * mib, 10}, {mib, 299 * mib, 25}, {mib, 119 * mib, 50}, {mib, 59 * mib, 100}, {300 * mib, 30 * mib, 100},
	} {
		if got := garbagePercent(c.allocated, c.live); got != c.want {
			t.Errorf("%d bytes a second beside %d: %d %%, want %d", c.allocated, c.live, got, c.want)
		}
	}
}

// TestSpareMemory has a process that allocates nothing, and ends as it began.
func TestSpareMemory(t *testing.T) {
	t.Setenv("GOGC", "")
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	before := percent()
	lives := make([]byte, 64<<20) // beside which all that others allocate is little
	runtime.GC()
	bubble.Test(t, func(t *testing.T) {
		stop := spareMemory()
		time.Sleep((quietLooks + 1) * lookEvery)
		if got := percent(); got != 10 {
			t.Errorf("%d %% while nothing is allocated", got)
		}
		stop()
	})
	runtime.KeepAlive(lives)
	if after := percent(); after != before {
		t.Errorf("%d %% afterwards, %d before", after, before)
	}
	t.Setenv("GOGC", "150")
	spareMemory()()
	if after := percent(); after != before {
		t.Errorf("%d %% although GOGC was set, %d before", after, before)
	}
}
