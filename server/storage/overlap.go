package storage

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// maxUnwritten bounds the entries that may be sent before they are written. Beyond it, the leader waits for
// its disk.
const maxUnwritten = 64

// overlapped lets the leader write to its disk while the followers write to theirs. Raft stores an entry and
// then sends it. So overlapped reports immediately that the entry is stored, returns it from memory when raft
// reads it, and writes it on another goroutine. From then on, raft counts the leader among the nodes that
// have the entry, which is too early. These rules make it safe:
//
//   - Raft learns that a follower has an entry only after the entry is written here
//     (peerport.TransportConfig.Written). If there is another voter, raft needs at least one follower's
//     acknowledgement. So nothing is committed, applied, answered, or announced as committed before it is
//     written here. The only voter of a cluster waits for its disk.
//   - An entry that changes the members is written before it is sent, together with all entries before it:
//     raft counts votes by it from then on.
//   - An entry that does not continue the log follows a snapshot that the node was sent. The log drops
//     everything before such an entry when it is written, so it is written before it is sent: raft could
//     otherwise read and send what the node had stored before the snapshot and was never committed.
//   - A node that does not lead waits: before raft stores, reads or deletes anything, all entries that are
//     left from the node's own leadership are written. A new leader asks whether the node has an entry, and
//     raft confirms that without storing it again.
//   - After a failed write, no entry counts as written any more. Raft would panic if it could not read what
//     it has stored, so it can still read these entries. But by then the node is halting, and nothing it
//     sends leaves it any more (peerport.Layer.StopSending).
//
// overlapped comes before the cache, which has only written entries.
type overlapped struct {
	under raft.LogStore
	// leads reports whether this node leads and needs other voters to commit anything. The answer is exact
	// when raft's main goroutine asks, since only that goroutine changes it.
	leads func() bool

	wake    chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	unwritten []*raft.Log
	written   chan struct{} // closed when some of them are, or after a failed write
	failed    bool
}

func newOverlapped(under raft.LogStore, leads func() bool) *overlapped {
	o := &overlapped{under: under, leads: leads, wake: make(chan struct{}, 1), written: make(chan struct{})}
	o.running.Go(o.run)
	return o
}

// run writes until close, including what is left then.
func (o *overlapped) run() {
	for range o.wake {
		for o.write() {
		}
	}
}

// close ends run. Raft must not store anything any more.
func (o *overlapped) close() {
	close(o.wake)
	o.running.Wait()
}

// write writes all waiting entries in one batch. It reports whether there was something to write and the
// write succeeded.
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

// isWritten reports whether every entry up to index that raft has stored is on the disk. If not, the caller
// should ask again when the channel is closed; a nil channel means that the answer will not change.
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

// flush waits until everything that raft has stored so far is on the disk.
func (o *overlapped) flush() error {
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
		if err := o.flush(); err != nil {
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

// add queues the entries for run. It reports false if too many are waiting already, if a write has failed, or
// if the entries do not continue the log.
func (o *overlapped) add(entries []*raft.Log) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed || len(o.unwritten)+len(entries) > maxUnwritten {
		return false
	}
	if len(o.unwritten) == 0 {
		last, err := o.under.LastIndex()
		if err != nil || entries[0].Index != last+1 {
			return false
		}
	}
	o.unwritten = append(o.unwritten, entries...)
	return true
}

// GetLog implements raft.LogStore.
func (o *overlapped) GetLog(index uint64, e *raft.Log) error {
	if !o.leads() {
		_ = o.flush() // what failed is read all the same
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
	at := index - o.unwritten[0].Index // wraps around to a large number if index is before
	if at >= uint64(len(o.unwritten)) {
		return false
	}
	*e = *o.unwritten[at]
	return true
}

// FirstIndex implements raft.LogStore.
func (o *overlapped) FirstIndex() (uint64, error) {
	if err := o.flush(); err != nil {
		return 0, err
	}
	return o.under.FirstIndex()
}

// LastIndex implements raft.LogStore.
func (o *overlapped) LastIndex() (uint64, error) {
	if err := o.flush(); err != nil {
		return 0, err
	}
	return o.under.LastIndex()
}

// DeleteRange implements raft.LogStore.
func (o *overlapped) DeleteRange(lowest, highest uint64) error {
	if err := o.flush(); err != nil {
		return err
	}
	return o.under.DeleteRange(lowest, highest)
}
