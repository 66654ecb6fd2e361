package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// bubbles counts the running bubbles, and remembers the number of processors before the first one.
var bubbles struct {
	sync.Mutex
	running, processors int
}

// Test runs a test in its own bubble, as synctest.Test does. With the race detector, the process is limited
// to one processor in the meantime.
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
