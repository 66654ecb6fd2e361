package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestWriteTimer(t *testing.T) {
	const limit = 7 * time.Second
	bubble.Test(t, func(t *testing.T) {
		begun := time.Now()
		expired := make(chan time.Duration, 2)
		note := func() { expired <- time.Since(begun) }
		startWriteTimer(limit, func(int) {}, note)
		if took := <-expired; took < limit-limit/writeSteps || took > limit {
			t.Errorf("expired after %v", took)
		}
		stopped := startWriteTimer(limit, func(int) {}, note)
		time.Sleep(limit / 2)
		stopped.stop()
		time.Sleep(2 * limit)
		synctest.Wait()
		if len(expired) > 0 {
			t.Error("a timer that was stopped has expired")
		}
	})
}

// TestWriteTimerOutlastsAPause: what passes while the process does not run counts as one step.
func TestWriteTimerOutlastsAPause(t *testing.T) {
	expired := 0
	timer := startWriteTimer(7*time.Second, func(int) {}, func() { expired++ })
	for range writeSteps - 1 {
		timer.pass() // however late
	}
	if expired > 0 {
		t.Error("expired early")
	}
	timer.pass()
	timer.pass()
	if expired != 1 {
		t.Errorf("expired %d times", expired)
	}
	timer.stop()
}
