package catchup_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/catchup"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestRoundsAreCombined verifies that callers share questions, that nobody gets the answer to a question that was asked
// before, and that the questions of a flood keep their distance.
func TestRoundsAreCombined(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const pause, took = 50 * time.Millisecond, 10 * time.Millisecond
		var asked atomic.Uint64
		r := catchup.NewRounds(func(context.Context) (uint64, bool) {
			index := asked.Add(1)
			time.Sleep(took)
			return index, true
		}, pause)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		started := time.Now()
		var callers sync.WaitGroup
		for i := range 1000 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				before := asked.Load()
				if index, ok := r.Index(ctx); !ok || index <= before {
					t.Errorf("question %d, %v, after %d", index, ok, before)
				}
			})
		}
		callers.Wait()
		if most := uint64(time.Since(started)/(pause+took)) + 1; asked.Load() > most {
			t.Errorf("%d questions in %v, want at most %d", asked.Load(), time.Since(started), most)
		}
		cancel()
		running.Wait()
		if _, ok := r.Index(ctx); ok {
			t.Error("an answer after the end")
		}
	})
}
