package framed

import (
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// flusher writes what an entry has to say to clients, once all of it is in their outboxes: one
// write for each connection, however many answers and pushes it gets. Who completes the entry
// writes, and one goroutine helps, so that two processors do. To wake the writer of each
// connection for it took a tenth more of the node's time with a thousand connections.
type flusher struct {
	mu      sync.Mutex
	wake    sync.Cond // for the helper
	waiting []*conn   // for the end of the entry
	due     []*conn
	closed  bool
	helper  sync.WaitGroup
}

// startFlusher returns a flusher that works until close.
func startFlusher() *flusher {
	f := &flusher{}
	f.wake.L = &f.mu
	f.helper.Go(f.help)
	return f
}

// add has the connection's outbox written with the next flush.
func (f *flusher) add(c *conn) {
	if c.unflushed.Swap(true) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, c)
}

// flush is called when everybody whom an entry concerns was told. Who was told last is
// written to first: these are the grants to those who had waited, and others wait for them
// to release.
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

// write writes until nothing is due. It lets go of mu meanwhile.
func (f *flusher) write() {
	for n := len(f.due) - 1; n >= 0; n = len(f.due) - 1 {
		c := f.due[n]
		f.due[n], f.due = nil, f.due[:n]
		f.mu.Unlock()
		c.unflushed.Store(false) // what is queued from now on needs another flush
		c.out.FlushHere()
		f.mu.Lock()
	}
}

// close ends the helper.
func (f *flusher) close() {
	f.mu.Lock()
	f.closed = true
	f.wake.Signal()
	f.mu.Unlock()
	f.helper.Wait()
}

// executed tells the result of a command that was applied from that of one that was refused.
// Only an entry has the first, and a flush follows.
func executed(res *wire.Result) bool {
	return succeeded(res) || res.GetStatus() == wire.Status_QUEUED
}
