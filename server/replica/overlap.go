package replica

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// mostUnwritten bounds the entries that may be sent before they are written. With that many
// the leader waits for its disk. Each may have maxEntryBytes.
const mostUnwritten = 64

// overlapped lets the leader's disk write while the others' do. Raft stores an entry, and
// then sends it; so it is told at once that the entry is stored, and gets it from memory,
// while a goroutine writes it. Raft counts the leader itself among those who have the entry
// from then on, too early. What makes up for that:
//
//   - No follower's word that it has an entry reaches raft before the entry is written here
//     (raftstream.TransportConfig.Written). As soon as there is another voter, raft needs the
//     word of one at least, so nothing is committed, applied or answered, nor are others told
//     that it is committed, before. The only voter waits for its disk.
//   - An entry that changes the members is written before it is sent, with all that are before
//     it: from then on raft counts by it.
//   - Who does not lead waits: whatever raft stores, reads or deletes, everything that was left
//     from its own time as the leader is written first. A new leader asks whether an entry is
//     there, and raft says so without storing it again.
//   - After a write that failed nothing counts as written any more. Raft would panic if it could
//     not read what it has stored, so it reads that; but the node has been told to halt before,
//     and nothing that it says from then on leaves it (raftstream.Layer.Mute).
//
// It stands before the cache, which has only what is written.
type overlapped struct {
	under raft.LogStore
	// leads tells whether this node leads, and needs others to commit anything. Raft's main
	// goroutine gets an exact answer, since nobody else makes it lead or not. Set once, before
	// raft runs.
	leads func() bool

	wake    chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex // guards what follows
	unwritten []*raft.Log
	written   chan struct{} // closed when some of them are, or a write has failed
	failed    bool
}

func newOverlapped(under raft.LogStore) *overlapped {
	o := &overlapped{under: under, leads: func() bool { return false }, wake: make(chan struct{}, 1), written: make(chan struct{})}
	o.running.Go(o.run)
	return o
}

// run writes until close, and then what is left.
func (o *overlapped) run() {
	for range o.wake {
		for o.write() {
		}
	}
}

// close ends run. Raft stores nothing any more.
func (o *overlapped) close() {
	close(o.wake)
	o.running.Wait()
}

// write writes all that waits, at once, and reports whether that may go on.
func (o *overlapped) write() bool {
	o.mu.Lock()
	entries := o.unwritten
	o.mu.Unlock()
	if len(entries) == 0 {
		return false
	}
	err := o.under.StoreLogs(entries)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed = err != nil; !o.failed {
		o.unwritten = slices.Delete(o.unwritten, 0, len(entries))
	}
	close(o.written)
	o.written = make(chan struct{})
	return !o.failed
}

// isWritten tells whether every entry up to index that raft has stored is on the disk. If not,
// it is time to ask again when the channel closes; nil means never.
func (o *overlapped) isWritten(index uint64) (bool, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.unwritten) == 0 || o.unwritten[0].Index > index:
		return true, nil
	case o.failed:
		return false, nil
	}
	return false, o.written
}

// settle waits until all that raft has stored so far is on the disk.
func (o *overlapped) settle() error {
	o.mu.Lock()
	if len(o.unwritten) == 0 {
		o.mu.Unlock()
		return nil
	}
	last := o.unwritten[len(o.unwritten)-1].Index
	o.mu.Unlock()
	for {
		ok, again := o.isWritten(last)
		if ok {
			return nil
		}
		if again == nil {
			return errBroken
		}
		<-again
	}
}

// StoreLog implements raft.LogStore.
func (o *overlapped) StoreLog(e *raft.Log) error { return o.StoreLogs([]*raft.Log{e}) }

// StoreLogs implements raft.LogStore. It keeps the entries.
func (o *overlapped) StoreLogs(entries []*raft.Log) error {
	if slices.ContainsFunc(entries, changesMembers) || !o.leads() || !o.add(entries) {
		if err := o.settle(); err != nil {
			return err
		}
		return o.under.StoreLogs(entries)
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil
}

func changesMembers(e *raft.Log) bool { return e.Type == raft.LogConfiguration }

// add leaves the entries to be written, unless there are too many already, or none will be.
func (o *overlapped) add(entries []*raft.Log) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed || len(o.unwritten)+len(entries) > mostUnwritten {
		return false
	}
	o.unwritten = append(o.unwritten, entries...)
	return true
}

// GetLog implements raft.LogStore.
func (o *overlapped) GetLog(index uint64, e *raft.Log) error {
	if !o.leads() {
		_ = o.settle() // what failed is read all the same
	}
	if o.remembered(index, e) {
		return nil
	}
	return o.under.GetLog(index, e)
}

// remembered reads an entry that is not written yet.
func (o *overlapped) remembered(index uint64, e *raft.Log) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.unwritten) == 0 {
		return false
	}
	at := index - o.unwritten[0].Index // a large one, if it is before
	if at >= uint64(len(o.unwritten)) {
		return false
	}
	*e = *o.unwritten[at]
	return true
}

// FirstIndex implements raft.LogStore.
func (o *overlapped) FirstIndex() (uint64, error) {
	if err := o.settle(); err != nil {
		return 0, err
	}
	return o.under.FirstIndex()
}

// LastIndex implements raft.LogStore.
func (o *overlapped) LastIndex() (uint64, error) {
	if err := o.settle(); err != nil {
		return 0, err
	}
	return o.under.LastIndex()
}

// DeleteRange implements raft.LogStore.
func (o *overlapped) DeleteRange(lowest, highest uint64) error {
	if err := o.settle(); err != nil {
		return err
	}
	return o.under.DeleteRange(lowest, highest)
}
