package replica

import (
	"context"
	"math"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/directory"
)

const (
	// catchUpTimeout bounds CatchUp.
	catchUpTimeout = time.Second
	// catchUpPause is the least time between questions to the leader, which callers that are refused cause.
	catchUpPause = 50 * time.Millisecond
	// catchUpInterval is how often CatchUp looks at the applied index.
	catchUpInterval = 2 * time.Millisecond
)

// CatchUp waits until this node has applied what the leader had applied at the call, and reports whether it has waited.
// A leader need not wait. If no leader answers, CatchUp gives up after a bounded time.
func (r *Replica) CatchUp() bool {
	if r.Serving() {
		return false
	}
	ctx, cancel := context.WithTimeout(r.ctx, catchUpTimeout)
	defer cancel()
	index, ok := r.rounds.Index(ctx)
	for !ok && ctx.Err() == nil {
		index, ok = r.rounds.Index(ctx)
	}
	tick := time.NewTicker(catchUpInterval)
	defer tick.Stop()
	for r.machine.AppliedIndex() < index && !r.Serving() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// leaderApplied asks the leader for the index of what it has applied. It needs no proof of its leadership: if this node
// follows a leader that was replaced, both are cut off.
func (r *Replica) leaderApplied(ctx context.Context) (index uint64, ok bool) {
	node := r.cluster.Raft()
	if node == nil {
		return 0, false
	}
	addr, id := node.LeaderWithID()
	switch string(id) {
	case "":
		return 0, false
	case r.cfg.ID:
		return math.MaxUint64, true // until its barrier is applied, from when on it serves
	}
	a := r.prober.One(ctx, directory.Peer{ID: string(id), Addr: string(r.cluster.Resolve(id, addr))})
	return a.State.GetAppliedIndex(), a.State != nil
}
