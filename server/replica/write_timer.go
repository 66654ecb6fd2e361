package replica

import (
	"sync"
	"time"
)

// writeSteps is in how many steps the time of a write passes.
const writeSteps = 16

// writeTimer bounds how long a write may take, in time for which the process runs. While that
// is stopped, or the machine suspended, a write cannot return. So time is counted in steps, and
// one that ends late counts as one.
type writeTimer struct {
	step    time.Duration
	expired func()

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	left  int // steps; 0 once it is stopped or has expired
}

// startWriteTimer has expired called after so much time, unless the timer is stopped before.
func startWriteTimer(limit time.Duration, expired func()) *writeTimer {
	t := &writeTimer{step: limit / writeSteps, expired: expired, left: writeSteps}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(t.step, t.pass)
	return t
}

// pass is called after each step.
func (t *writeTimer) pass() {
	t.mu.Lock()
	last := t.left == 1
	if t.left > 0 {
		t.left--
	}
	if t.left > 0 {
		t.timer.Reset(t.step)
	}
	t.mu.Unlock()
	if last {
		t.expired()
	}
}

func (t *writeTimer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = 0
	t.timer.Stop()
}
