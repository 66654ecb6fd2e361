package virtual_test

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// history is what the cluster did: its committed log, replayed, its events judged by
// rules that know nothing of the state machine.
type history struct {
	machine  *fsm.Replicated
	faults   []string
	entries  int
	repeated int
	token    uint64
	queues   map[string][]uint64
	holders  map[string]uint64
	granted  map[request]*wire.Event
	byHold   map[uint64]*wire.Event
	released map[uint64]bool
	live     map[uint64]bool
	expired  map[uint64]time.Duration
	barriers []time.Duration
	asked    map[request]bool
}

// replay reads the log of a node that has all of it.
func replay(c *cluster, n *node) *history {
	h := &history{
		machine: fsm.NewReplicated(fsm.Level, func(error) {}), queues: map[string][]uint64{}, holders: map[string]uint64{},
		granted: map[request]*wire.Event{}, byHold: map[uint64]*wire.Event{}, released: map[uint64]bool{},
		live: map[uint64]bool{}, expired: map[uint64]time.Duration{}, asked: map[request]bool{},
	}
	last, _ := n.disk.LastIndex()
	for i := uint64(1); i <= last; i++ {
		entry := n.disk.at(i)
		if entry == nil {
			h.fault("entry %d of %s is missing", i, n.id)
			return h
		}
		if entry.Type == raft.LogCommand {
			h.apply(c, entry)
		}
	}
	h.machine.View(func(m *fsm.Machine) {
		if err := m.Check(); err != nil {
			h.fault("the replayed state: %v", err)
		}
	})
	return h
}

func (h *history) fault(format string, args ...any) {
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

func (h *history) apply(c *cluster, logged *raft.Log) {
	entry := &wire.Entry{}
	if err := proto.Unmarshal(logged.Data, entry); err != nil {
		h.fault("%v", err)
		return
	}
	applied, ok := h.machine.Apply(logged).(*fsm.Applied)
	if !ok {
		h.fault("entry %d was not applied", logged.Index)
		return
	}
	at := time.Duration(entry.WallUnixMs-c.begin.UnixMilli()) * time.Millisecond
	h.entries++
	for _, cmd := range entry.Commands {
		if cmd.GetBeginTerm() != nil {
			h.barriers = append(h.barriers, at)
		}
		if key := (request{cmd.SessionId, cmd.Seq}); cmd.Seq != 0 {
			if h.asked[key] {
				h.repeated++
			}
			h.asked[key] = true
		}
	}
	for _, e := range applied.Events {
		h.event(e, at)
	}
	for name, queue := range h.queues {
		if len(queue) > 0 && h.holders[name] == 0 {
			h.fault("entry %d: %s is free and %d wait", logged.Index, name, len(queue))
		}
	}
}

func (h *history) event(e *wire.Event, at time.Duration) {
	switch e.Type {
	case wire.Event_SESSION_OPENED:
		h.live[e.SessionId] = true
	case wire.Event_SESSION_CLOSED:
		delete(h.live, e.SessionId)
	case wire.Event_SESSION_EXPIRED:
		delete(h.live, e.SessionId)
		h.expired[e.SessionId] = at
	case wire.Event_QUEUED:
		h.queues[e.Lock] = append(h.queues[e.Lock], e.HoldId)
	case wire.Event_CANCELLED:
		h.queues[e.Lock] = slices.DeleteFunc(h.queues[e.Lock], func(id uint64) bool { return id == e.HoldId })
	case wire.Event_RELEASED, wire.Event_EXPIRED:
		if h.holders[e.Lock] != e.HoldId {
			h.fault("revision %d: %s is freed of %d, held by %d", e.Revision, e.Lock, e.HoldId, h.holders[e.Lock])
		}
		delete(h.holders, e.Lock)
		h.released[e.HoldId] = true
	case wire.Event_GRANTED:
		h.grant(e)
	}
}

// grant checks one grant: alone, to a live session, first in the queue, once for its
// request, with a token above all before.
func (h *history) grant(e *wire.Event) {
	key := request{e.SessionId, e.Seq}
	queue := h.queues[e.Lock]
	switch {
	case h.holders[e.Lock] != 0:
		h.fault("revision %d: %s is granted while %d holds it", e.Revision, e.Lock, h.holders[e.Lock])
	case !h.live[e.SessionId]:
		h.fault("revision %d: %s is granted to session %d, which is over", e.Revision, e.Lock, e.SessionId)
	case h.granted[key] != nil:
		h.fault("revision %d: request %v is granted twice", e.Revision, key)
	case e.Token <= h.token:
		h.fault("revision %d: token %d after %d", e.Revision, e.Token, h.token)
	case e.Waited && (len(queue) == 0 || queue[0] != e.HoldId):
		h.fault("revision %d: %s is granted to %d out of turn, the queue is %v", e.Revision, e.Lock, e.HoldId, queue)
	case !e.Waited && len(queue) > 0:
		h.fault("revision %d: %s is granted to %d past the queue %v", e.Revision, e.Lock, e.HoldId, queue)
	}
	if e.Waited && len(queue) > 0 {
		h.queues[e.Lock] = slices.DeleteFunc(queue, func(id uint64) bool { return id == e.HoldId })
	}
	h.holders[e.Lock], h.granted[key], h.byHold[e.HoldId], h.token = e.HoldId, e, e, e.Token
}

// sameBytes says whether every node that runs has the replayed state, to the byte.
func (h *history) sameBytes(c *cluster) bool {
	var want bytes.Buffer
	if err := h.machine.Fork().WriteSnapshot(&want); err != nil {
		h.fault("%v", err)
	}
	for _, n := range c.nodes {
		r := n.replica()
		if r == nil {
			continue
		}
		var got bytes.Buffer
		if err := r.Fork().WriteSnapshot(&got); err != nil {
			h.fault("%s: %v", n.id, err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			return false
		}
	}
	return true
}
