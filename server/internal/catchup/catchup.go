package catchup

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/status"
)

const (
	// interval is how often Follow checks whether the node has caught up.
	interval = 10 * time.Millisecond
	// waitTimeout is how long Wait waits for that.
	waitTimeout = 5 * time.Second
)

// Tracker tracks whether the node has caught up. It is safe for concurrent use.
type Tracker struct {
	// applied is the index of the last command that the state machine has applied.
	applied atomic.Uint64

	committed atomic.Uint64 // the first index that a leader announced; 0 before
	announced chan struct{} // closed when committed is set
	done      chan struct{} // closed when the node has caught up
	ended     sync.Once
}

// New creates a Tracker for a node that has just started.
func New() *Tracker {
	return &Tracker{announced: make(chan struct{}), done: make(chan struct{})}
}

// Announced records a commit index that a leader announced.
func (t *Tracker) Announced(index uint64) {
	if t.committed.Load() == 0 && t.committed.CompareAndSwap(0, index) {
		close(t.announced)
	}
}

// Applied records the index of a command that the state machine has applied.
func (t *Tracker) Applied(index uint64) { t.applied.Store(index) }

// End records that the node has caught up. A leader has, as soon as it serves.
func (t *Tracker) End() { t.ended.Do(func() { close(t.done) }) }

// Done reports whether the node has caught up.
func (t *Tracker) Done() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Wait waits until the node has caught up. It returns status.ErrUnavailable if that takes too long, ctx's error if that
// ends, and nil if the node stops.
func (t *Tracker) Wait(ctx context.Context, stops <-chan struct{}) error {
	if t.Done() {
		return nil
	}
	enough := time.NewTimer(waitTimeout)
	defer enough.Stop()
	select {
	case <-t.done:
		return nil
	case <-enough.C:
		return fmt.Errorf("%w: this node has not caught up with the cluster since its start: ask again, or another node", status.ErrUnavailable)
	case <-stops:
		return nil // the event log reports that the node is stopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Follow waits until the node has caught up, and then calls End.
func (t *Tracker) Follow(ctx context.Context, node *raft.Raft, log raft.LogStore) {
	select {
	case <-t.announced:
	case <-t.done:
		return
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !t.hasApplied(node, log, t.committed.Load()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	t.End()
}

// hasApplied reports whether the state machine has applied every command up to index.
func (t *Tracker) hasApplied(node *raft.Raft, log raft.LogStore, index uint64) bool {
	if node.AppliedIndex() < index { // what raft has handed to the state machine
		return false
	}
	snapshot, err := strconv.ParseUint(node.Stats()["last_snapshot_index"], 10, 64)
	if err != nil {
		return false
	}
	for ; index > max(snapshot, t.applied.Load()); index-- {
		var entry raft.Log
		if err := log.GetLog(index, &entry); err != nil || entry.Type == raft.LogCommand {
			return false // it is being applied, or is about to be covered by a snapshot
		}
	}
	return true
}
