package replica

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

// catchUp tracks when this node has applied everything that was committed when it first heard from a leader
// after its start. Until then, its state is outdated, its event log has no beginning, and what it lacks may
// arrive any moment.
type catchUp struct {
	// applied is the index of the last command that the state machine has applied.
	applied atomic.Uint64

	committed atomic.Uint64 // the first index that a leader announced; 0 before
	announced chan struct{} // closed when committed is set
	done      chan struct{} // closed when the node has caught up
	ended     sync.Once
}

func newCatchUp() *catchUp {
	return &catchUp{announced: make(chan struct{}), done: make(chan struct{})}
}

// announce records a commit index that a leader announced.
func (c *catchUp) announce(index uint64) {
	if c.committed.Load() == 0 && c.committed.CompareAndSwap(0, index) {
		close(c.announced)
	}
}

// end records that the node has caught up.
func (c *catchUp) end() { c.ended.Do(func() { close(c.done) }) }

const (
	// catchUpPoll is how often followUp checks whether the node has caught up.
	catchUpPoll = 10 * time.Millisecond
	// catchUpWait is how long a watch waits for that.
	catchUpWait = 5 * time.Second
)

// caughtUp waits until this node has caught up. It returns status.ErrUnavailable if that takes too long.
func (r *Replica) caughtUp(ctx context.Context) error {
	select {
	case <-r.catchUp.done:
		return nil
	default:
	}
	enough := time.NewTimer(catchUpWait)
	defer enough.Stop()
	select {
	case <-r.catchUp.done:
		return nil
	case <-enough.C:
		return fmt.Errorf("%w: this node has not caught up with the cluster since its start: ask again, or another node", status.ErrUnavailable)
	case <-r.ctx.Done():
		return nil // the event log reports that the node is stopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// followUp waits until the node has caught up. A leader has caught up as soon as it serves.
func (r *Replica) followUp() {
	select {
	case <-r.catchUp.announced:
	case <-r.catchUp.done:
		return
	case <-r.ctx.Done():
		return
	}
	tick := time.NewTicker(catchUpPoll)
	defer tick.Stop()
	for !r.hasApplied(r.catchUp.committed.Load()) {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
	}
	r.catchUp.end()
}

// hasApplied reports whether the state machine has applied every command up to index.
func (r *Replica) hasApplied(index uint64) bool {
	node := r.cluster.Raft()
	if node.AppliedIndex() < index { // what raft has handed to the state machine
		return false
	}
	snapshot, err := strconv.ParseUint(node.Stats()["last_snapshot_index"], 10, 64)
	if err != nil {
		return false
	}
	for ; index > max(snapshot, r.catchUp.applied.Load()); index-- {
		var entry raft.Log
		if err := r.stores.Log.GetLog(index, &entry); err != nil || entry.Type == raft.LogCommand {
			return false // it is being applied, or is about to be covered by a snapshot
		}
	}
	return true
}
