package raftstream

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// lookAgain is how often a call that waits for a node asks whether it still should.
const lookAgain = 100 * time.Millisecond

// heard tells of heartbeats that got through.
type heard struct {
	mu   sync.Mutex
	from map[raft.ServerID]chan struct{} // closed by the next one
}

// next is closed by the next heartbeat that gets through to a node.
func (h *heard) next(id raft.ServerID) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.from[id] == nil {
		h.from[id] = make(chan struct{})
	}
	return h.from[id]
}

// now tells that one has got through.
func (h *heard) now(id raft.ServerID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next := h.from[id]; next != nil {
		close(next)
		delete(h.from, id)
	}
}

// patiently makes a call that sends entries or a snapshot, and keeps a failure to itself
// until the next heartbeat gets through. Raft doubles its pause with each failure in a
// row, up to ten seconds, and knows nothing of heartbeats in between: a node that was away
// for a minute would be back and well, and get no entries for so long. With it alone the
// leader has its majority, and could commit nothing.
func (t *Transport) patiently(id raft.ServerID, call func() error) error {
	heard := t.heard.next(id)
	err := call()
	if err == nil {
		return nil
	}
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for t.awaited(id) {
		select {
		case <-heard:
			return err
		case <-t.layer.ctx.Done():
			return err
		case <-tick.C:
		}
	}
	return err
}

// isHeartbeat tells raft's heartbeats, which carry nothing else.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0
}
