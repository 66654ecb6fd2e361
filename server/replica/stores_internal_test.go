package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var errDisk = errors.New("input/output error")

// Keys of raft in the stable store.
const currentTerm, lastVoteTerm = "CurrentTerm", "LastVoteTerm"

// refusing is a store that fails to write or to read certain keys.
type refusing struct {
	*raft.InmemStore
	keys      []string // in the order in which they were written
	entries   bool     // changes of the log are refused
	key, read string   // the key that is refused on writing, and on reading
}

func (r *refusing) refuse(key []byte) error {
	if string(key) == r.key {
		return errDisk
	}
	r.keys = append(r.keys, string(key))
	return nil
}

func (r *refusing) Set(key, value []byte) error {
	return errors.Join(r.refuse(key), r.InmemStore.Set(key, value))
}

func (r *refusing) SetUint64(key []byte, value uint64) error {
	return errors.Join(r.refuse(key), r.InmemStore.SetUint64(key, value))
}

func (r *refusing) Get(key []byte) ([]byte, error) {
	if string(key) == r.read {
		return nil, errDisk
	}
	return r.InmemStore.Get(key)
}

func (r *refusing) DeleteRange(lowest, highest uint64) error {
	if r.entries {
		return errDisk
	}
	return r.InmemStore.DeleteRange(lowest, highest)
}

// failing is a log that fails to write.
type failing struct {
	*raft.InmemStore
	err error
}

func (f *failing) StoreLogs(entries []*raft.Log) error {
	if f.err != nil {
		return f.err
	}
	return f.InmemStore.StoreLogs(entries)
}

// reading fails to read one thing.
type reading struct {
	*raft.InmemStore
	raft.SnapshotStore
	noTerm, noLog, noSnapshots bool
}

func (r reading) GetUint64(key []byte) (uint64, error) {
	if r.noTerm {
		return 1, errDisk
	}
	return r.InmemStore.GetUint64(key)
}

func (r reading) FirstIndex() (uint64, error) {
	if r.noLog {
		return 0, errDisk
	}
	return r.InmemStore.FirstIndex()
}

func (r reading) LastIndex() (uint64, error) {
	if r.noLog {
		return 0, errDisk
	}
	return r.InmemStore.LastIndex()
}

func (r reading) List() ([]*raft.SnapshotMeta, error) {
	if r.noSnapshots {
		return nil, errDisk
	}
	return r.SnapshotStore.List()
}

// queueing returns a proposer that accepts commands and proposes none.
func queueing() *groupcommit.Proposer {
	p := groupcommit.New(nil, func() *wire.Result { return status.Result(wire.Status_NOT_LEADER, "") })
	p.Begin(1)
	p.Serve(1, 1)
	return p
}

// TestHaltedNodeProposesNothing verifies that a node that has failed proposes no entries.
func TestHaltedNodeProposesNothing(t *testing.T) {
	r := &Replica{}
	r.halted.Store(&errDisk)
	if err := r.apply([]byte("entry"), time.Minute).Error(); !errors.Is(err, raft.ErrNotLeader) {
		t.Errorf("answered %v", err)
	}
}
