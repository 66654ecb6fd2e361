package rpc

import (
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// flusher writes the messages of an entry to clients once all of them are in their outboxes: one write per
// connection, however many answers and pushes it gets. The completer's goroutine writes, and a helper
// goroutine assists, so that two processors share the work. Waking the writer of each connection instead cost
// 10% more of the node's CPU time with a thousand connections.
type flusher struct {
	mu      sync.Mutex
	wake    sync.Cond // wakes the helper
	waiting []*conn   // to be flushed at the end of the entry
	due     []*conn
	closed  bool
	helper  sync.WaitGroup
}

// startFlusher returns a running flusher. Call close to stop it.
func startFlusher() *flusher {
	f := &flusher{}
	f.wake.L = &f.mu
	f.helper.Go(f.help)
	return f
}

// add schedules the connection's outbox for the next flush.
func (f *flusher) add(c *conn) {
	if c.unflushed.Swap(true) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, c)
}

// flush is called after all responses and events of an entry have been queued. Connections that were added
// last are written first: they get the grants to waiters, whose releases further waiters depend on.
func (f *flusher) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due = append(f.due, f.waiting...); len(f.due) > 1 {
		f.wake.Signal()
	}
	clear(f.waiting)
	f.waiting = f.waiting[:0]
	f.write()
}

func (f *flusher) help() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.closed {
		f.write()
		f.wake.Wait()
	}
}

// write writes until nothing is due. It unlocks mu around each write.
func (f *flusher) write() {
	for n := len(f.due) - 1; n >= 0; n = len(f.due) - 1 {
		c := f.due[n]
		f.due[n], f.due = nil, f.due[:n]
		f.mu.Unlock()
		c.unflushed.Store(false) // later messages need another flush
		c.out.FlushHere()
		f.mu.Lock()
	}
}

// close stops the helper and waits for it.
func (f *flusher) close() {
	f.mu.Lock()
	f.closed = true
	f.wake.Signal()
	f.mu.Unlock()
	f.helper.Wait()
}

// executed reports whether res is the result of an applied command rather than a refusal. Only applied
// commands come from an entry, so only then does a flush follow.
func executed(res *wire.Result) bool {
	return succeeded(res) || res.GetStatus() == wire.Status_QUEUED
}
