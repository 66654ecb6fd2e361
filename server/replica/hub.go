package replica

import (
	"sync"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Sink is where a session's pushes go. Push must not block.
type Sink interface{ Push(*wire.Push) }

// hub knows who is told what. It is open during a reign; publish runs on the completer
// only, so pushes go out in log order.
type hub struct {
	// view shows the machine, which has applied at least what is published.
	view func(func(*fsm.Machine))

	mu     sync.Mutex
	open   bool
	sinks  map[uint64]Sink
	awaits map[request]map[*await]struct{}
}

type request struct{ session, seq uint64 }

// await is one caller that waits for a request's final outcome.
type await struct{ done func(*wire.Result) }

func newHub(view func(func(*fsm.Machine))) *hub {
	return &hub{view: view, sinks: map[uint64]Sink{}, awaits: map[request]map[*await]struct{}{}}
}

// begin opens the hub, when nothing of an older reign can be published any more.
func (h *hub) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = true
}

// end closes it. A grant whose future is lost would reach nobody: every session has to
// attach again, and every await to ask again.
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

// publish tells whom an entry's events concern.
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
			if e.Status != wire.Status_SESSION_LOST { // otherwise the session's own end says it
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

// endOf is why a session ended that its client did not close.
func endOf(e *wire.Event) wire.SessionLost_Reason {
	if e.Restored {
		return wire.SessionLost_RESTORED
	}
	return wire.SessionLost_EXPIRED
}

// outcome delivers the final outcome of a request that had waited. A wait that ended
// with its session is not pushed: the session's own end says it.
func (h *hub) outcome(e *wire.Event, status wire.Status_Code) {
	told := &struct { // in one piece of memory
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

// holdLost says that a hold ended without its holder, whose session lives.
func (h *hub) holdLost(e *wire.Event, reason wire.HoldLost_Reason) {
	h.push(&wire.Push{SessionId: e.SessionId, Body: &wire.Push_HoldLost{HoldLost: &wire.HoldLost{
		HoldId: e.HoldId, Token: e.Token, Reason: reason, Message: e.Reason,
	}}})
}

// notice says that others want a hold.
func (h *hub) notice(e *wire.Event, n *wire.HoldNotice) {
	n.HoldId, n.Token = e.HoldId, e.Token
	h.push(&wire.Push{SessionId: e.SessionId, Body: &wire.Push_HoldNotice{HoldNotice: n}})
}

// revocation is that of the hold now, which an answer to attach would tell, too; or else
// what the event says of it.
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

// count is how many acquires a hold counts that was granted after waiting: a new one
// counts one.
func (h *hub) count(e *wire.Event) uint32 {
	if !e.Upgrade {
		return 1
	}
	known := &wire.Result{}
	h.view(func(m *fsm.Machine) { known, _ = m.Outcome(e.SessionId, e.Seq) })
	return max(1, known.GetCount())
}

// push reaches the sink of the session, if one is bound. Who is not connected learns it
// from the answer to its next attach.
func (h *hub) push(p *wire.Push) {
	h.mu.Lock()
	sink := h.sinks[p.SessionId]
	h.mu.Unlock()
	if sink != nil {
		sink.Push(p)
	}
}

// lost is the last word about a session.
func (h *hub) lost(session uint64, reason wire.SessionLost_Reason) {
	h.mu.Lock()
	sink := h.sinks[session]
	delete(h.sinks, session)
	h.mu.Unlock()
	if sink != nil {
		sink.Push(lostPush(session, reason))
	}
}

// Bind sends the session's pushes to s from now on. A sink bound before gets
// SessionLost{SUPERSEDED} for it. Bindings end with the reign: every bound session
// then gets a push with an (often empty) leader hint and has to be attached anew,
// also if this same node leads again.
func (r *Replica) Bind(session uint64, s Sink) { r.hub.bind(session, s) }

// Unbind ends the binding unless another sink took the session over.
func (r *Replica) Unbind(session uint64, s Sink) { r.hub.unbind(session, s) }

// Await calls done once with the final outcome of a request that is QUEUED or is
// about to be: register before the propose. cancel ends it; done may still run at the
// same moment. If the reign ends first, done gets UNCERTAIN.
func (r *Replica) Await(session, seq uint64, done func(*wire.Result)) (cancel func()) {
	return r.hub.await(session, seq, done)
}
