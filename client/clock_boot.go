//go:build linux || darwin

package client

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// wakeSlice bounds how late a timer of the boot clock fires after a suspend. Go's timers stop during a
	// suspend, so a long wait is split into slices, and the clock is read after each.
	wakeSlice = 250 * time.Millisecond
	// offsetsFor is how long boot time is derived from clocks that Go reads without a system call. offsetsOff is
	// the smallest jump of those clocks that ends this immediately.
	offsetsFor = 10 * time.Millisecond
	offsetsOff = time.Millisecond
)

// systemClock returns a clock on CLOCK_BOOTTIME, or on Go's monotonic clock if the kernel does not support
// that. All clients share it.
var systemClock = sync.OnceValue(func() Clock {
	var ts unix.Timespec
	if unix.ClockGettime(suspendClock, &ts) != nil {
		return RuntimeClock()
	}
	start := time.Now()
	return &bootClock{boot: sinceBoot, read: func() (wall, mono time.Duration) {
		now := time.Now()
		return time.Duration(now.UnixNano()), now.Sub(start)
	}}
})

// sinceBoot returns the time since boot, including suspended time.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	// This cannot fail: systemClock has tried it.
	_ = unix.ClockGettime(suspendClock, &ts)
	return time.Duration(ts.Nano())
}

// bootClock measures CLOCK_BOOTTIME. Reading it costs a system call, about ten times as much as reading the
// wall clock and the monotonic clock. Boot time is ahead of the monotonic clock by the time the machine was
// suspended, and after a suspend the kernel advances the wall clock by the same amount in the same step. So
// while the difference between wall and monotonic clock is constant, the difference between boot and
// monotonic clock is constant too, and boot time is derived from the monotonic clock. If the wall clock is
// also set back by exactly the suspended time, that is noticed within offsetsFor.
type bootClock struct {
	boot func() time.Duration
	read func() (wall, mono time.Duration)

	offsets atomic.Pointer[offsets]
	mu      sync.Mutex // serializes changes of offsets
}

// offsets is how far the other clocks are ahead of the monotonic one.
type offsets struct {
	wall, boot time.Duration
	until      time.Duration // on the monotonic clock
}

// Now returns the time since boot, including suspended time.
func (c *bootClock) Now() time.Duration {
	wall, mono := c.read()
	if p := c.offsets.Load(); p != nil && mono < p.until && (wall-mono-p.wall).Abs() < offsetsOff {
		return mono + p.boot
	}
	return c.readBoot()
}

// readBoot reads the boot clock. However long the goroutine is delayed between the readings, its result is
// never ahead of the boot clock and never behind an earlier result. After such a delay, or after a suspend
// that follows the first reading, the next call of Now reads the boot clock again.
func (c *bootClock) readBoot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, started := c.read()
	boot := c.boot()
	_, mono := c.read()
	p := &offsets{wall: wall - started, boot: boot - mono, until: mono}
	if mono-started < offsetsOff {
		p.until += offsetsFor
	}
	if last := c.offsets.Load(); last != nil {
		p.boot = max(p.boot, last.boot)
	}
	c.offsets.Store(p)
	return mono + p.boot
}

// AfterFunc waits in slices, so that it notices soon when the machine resumes from suspend.
func (c *bootClock) AfterFunc(d time.Duration, f func()) Timer {
	t := &bootTimer{clock: c, due: c.Now() + d, f: f}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(min(d, wakeSlice), t.check)
	return t
}

type bootTimer struct {
	clock *bootClock
	due   time.Duration
	f     func()

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	over  bool
}

// check calls f if it is due, and otherwise waits for another slice.
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
