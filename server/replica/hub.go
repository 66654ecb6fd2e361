package replica

import (
	"sync"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Sink is the receiver of a session's pushes. Push must not block.
type Sink interface{ Push(*wire.Push) }

// hub is the notifier: it delivers the outcomes of waits and other pushes. It is open while this node serves.
// publish runs only on the completer, so pushes go out in log order.
type hub struct {
	// view calls its argument with the state machine, which has applied at least the events that are being
	// published.
	view func(func(*fsm.Machine))

	mu     sync.Mutex
	open   bool
	sinks  map[uint64]Sink
	awaits map[request]map[*await]struct{}
}

type request struct{ session, seq uint64 }

// await is a caller that waits for the final outcome of a request.
type await struct{ done func(*wire.Result) }

func newHub(view func(func(*fsm.Machine))) *hub {
	return &hub{view: view, sinks: map[uint64]Sink{}, awaits: map[request]map[*await]struct{}{}}
}

// begin opens the hub. By then, nothing of an older leadership can be published any more.
func (h *hub) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = true
}

// end closes the hub. A grant whose future was lost would not be delivered, so every session has to attach
// again, and every await has to be repeated.
func (h *hub) end(hint *wire.LeaderHint) {
	h.mu.Lock()
	sinks, awaits := h.sinks, h.awaits
	h.sinks, h.awaits, h.open = map[uint64]Sink{}, map[request]map[*await]struct{}{}, false
	h.mu.Unlock()
	for session, s := range sinks {
		s.Push(moved(session, hint))
	}
	for _, waiting := range awaits {
		answerAwaits(waiting, refused(wire.Status_UNCERTAIN, "leadership was lost while the request waited; it keeps its place: repeat it"))
	}
}

func moved(session uint64, hint *wire.LeaderHint) *wire.Push {
	return &wire.Push{SessionId: session, Body: &wire.Push_Leader{Leader: hint}}
}

func answerAwaits(waiting map[*await]struct{}, result *wire.Result) {
	for a := range waiting {
		a.done(result)
	}
}

func (h *hub) bind(session uint64, s Sink) {
	h.mu.Lock()
	old, open := h.sinks[session], h.open
	if open {
		h.sinks[session] = s
	}
	h.mu.Unlock()
	if !open {
		s.Push(moved(session, &wire.LeaderHint{}))
		return
	}
	if old != nil && old != s {
		old.Push(lostPush(session, wire.SessionLost_SUPERSEDED))
	}
}

func (h *hub) unbind(session uint64, s Sink) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sinks[session] == s {
		delete(h.sinks, session)
	}
}

func lostPush(session uint64, reason wire.SessionLost_Reason) *wire.Push {
	return &wire.Push{SessionId: session, Body: &wire.Push_Lost{Lost: &wire.SessionLost{Reason: reason}}}
}

func (h *hub) await(session, seq uint64, done func(*wire.Result)) (cancel func()) {
	key, a := request{session, seq}, &await{done}
	h.mu.Lock()
	if !h.open {
		h.mu.Unlock()
		done(refused(wire.Status_NOT_LEADER, ""))
		return func() {}
	}
	if h.awaits[key] == nil {
		h.awaits[key] = map[*await]struct{}{}
	}
	h.awaits[key][a] = struct{}{}
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.awaits[key], a)
		if len(h.awaits[key]) == 0 {
			delete(h.awaits, key)
		}
	}
}

// publish delivers the events of an entry to the sessions and awaits that they concern.
func (h *hub) publish(events []*wire.Event) {
	for _, e := range events {
		switch e.Type {
		case wire.Event_GRANTED:
			if e.Waited {
				h.outcome(e, wire.Status_GRANTED)
			}
		case wire.Event_CANCELLED:
			h.outcome(e, e.Status)
		case wire.Event_EXPIRED:
			if e.Status != wire.Status_SESSION_LOST { // otherwise the push for the session's own end covers it
				h.holdLost(e, wire.HoldLost_EXPIRED)
			}
		case wire.Event_FORCED:
			h.holdLost(e, wire.HoldLost_FORCED)
		case wire.Event_WANTED:
			h.notice(e, &wire.HoldNotice{Wanted: true})
		case wire.Event_REVOKED:
			h.notice(e, &wire.HoldNotice{Revocation: h.revocation(e)})
		case wire.Event_SESSION_EXPIRED:
			h.lost(e.SessionId, endOf(e))
		case wire.Event_SESSION_CLOSED:
			h.lost(e.SessionId, wire.SessionLost_CLOSED)
		}
	}
}

// endOf returns why a session ended that its client did not close.
func endOf(e *wire.Event) wire.SessionLost_Reason {
	if e.Restored {
		return wire.SessionLost_RESTORED
	}
	return wire.SessionLost_EXPIRED
}

// outcome delivers the final outcome of a request that has waited. If the wait ended with its session,
// nothing is pushed: the push for the session's end covers it.
func (h *hub) outcome(e *wire.Event, status wire.Status_Code) {
	told := &struct { // one allocation
		push   wire.Push
		body   wire.Push_Outcome
		result wire.Result
	}{}
	result := &told.result
	result.Status, result.Seq, result.Revision = status, e.Seq, e.Revision
	result.Digest, result.Name = e.Digest, e.Lock
	if status == wire.Status_GRANTED {
		result.HoldId, result.Token, result.Count = e.HoldId, e.Token, h.count(e)
	}
	if status == wire.Status_NOT_HELD {
		result.Message = e.Reason
	}
	if status == wire.Status_SESSION_LOST {
		h.view(func(m *fsm.Machine) {
			ended := m.SessionLost(e.SessionId)
			result.Message, result.Restored = ended.Message, ended.Restored
		})
	}
	h.mu.Lock()
	key := request{e.SessionId, e.Seq}
	waiting, sink := h.awaits[key], h.sinks[e.SessionId]
	delete(h.awaits, key)
	h.mu.Unlock()
	answerAwaits(waiting, result)
	if sink != nil && status != wire.Status_SESSION_LOST {
		told.body.Outcome, told.push.SessionId, told.push.Body = result, e.SessionId, &told.body
		sink.Push(&told.push)
	}
}

// holdLost notifies the holder that its hold was ended, while its session is alive.
func (h *hub) holdLost(e *wire.Event, reason wire.HoldLost_Reason) {
	h.push(&wire.Push{SessionId: e.SessionId, Body: &wire.Push_HoldLost{HoldLost: &wire.HoldLost{
		HoldId: e.HoldId, Token: e.Token, Reason: reason, Message: e.Reason,
	}}})
}

// notice notifies the holder that others want the hold.
func (h *hub) notice(e *wire.Event, n *wire.HoldNotice) {
	n.HoldId, n.Token = e.HoldId, e.Token
	h.push(&wire.Push{SessionId: e.SessionId, Body: &wire.Push_HoldNotice{HoldNotice: n}})
}

// revocation returns the current revocation of the hold, as an answer to attach would contain it, or else
// what the event contains.
func (h *hub) revocation(e *wire.Event) (known *wire.Revocation) {
	h.view(func(m *fsm.Machine) {
		for _, held := range m.HoldsOf(e.SessionId) {
			if held.HoldId == e.HoldId {
				known = held.Revocation
			}
		}
	})
	if known == nil {
		known = &wire.Revocation{Reason: e.Reason, GraceMs: e.MaxHoldMs}
	}
	return known
}

// count returns how many acquires a hold counts that was granted after waiting. A new hold counts one.
func (h *hub) count(e *wire.Event) uint32 {
	if !e.Upgrade {
		return 1
	}
	known := &wire.Result{}
	h.view(func(m *fsm.Machine) { known, _ = m.Outcome(e.SessionId, e.Seq) })
	return max(1, known.GetCount())
}

// push delivers to the session's sink, if one is bound. A client that is not connected learns the same from
// the answer to its next attach.
func (h *hub) push(p *wire.Push) {
	h.mu.Lock()
	sink := h.sinks[p.SessionId]
	h.mu.Unlock()
	if sink != nil {
		sink.Push(p)
	}
}

// lost delivers the last push of a session and removes its binding.
func (h *hub) lost(session uint64, reason wire.SessionLost_Reason) {
	h.mu.Lock()
	sink := h.sinks[session]
	delete(h.sinks, session)
	h.mu.Unlock()
	if sink != nil {
		sink.Push(lostPush(session, reason))
	}
}

// Bind makes s the receiver of the session's pushes. A previously bound sink gets SessionLost{SUPERSEDED} for
// the session. Bindings end with the leadership: every bound session then gets a push with a leader hint,
// which may be empty, and has to attach again, even if the same node leads again.
func (r *Replica) Bind(session uint64, s Sink) { r.hub.bind(session, s) }

// Unbind removes the binding, unless another sink has taken over the session.
func (r *Replica) Unbind(session uint64, s Sink) { r.hub.unbind(session, s) }

// Await calls done once with the final outcome of a request that is QUEUED or about to be: call it before
// proposing the request. cancel stops waiting, but done may be running concurrently. If the leadership ends
// first, done gets UNCERTAIN.
func (r *Replica) Await(session, seq uint64, done func(*wire.Result)) (cancel func()) {
	return r.hub.await(session, seq, done)
}
