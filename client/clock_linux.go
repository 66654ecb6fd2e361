package client

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// wakeSlice bounds how late a timer of the boot clock fires after a suspend: Go's
// timers stand still meanwhile, so a long one is slept in slices and each slice
// looks at the clock.
const wakeSlice = 250 * time.Millisecond

// systemClock is CLOCK_BOOTTIME, or Go's monotonic clock where the kernel refuses it.
func systemClock() Clock {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return RuntimeClock()
	}
	return bootClock{}
}

type bootClock struct{}

// Now is the time since boot, suspended time included.
func (bootClock) Now() time.Duration {
	var ts unix.Timespec
	// It cannot fail: systemClock has tried it.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}

// AfterFunc sleeps in slices, so that a wake-up from suspend is noticed at once.
func (c bootClock) AfterFunc(d time.Duration, f func()) Timer {
	t := &bootTimer{clock: c, due: c.Now() + d, f: f}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(min(d, wakeSlice), t.check)
	return t
}

type bootTimer struct {
	clock bootClock
	due   time.Duration
	f     func()

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	over  bool
}

// check calls f if its time has come, and sleeps on otherwise.
func (t *bootTimer) check() {
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return
	}
	if left := t.due - t.clock.Now(); left > 0 {
		t.timer.Reset(min(left, wakeSlice))
		t.mu.Unlock()
		return
	}
	t.over = true
	t.mu.Unlock()
	t.f()
}

// Stop prevents the call unless it has begun.
func (t *bootTimer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	stopped := !t.over
	t.over = true
	t.timer.Stop()
	return stopped
}
