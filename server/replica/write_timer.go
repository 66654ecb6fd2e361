package replica

import (
	"sync"
	"time"
)

// The time of a write passes in steps: so many at least, and none longer than that.
const (
	writeSteps   = 16
	longestStep  = 500 * time.Millisecond
	handOverTime = time.Second
)

// writeTimer bounds how long a write may take, in time for which the process runs. While that
// is stopped, or the machine suspended, a write cannot return. So time is counted in steps, and
// one that ends late counts as one.
type writeTimer struct {
	step    time.Duration
	passed  func(steps int)
	expired func()

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	gone  int // steps
	left  int // steps; 0 once it is stopped or has expired
}

// writeTime divides the time of a write into steps.
func writeTime(limit time.Duration) (step time.Duration, steps int) {
	steps = max(writeSteps, int((limit+longestStep-1)/longestStep))
	return limit / time.Duration(steps), steps
}

// handOverSteps is after how many steps of a write a leader asks for a successor: about a second,
// and no more than half of the limit.
func handOverSteps(limit time.Duration) int {
	step, steps := writeTime(limit)
	return max(1, min(int(handOverTime/step), steps/2))
}

// startWriteTimer has expired called after so much time, and passed after each step before, unless
// the timer is stopped. passed is called with a lock held and must not block.
func startWriteTimer(limit time.Duration, passed func(steps int), expired func()) *writeTimer {
	step, steps := writeTime(limit)
	t := &writeTimer{step: step, passed: passed, expired: expired, left: steps}
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
		t.gone++
		t.passed(t.gone)
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
