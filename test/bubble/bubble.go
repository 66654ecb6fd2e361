package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// bubbles counts the bubbles that run, and what the processors were before the first.
var bubbles struct {
	sync.Mutex
	running, processors int
}

// Test runs a test in a bubble of its own, as synctest.Test does; with the race detector
// the process has one processor for so long.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if raced {
		enter()
		defer leave()
	}
	synctest.Test(t, f)
}

func enter() {
	bubbles.Lock()
	defer bubbles.Unlock()
	if bubbles.running == 0 {
		bubbles.processors = runtime.GOMAXPROCS(1)
	}
	bubbles.running++
}

func leave() {
	bubbles.Lock()
	defer bubbles.Unlock()
	if bubbles.running--; bubbles.running == 0 {
		runtime.GOMAXPROCS(bubbles.processors)
	}
}
