package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestFirstAnnouncementCounts verifies that only the first announced commit index counts.
func TestFirstAnnouncementCounts(t *testing.T) {
	c := newCatchUp()
	c.announce(5)
	c.announce(7)
	select {
	case <-c.announced:
	default:
		t.Error("nobody hears of it")
	}
	if got := c.committed.Load(); got != 5 {
		t.Errorf("committed up to %d", got)
	}
}

// TestWhoWaitsForANodeToCatchUp verifies that waiting ends when the node has caught up, when the caller gives
// up, after a timeout, and when the node stops.
func TestWhoWaitsForANodeToCatchUp(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(r *Replica, giveUp func())
		want      error
		took      time.Duration
	}{
		"it has":     {func(r *Replica, _ func()) { r.catchUp.end(); r.catchUp.end() }, nil, time.Second},
		"it stops":   {func(r *Replica, _ func()) { r.cancel() }, nil, time.Second},
		"given up":   {func(_ *Replica, giveUp func()) { giveUp() }, context.Canceled, time.Second},
		"for a time": {func(*Replica, func()) {}, status.ErrUnavailable, catchUpWait},
	} {
		bubble.Test(t, func(t *testing.T) {
			r := &Replica{catchUp: newCatchUp()}
			r.ctx, r.cancel = context.WithCancel(t.Context())
			defer r.cancel()
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			defer time.AfterFunc(time.Second, func() { c.meanwhile(r, giveUp) }).Stop()
			begin := time.Now()
			if err := r.caughtUp(ctx); !errors.Is(err, c.want) || time.Since(begin) != c.took {
				t.Errorf("%s: after %v: %v", name, time.Since(begin), err)
			}
		})
	}
}

// TestWhatIsApplied verifies hasApplied for commands that the state machine has applied, commands in a
// snapshot, and entries that are not commands.
func TestWhatIsApplied(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		node := r.cluster.Raft()
		time.Sleep(time.Second)
		last := node.AppliedIndex()
		first := uint64(1) // first command
		for entry := (raft.Log{}); ; first++ {
			if err := r.stores.Log.GetLog(first, &entry); err != nil {
				t.Fatal(err)
			}
			if entry.Type == raft.LogCommand {
				break
			}
		}
		want := func(when string, index, applied uint64, want bool) {
			t.Helper()
			r.catchUp.applied.Store(applied)
			if got := r.hasApplied(index); got != want {
				t.Errorf("%s: entry %d with %d applied: %v", when, index, applied, got)
			}
		}
		want("all", last, last, true)
		want("not there yet", last+1, last+1, false)
		want("before the first command", first-1, 0, true)
		want("the first command", first, first, true)
		want("the first command, which the machine has not seen", first, first-1, false)
		if err := node.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		want("all in a snapshot", last, 0, true)
		r.catchUp.applied.Store(last)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
