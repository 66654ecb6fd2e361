package backup

import (
	"fmt"
	"iter"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxDated bounds the log entries that are read to find the time of the last change.
const maxDated = 64

// Stale returns the most recent state that a node knows, with a description. A node that knows a leader has its applied
// state. A node that knows none also applies the rest of its log to a copy. Stale returns status.ErrPrecondition if the
// node has no state, in particular if node, its raft, is nil.
func Stale(id string, node *raft.Raft, machine *fsm.Replicated, log raft.LogStore) (*fsm.Machine, *wire.StaleSnapshot, error) {
	if node == nil {
		return nil, nil, errNoState
	}
	_, leader := node.LeaderWithID()
	about := &wire.StaleSnapshot{NodeId: id, LeaderId: string(leader), CommittedIndex: node.CommitIndex()}
	rest := func(uint64) iter.Seq2[*raft.Log, error] { return func(func(*raft.Log, error) bool) {} }
	if leader == "" {
		rest = logAfter(log)
	}
	m, index, err := machine.Ahead(rest)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: apply the rest of the log: %w", status.ErrUnavailable, err)
	}
	if m.ClusterID() == "" {
		return nil, nil, errNoState
	}
	about.Index, about.Revision, about.LastChangeUnixMs = index, m.Revision(), changedAt(log, index)
	about.CommittedIndex = min(max(about.CommittedIndex, machine.AppliedIndex()), index)
	return m, about, nil
}

// Stored returns the latest state in the stores of a node that is not running. It applies the whole log: after a
// majority was lost, nobody knows how much of it is committed, and nothing committed may be missing.
func Stored(snapshots raft.SnapshotStore, log raft.LogStore) (*fsm.Machine, *wire.StaleSnapshot, error) {
	machine := fsm.NewReplicated(fsm.Level, func(error) {})
	list, err := snapshots.List()
	if err != nil {
		return nil, nil, fmt.Errorf("look for snapshots: %w", err)
	}
	about := &wire.StaleSnapshot{}
	if len(list) > 0 {
		about.Index = list[0].Index
		_, state, err := snapshots.Open(list[0].ID)
		if err == nil {
			err = machine.Restore(state)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	about.CommittedIndex = about.Index
	m, index, err := machine.Ahead(func(after uint64) iter.Seq2[*raft.Log, error] { return logAfter(log)(max(after, about.Index)) })
	if err != nil {
		return nil, nil, fmt.Errorf("apply the log: %w", err)
	}
	about.Index, about.Revision = max(about.Index, index), m.Revision()
	about.LastChangeUnixMs = changedAt(log, about.Index)
	return m, about, nil
}

var errNoState = fmt.Errorf("%w: this node has no state to save: ask another one", status.ErrPrecondition)

// logAfter returns a function that yields the entries after an index.
func logAfter(log raft.LogStore) func(index uint64) iter.Seq2[*raft.Log, error] {
	return func(index uint64) iter.Seq2[*raft.Log, error] {
		return func(yield func(*raft.Log, error) bool) {
			last, err := log.LastIndex()
			for index++; err == nil && index <= last; index++ {
				e := &raft.Log{}
				if err = log.GetLog(index, e); err == nil && !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
		}
	}
}

// changedAt returns when the last command up to that entry was proposed, in Unix milliseconds, or 0 if the
// log does not show it.
func changedAt(log raft.LogStore, index uint64) int64 {
	for range min(index, maxDated) {
		e := raft.Log{}
		if log.GetLog(index, &e) != nil {
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
