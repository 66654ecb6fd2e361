package storage

import (
	"sync"
	"time"
)

// A write's time limit is divided into at least writeSteps steps, none longer than longestStep.
const (
	writeSteps   = 16
	longestStep  = 500 * time.Millisecond
	handOverTime = time.Second
)

// writeTimer limits the time of a write, counting only time in which the process runs. A write cannot return
// while the process is stopped or the machine suspended. So time is counted in steps, and a step that ends
// late counts as one.
type writeTimer struct {
	step    time.Duration
	passed  func(steps int)
	expired func()

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	gone  int // steps that have passed
	left  int // steps left; 0 once it is stopped or has expired
}

// writeTime divides the time limit of a write into steps.
func writeTime(limit time.Duration) (step time.Duration, steps int) {
	steps = max(writeSteps, int((limit+longestStep-1)/longestStep))
	return limit / time.Duration(steps), steps
}

// handOverSteps returns the number of steps after which a leader asks for a successor: about a second, and at
// most half of the limit.
func handOverSteps(limit time.Duration) int {
	step, steps := writeTime(limit)
	return max(1, min(int(handOverTime/step), steps/2))
}

// startWriteTimer starts a timer that calls expired after limit unless it is stopped, and passed after each
// step. passed is called with a lock held and must not block.
func startWriteTimer(limit time.Duration, passed func(steps int), expired func()) *writeTimer {
	step, steps := writeTime(limit)
	t := &writeTimer{step: step, passed: passed, expired: expired, left: steps}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(t.step, t.tick)
	return t
}

// tick runs after each step.
func (t *writeTimer) tick() {
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
