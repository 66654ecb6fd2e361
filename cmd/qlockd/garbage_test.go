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

// TestLoadsThatEnd checks that memory is returned once after a load, and not during it.
func TestLoadsThatEnd(t *testing.T) {
	const mib = 1 << 20
	p, now := &pace{}, time.Now()
	look := func(want bool, allocated, footprint uint64) {
		t.Helper()
		if got := p.ended(allocated*mib, footprint*mib, now); got != want {
			t.Errorf("ended: %v", got)
		} else if got {
			p.fastest, p.slow, p.rest = allocated*mib, 0, now.Add(time.Minute)
		}
	}
	for range 10 {
		look(false, 5, 200)
	}
	look(false, 100, 200)
	look(false, 26, 200)
	look(false, 25, 200)
	look(false, 90, 200)
	look(false, 5, 200)
	look(true, 25, 200)
	for range 10 {
		look(false, 25, 200)
	}
	look(false, 100, 200)
	for range 5 { // too soon after the last time
		look(false, 5, 200)
	}
	now = now.Add(2 * time.Minute)
	look(false, 5, 64) // too little
	look(true, 5, 200)
	p.again = quietLooks // much was returned
	for range quietLooks - 1 {
		look(false, 5, 200)
	}
	look(true, 5, 200)
	look(false, 5, 200)
}

// TestFreedBuffers checks that memory is returned when buffers were freed, and once.
func TestFreedBuffers(t *testing.T) {
	const mib = 1 << 20
	var buffers, allocated, given uint64
	p := &pace{
		read: func() memory {
			allocated += 30 * mib // the same all the time
			return memory{allocated: allocated, live: 400 * mib, footprint: 500 * mib, buffers: buffers * mib}
		},
		setPercent: func(int) {}, giveBack: func() { given++ }, percent: 100,
	}
	bubble.Test(t, func(t *testing.T) {
		for _, step := range []struct{ buffers, given uint64 }{{0, 0}, {300, 0}, {300, 0}, {237, 0}, {235, 1}, {235, 1}, {200, 1}, {250, 1}, {0, 2}, {0, 2}} {
			time.Sleep(lookEvery)
			buffers = step.buffers
			p.look()
			if given != step.given {
				t.Errorf("%d MiB of buffers: memory was returned %d times, want %d", buffers, given, step.given)
			}
		}
	})
}

func noBuffers() int64 { return 0 }

// TestLimitHeap checks that an idle process gets a lower percentage, and that the old one is restored at
// the end.
func TestLimitHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	before := percent()
	lives := make([]byte, 64<<20) // much larger than the other live memory
	runtime.GC()
	bubble.Test(t, func(t *testing.T) {
		stop := limitHeap(noBuffers)
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
	limitHeap(noBuffers)()
	if after := percent(); after != before {
		t.Errorf("%d %% although GOGC was set, %d before", after, before)
	}
}
