package client

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// wakeSlice bounds how late a timer of the boot clock fires after a suspend: Go's
	// timers stand still meanwhile, so a long one is slept in slices and each slice
	// looks at the clock.
	wakeSlice = 250 * time.Millisecond
	// paceFor is how long the boot clock is derived from clocks that Go reads without a
	// system call, and paceOff the least jump of theirs that ends this at once.
	paceFor = 10 * time.Millisecond
	paceOff = time.Millisecond
)

// systemClock is CLOCK_BOOTTIME, or Go's monotonic clock where the kernel refuses it. All
// clients have the same one.
var systemClock = sync.OnceValue(func() Clock {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return RuntimeClock()
	}
	start := time.Now()
	return &bootClock{boot: sinceBoot, read: func() (wall, mono time.Duration) {
		now := time.Now()
		return time.Duration(now.UnixNano()), now.Sub(start)
	}}
})

// sinceBoot is the time since boot, suspended time included.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	// It cannot fail: systemClock has tried it.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}

// bootClock is CLOCK_BOOTTIME. To read it is a system call, ten times as dear as to read
// the wall clock and the monotonic clock. It is ahead of the latter by the time that the
// machine was suspended, and the kernel puts the wall clock forward by the same time in
// the same step. So while those two keep their distance, so does the boot clock, and the
// monotonic one tells the time. Should somebody set the wall clock back by just as much as
// it was put forward, that is noticed a little later.
type bootClock struct {
	boot func() time.Duration
	read func() (wall, mono time.Duration)

	pace atomic.Pointer[pace]
	mu   sync.Mutex // guards the change of pace
}

// pace is how far clocks are ahead of the monotonic one.
type pace struct {
	wall, boot time.Duration
	until      time.Duration // by the monotonic one
}

// Now is the time since boot, suspended time included.
func (c *bootClock) Now() time.Duration {
	wall, mono := c.read()
	if p := c.pace.Load(); p != nil && mono < p.until && (wall-mono-p.wall).Abs() < paceOff {
		return mono + p.boot
	}
	return c.look()
}

// look reads the boot clock. What it tells is never ahead of it, nor behind what was told
// before, however long it takes to get from one reading to the next; who was held up there
// has the next look read it again, and so has a suspend after the first reading.
func (c *bootClock) look() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, begun := c.read()
	boot := c.boot()
	_, mono := c.read()
	p := &pace{wall: wall - begun, boot: boot - mono, until: mono}
	if mono-begun < paceOff {
		p.until += paceFor
	}
	if last := c.pace.Load(); last != nil {
		p.boot = max(p.boot, last.boot)
	}
	c.pace.Store(p)
	return mono + p.boot
}

// AfterFunc sleeps in slices, so that a wake-up from suspend is noticed at once.
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
