package storage

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestWriteTimer(t *testing.T) {
	const limit = 7 * time.Second
	bubble.Test(t, func(t *testing.T) {
		started := time.Now()
		expired := make(chan time.Duration, 2)
		note := func() { expired <- time.Since(started) }
		ended := startWriteTimer(limit, func(int) {}, note)
		if took := <-expired; took < limit-limit/writeSteps || took > limit {
			t.Errorf("expired after %v", took)
		}
		synctest.Wait()
		if ended.timer.Stop() {
			t.Error("the timer goes on after its end")
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

// TestWriteTimerOutlastsAPause verifies that time during which the process does not run counts as one step.
func TestWriteTimerOutlastsAPause(t *testing.T) {
	expired, passed := 0, []int{}
	timer := startWriteTimer(7*time.Hour, func(steps int) { passed = append(passed, steps) }, func() { expired++ })
	_, steps := writeTime(7 * time.Hour)
	for range steps - 1 {
		timer.tick() // however late
	}
	if expired > 0 {
		t.Error("expired early")
	}
	timer.tick()
	timer.tick()
	if expired != 1 || len(passed) != steps || passed[0] != 1 || passed[steps-1] != steps {
		t.Errorf("expired %d times after %d steps of %d", expired, len(passed), steps)
	}
	timer.stop()
}

// TestStoppedWriteTimerIsSilent verifies that a step that ends while the timer is stopped has no effect.
func TestStoppedWriteTimerIsSilent(t *testing.T) {
	told := 0
	timer := startWriteTimer(7*time.Hour, func(int) { told++ }, func() { told++ })
	timer.stop()
	_, steps := writeTime(7 * time.Hour)
	for range steps + 1 {
		timer.tick()
	}
	if told != 0 || timer.timer.Stop() {
		t.Errorf("told %d times after the stop", told)
	}
}
