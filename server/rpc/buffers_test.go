package rpc

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// unfinished sends the first part of a frame.
func unfinished(t *testing.T, c *peer, claimed, sent int) {
	t.Helper()
	_ = c.conn.SetDeadline(time.Now().Add(testTimeout))
	frame := binary.BigEndian.AppendUint32(nil, uint32(claimed))
	if _, err := c.conn.Write(append(frame, make([]byte, sent)...)); err != nil {
		t.Log("the node does not read on:", err)
	}
}

// TestUnfinishedFramesAreCounted verifies that the bytes that arrived of a frame are counted, rather than its
// claimed length, and that the connection with the largest share is cut when the budget is exhausted.
func TestUnfinishedFramesAreCounted(t *testing.T) {
	const limit = 1 << 20
	buffers := budget.New(limit)
	p := serve(t, func(c *Config) { c.Buffers = buffers })
	honest := connect(t, p)
	session := honest.open(secret)
	claimant := connect(t, p)
	unfinished(t, claimant, 1_000_000, 100)
	if used := buffers.Used(); used > 2*connBytes {
		t.Errorf("%d bytes are held after a claim", used)
	}
	for range 4 {
		unfinished(t, connect(t, p), 1_000_000, 300_000)
	}
	eventually(t, "whoever holds most to be cut", func() bool { return p.Connections() < 6 })
	if used := buffers.Used(); used > limit {
		t.Errorf("%d bytes are held, the bound is %d", used, limit)
	}
	honest.expect(wire.Status_OK, heartbeat(session))
}

// TestUnreadAnswersAreCounted verifies that unread answers are counted, and released with their connection.
func TestUnreadAnswersAreCounted(t *testing.T) {
	const limit = 512 << 10
	buffers := budget.New(limit)
	p := serveInMemory(t, func(c *Config) { c.Buffers = buffers })
	honest, greedy := connect(t, p), connect(t, p)
	session := honest.open(secret)
	for i := range 100 {
		honest.expect(wire.Status_GRANTED, acquire(session, uint64(i+1), fmt.Sprintf("%s/%d", strings.Repeat("n", 300), i), false))
	}
	for range 60 { // greedy never reads the answers
		greedy.nextID++
		req := &wire.Request{Id: greedy.nextID, Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{Stale: true}}}
		if greedy.w.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}}) != nil {
			break // it was cut
		}
	}
	eventually(t, "the greedy one to be cut", func() bool { return p.log.count("RESOURCE_EXHAUSTED") > 0 })
	eventually(t, "its memory to be given back", func() bool { return buffers.Used() < 4*connBytes })
	honest.expect(wire.Status_OK, heartbeat(session))
}
