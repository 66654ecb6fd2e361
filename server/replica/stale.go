package replica

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxDated bounds the log entries that are read to find the time of the last change.
const maxDated = 64

// SaveStaleSnapshot writes a backup of what this node alone knows, without proof of leadership, for a cluster
// that has lost its majority. The backup may lack the last acknowledged changes, if this node had not
// received them. A node that knows a leader writes its applied state. A node that knows none also applies the
// rest of its log to a copy: after a restart it cannot know how much of the log is committed, and nothing
// committed may be missing. So the backup may include changes that were never acknowledged. described is
// called with what is known about the backup before the first byte is written. The act cannot be recorded in
// the audit log; this node logs it instead.
func (r *Replica) SaveStaleSnapshot(ctx context.Context, req *wire.SaveSnapshotRequest, described func(*wire.StaleSnapshot) error, w io.Writer) error {
	act := &wire.RecordAct{Action: wire.AuditRecord_SAVE_SNAPSHOT, Operator: req.GetOperator(), Reason: req.GetReason()}
	if err := validAct(act); err != nil {
		return err
	}
	m, about, err := r.stale()
	if err != nil {
		return err
	}
	r.log.Warn("saving a stale backup: it may lack the last changes that were acknowledged", "operator", req.GetOperator(), "reason", req.GetReason(),
		"revision", about.Revision, "index", about.Index, "committed", about.CommittedIndex, "leader", about.LeaderId)
	if err := described(about); err != nil {
		return err
	}
	return m.WriteSnapshot(&chunks{ctx: ctx, w: w})
}

// stale returns the most recent state that this node knows, with a description.
func (r *Replica) stale() (*fsm.Machine, *wire.StaleSnapshot, error) {
	node := r.cluster.Raft()
	if node == nil {
		return nil, nil, errNoState
	}
	_, leader := node.LeaderWithID()
	about := &wire.StaleSnapshot{NodeId: r.cfg.ID, LeaderId: string(leader), CommittedIndex: node.CommitIndex()}
	rest := func(uint64) iter.Seq2[*raft.Log, error] { return func(func(*raft.Log, error) bool) {} }
	if leader == "" {
		rest = r.logAfter
	}
	m, index, err := r.machine.Ahead(rest)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: apply the rest of the log: %w", status.ErrUnavailable, err)
	}
	if m.ClusterID() == "" {
		return nil, nil, errNoState
	}
	about.Index, about.Revision, about.LastChangeUnixMs = index, m.Revision(), r.changedAt(index)
	about.CommittedIndex = min(max(about.CommittedIndex, r.machine.AppliedIndex()), index)
	return m, about, nil
}

var errNoState = fmt.Errorf("%w: this node has no state to save: ask another one", status.ErrPrecondition)

// logAfter yields the entries after index.
func (r *Replica) logAfter(index uint64) iter.Seq2[*raft.Log, error] {
	return func(yield func(*raft.Log, error) bool) {
		last, err := r.stores.Log.LastIndex()
		for index++; err == nil && index <= last; index++ {
			e := &raft.Log{}
			if err = r.stores.Log.GetLog(index, e); err == nil && !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// changedAt returns when the last command up to that entry was proposed, in Unix milliseconds, or 0 if the
// log does not show it.
func (r *Replica) changedAt(index uint64) int64 {
	for range min(index, maxDated) {
		e := raft.Log{}
		if r.stores.Log.GetLog(index, &e) != nil {
			return 0
		}
		entry := &wire.Entry{}
		if e.Type == raft.LogCommand && proto.Unmarshal(e.Data, entry) == nil && entry.WallUnixMs != 0 {
			return entry.WallUnixMs
		}
		index--
	}
	return 0
}
