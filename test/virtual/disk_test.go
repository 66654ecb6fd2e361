package virtual_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// disk is what survives a node's process. In addition to the log it keeps every entry that was ever in it, so
// that everything can be replayed after the log was compacted. Writes to the log may take time, and those in
// progress when the process dies are lost. As in the segment log, entries that do not continue the log replace
// it.
type disk struct {
	*raft.InmemStore
	snapshots vault

	mu      sync.Mutex
	journal map[uint64]*raft.Log
	values  map[string]any       // []byte or uint64, for copies
	takes   func() time.Duration // for one write; nil means no time
	life    int                  // incremented when the process starts or dies
	running bool
}

var errPower = errors.New("the power has failed")

// power is switched on when the process starts, and off when it dies.
func (d *disk) power(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = on
	d.life++
}

// slow sets the duration of each write from now on.
func (d *disk) slow(takes func() time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takes = takes
}

// wait waits for the duration of a write. It returns an error if the process died in the meantime.
func (d *disk) wait() error {
	d.mu.Lock()
	takes, life, running := d.takes, d.life, d.running
	d.mu.Unlock()
	if takes != nil {
		pause(takes())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !running || d.life != life {
		return errPower
	}
	return nil
}

func newDisk() *disk {
	return &disk{InmemStore: raft.NewInmemStore(), journal: map[uint64]*raft.Log{}, values: map[string]any{}}
}

// Set implements raft.StableStore.
func (d *disk) Set(key, value []byte) error {
	d.mu.Lock()
	d.values[string(key)] = bytes.Clone(value)
	d.mu.Unlock()
	return d.InmemStore.Set(key, value)
}

// SetUint64 implements raft.StableStore.
func (d *disk) SetUint64(key []byte, value uint64) error {
	d.mu.Lock()
	d.values[string(key)] = value
	d.mu.Unlock()
	return d.InmemStore.SetUint64(key, value)
}

// copy returns a disk with the current contents of this one.
func (d *disk) copy() *disk {
	to := newDisk()
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, value := range d.values {
		to.values[key] = value
		switch value := value.(type) {
		case []byte:
			_ = to.InmemStore.Set([]byte(key), value)
		case uint64:
			_ = to.InmemStore.SetUint64([]byte(key), value)
		}
	}
	first, _ := d.FirstIndex()
	last, _ := d.LastIndex()
	for i := max(first, 1); i <= last; i++ {
		var entry raft.Log
		if d.GetLog(i, &entry) == nil {
			_ = to.InmemStore.StoreLog(&entry)
		}
	}
	maps.Copy(to.journal, d.journal)
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	to.snapshots.made, to.snapshots.all = d.snapshots.made, slices.Clone(d.snapshots.all)
	return to
}

// StoreLog implements raft.LogStore.
func (d *disk) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (d *disk) StoreLogs(logs []*raft.Log) error {
	if err := d.wait(); err != nil {
		return err
	}
	d.mu.Lock()
	for _, l := range logs {
		d.journal[l.Index] = l
	}
	d.mu.Unlock()
	first, _ := d.FirstIndex()
	if last, _ := d.LastIndex(); last != 0 && logs[0].Index != last+1 {
		if err := d.DeleteRange(first, last); err != nil {
			return err
		}
	}
	return d.InmemStore.StoreLogs(logs)
}

// at returns the entry with that index, or nil if there was none.
func (d *disk) at(index uint64) *raft.Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.journal[index]
}

// commands returns the entries of the service itself.
func (d *disk) commands() (logged []*raft.Log) {
	last, _ := d.LastIndex()
	for i := uint64(1); i <= last; i++ {
		if l := d.at(i); l != nil && l.Type == raft.LogCommand {
			logged = append(logged, l)
		}
	}
	return logged
}

// entries counts the service's own entries in the log: those with commands, and the empty ones that prove
// leadership for heartbeats and reads.
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
