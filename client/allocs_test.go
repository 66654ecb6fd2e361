//go:build !race

package client

import (
	"context"
	"testing"
)

// TestAllocations holds the hot path to its budget: the hold for the client, and the lock's
// name for the node. With the race detector a sync.Pool forgets on purpose.
func TestAllocations(t *testing.T) {
	s := newPrompt(t).sessions(t, 1)[0]
	ctx := context.Background()
	allocs := testing.AllocsPerRun(2000, func() {
		hold, err := s.Lock(ctx, "x")
		ok(t, err)
		ok(t, hold.Unlock(ctx))
	})
	if allocs > 2 {
		t.Errorf("%.0f allocations for a lock and an unlock, the node's included", allocs)
	}
}
