package bubble_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestTimersOfOneInstant reads timers while others of the same instant fire. On two processors with the race
// detector, every second run of this crashes.
func TestTimersOfOneInstant(t *testing.T) {
	processors := runtime.GOMAXPROCS(0)
	for range 8 {
		bubble.Test(t, func(*testing.T) {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(askForTimers)
			}
			wg.Wait()
		})
	}
	if now := runtime.GOMAXPROCS(0); now != processors {
		t.Fatalf("%d processors after the bubbles, %d before", now, processors)
	}
}

func askForTimers() {
	for range 10_000 {
		first, second := time.NewTimer(time.Millisecond), time.NewTimer(time.Millisecond)
		time.AfterFunc(time.Millisecond, func() {})
		select {
		case <-first.C:
			<-second.C
		case <-second.C:
			<-first.C
		}
	}
}
