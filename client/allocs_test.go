//go:build !race

package client

import (
	"context"
	"testing"
	"time"
)

// TestAllocations limits the allocations of the hot path to two: the hold for the client, and the lock's
// name for the node. It does not run with the race detector, under which a sync.Pool drops items on
// purpose.
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

// TestAllocationsOfLocalGrants limits the allocations of a local lock and unlock to one, the hold, also if the caller
// writes the option in the call.
func TestAllocationsOfLocalGrants(t *testing.T) {
	s := benchClient(t)
	ctx := context.Background()
	allocs := testing.AllocsPerRun(50, func() {
		hold, err := s.Lock(ctx, "x", WithCached(time.Minute))
		ok(t, err)
		ok(t, hold.Unlock(ctx))
	})
	if allocs > 1 {
		t.Errorf("%.0f allocations for a local lock and unlock", allocs)
	}
}
