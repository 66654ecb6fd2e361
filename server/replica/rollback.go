package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/peers"
	"github.com/quorumlock/quorumlock/server/internal/retired"
	"github.com/quorumlock/quorumlock/server/status"
)

// startWait is how long a start waits for members that do not answer.
const startWait = 500 * time.Millisecond

// openPeers counts this start. It returns an error if the directory belongs to a node that has stopped for good.
func (r *Replica) openPeers() (err error) {
	if err := retired.Check(r.stores.Values); err != nil {
		return err
	}
	r.peers, err = peers.Open(peers.Config{
		Stores: r.stores, Machine: r.machine, Directory: r.directory, Cluster: &r.cluster, Alarm: func(id, difference string) { r.alarms.Forked(id, difference) }, RolledBack: r.rolledBack,
		Forked: r.forked, Contact: r.askAround, Announced: r.catchUp.Announced, Logger: r.log,
		Disconnect: func(id string) { r.layer.Disconnect(id) },
	})
	return err
}

// rolledBack stops this node for good.
func (r *Replica) rolledBack(knower, lacks string) {
	r.stopForGood(status.ErrRolledBack, r.advice().RolledBack(knower, lacks))
}

// forked stops this node for good.
func (r *Replica) forked(why string) { r.stopForGood(status.ErrForked, r.advice().Forked(why)) }

// stopForGood halts the node and stores the message, so that every later start fails with the same error.
func (r *Replica) stopForGood(kind error, message string) {
	if r.halted.Load() != nil {
		return
	}
	if err := retired.Retire(r.stores.Values, kind, message); err != nil {
		r.log.Error("cannot store the reason why this node stops", "error", err)
	}
	r.halt(fmt.Errorf("%w: %s", kind, message))
}

// askAround probes the other members, which send what they know about this node, before it takes part.
func (r *Replica) askAround(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	r.prober.All(ctx, r.directory.Peers(nil))
}

// keepsCommitted returns an error if entries are to be deleted that are committed and in no snapshot.
func (r *Replica) keepsCommitted(lowest, highest uint64) error {
	if lowest > max(r.peers.Committed(), r.machine.AppliedIndex()) {
		return nil
	}
	snapshot, err := r.stores.SnapshotIndex()
	if err != nil || highest <= snapshot {
		return err
	}
	r.mu.Lock()
	if !r.closing {
		r.running.Go(func() {
			r.askAround(r.ctx) // so that the others learn of it
			r.forked(fmt.Sprintf("the leader has other entries from %d on, and this node knows its own to be committed", lowest))
		})
	}
	r.mu.Unlock()
	return fmt.Errorf("%w: entries %d to %d are committed", status.ErrForked, lowest, highest)
}
