package catchup

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestFirstAnnouncementCounts verifies that only the first announced commit index counts.
func TestFirstAnnouncementCounts(t *testing.T) {
	c := New()
	c.Announced(5)
	c.Announced(7)
	select {
	case <-c.announced:
	default:
		t.Error("nobody hears of it")
	}
	if got := c.committed.Load(); got != 5 {
		t.Errorf("committed up to %d", got)
	}
}

// TestCallersThatWaitForCatchUp verifies that waiting ends when the node has caught up, when the caller gives
// up, after a timeout, and when the node stops.
func TestCallersThatWaitForCatchUp(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(c *Tracker, stop, giveUp func())
		want      error
		took      time.Duration
	}{
		"it has":     {func(c *Tracker, _, _ func()) { c.End(); c.End() }, nil, time.Second},
		"it stops":   {func(_ *Tracker, stop, _ func()) { stop() }, nil, time.Second},
		"given up":   {func(_ *Tracker, _, giveUp func()) { giveUp() }, context.Canceled, time.Second},
		"for a time": {func(*Tracker, func(), func()) {}, status.ErrUnavailable, waitTimeout},
	} {
		bubble.Test(t, func(t *testing.T) {
			tracker := New()
			stopping, stop := context.WithCancel(t.Context())
			defer stop()
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			defer time.AfterFunc(time.Second, func() { c.meanwhile(tracker, stop, giveUp) }).Stop()
			begin := time.Now()
			if err := tracker.Wait(ctx, stopping.Done()); !errors.Is(err, c.want) || time.Since(begin) != c.took {
				t.Errorf("%s: after %v: %v", name, time.Since(begin), err)
			}
		})
	}
}

// TestWhatIsApplied verifies hasApplied for commands that the state machine has applied, commands in a
// snapshot, and entries that are not commands.
func TestWhatIsApplied(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := raft.NewInmemStore()
		node := alone(t, log)
		<-node.LeaderCh()
		if err := node.Apply([]byte("command"), 0).Error(); err != nil {
			t.Fatal(err)
		}
		last := node.AppliedIndex() // the command; before it are the configuration and the leader's first entry
		tracker := New()
		want := func(when string, index, applied uint64, want bool) {
			t.Helper()
			tracker.Applied(applied)
			if got := tracker.hasApplied(node, log, index); got != want {
				t.Errorf("%s: entry %d with %d applied: %v", when, index, applied, got)
			}
		}
		want("all", last, last, true)
		want("not there yet", last+1, last+1, false)
		want("before the first command", last-1, 0, true)
		want("the first command, which the machine has not seen", last, last-1, false)
		if err := node.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		want("all in a snapshot", last, 0, true)
		if err := node.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})
}

// alone runs raft with one voter.
func alone(t *testing.T, log *raft.InmemStore) *raft.Raft {
	t.Helper()
	conf := raft.DefaultConfig()
	conf.LocalID, conf.LogOutput = "n1", io.Discard
	address, trans := raft.NewInmemTransport("")
	snapshots := raft.NewInmemSnapshotStore()
	members := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: address}}}
	if err := raft.BootstrapCluster(conf, log, log, snapshots, trans, members); err != nil {
		t.Fatal(err)
	}
	node, err := raft.NewRaft(conf, &raft.MockFSM{}, log, log, snapshots, trans)
	if err != nil {
		t.Fatal(err)
	}
	return node
}
