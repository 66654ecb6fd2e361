package virtual_test

import (
	"sync"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// disk is what outlives a node's process. It keeps every entry that was ever in the log
// beside it, so that the whole history can be replayed after the log was compacted.
type disk struct {
	*raft.InmemStore
	snapshots vault

	mu      sync.Mutex
	journal map[uint64]*raft.Log
}

func newDisk() *disk {
	return &disk{InmemStore: raft.NewInmemStore(), journal: map[uint64]*raft.Log{}}
}

// StoreLog implements raft.LogStore.
func (d *disk) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (d *disk) StoreLogs(logs []*raft.Log) error {
	d.mu.Lock()
	for _, l := range logs {
		d.journal[l.Index] = l
	}
	d.mu.Unlock()
	return d.InmemStore.StoreLogs(logs)
}

// at is the entry of that index, nil if there was none.
func (d *disk) at(index uint64) *raft.Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.journal[index]
}

// commands are the entries of the service itself.
func (d *disk) commands() (logged []*raft.Log) {
	last, _ := d.LastIndex()
	for i := uint64(1); i <= last; i++ {
		if l := d.at(i); l != nil && l.Type == raft.LogCommand {
			logged = append(logged, l)
		}
	}
	return logged
}

// entries counts the service's own entries in the log: those with commands, and the
// empty ones, which prove leadership to heartbeats and reads.
func (d *disk) entries() (commands, proofs int) {
	for _, l := range d.commands() {
		e := &wire.Entry{}
		if err := proto.Unmarshal(l.Data, e); err != nil || len(e.Commands) > 0 {
			commands++
		} else {
			proofs++
		}
	}
	return commands, proofs
}
