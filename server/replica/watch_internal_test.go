package replica

import (
	"context"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestBusyWatchesRest in proportion to their number and to what they have done, within bounds.
func TestBusyWatchesRest(t *testing.T) {
	for _, test := range []struct {
		took time.Duration
		busy int64
		want time.Duration
	}{
		{time.Second, 1, 0},
		{10 * time.Microsecond, 10, 0},
		{10 * time.Microsecond, 1_000, 20 * time.Millisecond},
		{time.Millisecond, 10_000, longestRest},
		{time.Hour, 10_000, longestRest},
	} {
		bubble.Test(t, func(t *testing.T) {
			begun := time.Now()
			restWatch(t.Context(), test.took, test.busy)
			if got := time.Since(begun); got != test.want {
				t.Errorf("%d watches that took %v rest %v, want %v", test.busy, test.took, got, test.want)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if restWatch(ended, time.Hour, 2); time.Since(begun) != test.want {
				t.Error("a watch that has ended rests")
			}
		})
	}
}
