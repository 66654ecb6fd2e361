package notify

import (
	"sync"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Sink is the receiver of a session's pushes. Push must not block.
type Sink interface{ Push(*wire.Push) }

// Notifier delivers the outcomes of waits and other pushes. It is open while this node serves. Publish is called
// on one goroutine only, so pushes go out in log order. All methods are safe for concurrent use.
type Notifier struct {
	view func(func(*fsm.Machine))

	mu     sync.Mutex
	open   bool
	sinks  map[uint64]Sink
	awaits map[request]map[*await]struct{}
}

type request struct{ session, seq uint64 }

// await is a caller that waits for the final outcome of a request.
type await struct{ done func(*wire.Result) }

// New returns a closed notifier. view calls its argument with the state machine, which has applied at least
// the events that are being published.
func New(view func(func(*fsm.Machine))) *Notifier {
	return &Notifier{view: view, sinks: map[uint64]Sink{}, awaits: map[request]map[*await]struct{}{}}
}

// Open opens the notifier. By then, nothing of an older leadership can be published any more.
func (n *Notifier) Open() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = true
}

// Close closes the notifier. A grant whose future was lost would not be delivered, so every session has to attach
// again, and every await has to be repeated.
func (n *Notifier) Close(hint *wire.LeaderHint) {
	n.mu.Lock()
	sinks, awaits := n.sinks, n.awaits
	n.sinks, n.awaits, n.open = map[uint64]Sink{}, map[request]map[*await]struct{}{}, false
	n.mu.Unlock()
	for session, s := range sinks {
		s.Push(moved(session, hint))
	}
	for _, waiting := range awaits {
		answerAwaits(waiting, &wire.Result{Status: wire.Status_UNCERTAIN,
			Message: "leadership was lost while the request was waiting: send it again, it keeps its place in the queue"})
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

// Bind makes s the receiver of the session's pushes. A previously bound sink gets SessionLost{SUPERSEDED}. If
// the notifier is closed, s gets an empty leader hint and is not bound.
func (n *Notifier) Bind(session uint64, s Sink) {
	n.mu.Lock()
	old, open := n.sinks[session], n.open
	if open {
		n.sinks[session] = s
	}
	n.mu.Unlock()
	if !open {
		s.Push(moved(session, &wire.LeaderHint{}))
		return
	}
	if old != nil && old != s {
		old.Push(lostPush(session, wire.SessionLost_SUPERSEDED))
	}
}

// Unbind removes the binding, unless another sink has taken over the session.
func (n *Notifier) Unbind(session uint64, s Sink) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sinks[session] == s {
		delete(n.sinks, session)
	}
}

func lostPush(session uint64, reason wire.SessionLost_Reason) *wire.Push {
	return &wire.Push{SessionId: session, Body: &wire.Push_Lost{Lost: &wire.SessionLost{Reason: reason}}}
}

// Await calls done once with the final outcome of a request. cancel stops waiting, but done may be running
// concurrently. If the notifier is or gets closed, done gets NOT_LEADER or UNCERTAIN.
func (n *Notifier) Await(session, seq uint64, done func(*wire.Result)) (cancel func()) {
	key, a := request{session, seq}, &await{done}
	n.mu.Lock()
	if !n.open {
		n.mu.Unlock()
		done(&wire.Result{Status: wire.Status_NOT_LEADER})
		return func() {}
	}
	if n.awaits[key] == nil {
		n.awaits[key] = map[*await]struct{}{}
	}
	n.awaits[key][a] = struct{}{}
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.awaits[key], a)
		if len(n.awaits[key]) == 0 {
			delete(n.awaits, key)
		}
	}
}

// Publish delivers the events of an entry to the sessions and awaits that they concern.
func (n *Notifier) Publish(events []*wire.Event) {
	for _, e := range events {
		switch e.Type {
		case wire.Event_GRANTED:
			if e.Waited {
				n.outcome(e, wire.Status_GRANTED)
			}
		case wire.Event_CANCELLED:
			n.outcome(e, e.Status)
		case wire.Event_EXPIRED:
			if e.Status != wire.Status_SESSION_LOST { // otherwise the push for the session's own end covers it
				n.holdLost(e, wire.HoldLost_EXPIRED)
			}
		case wire.Event_FORCED:
			n.holdLost(e, wire.HoldLost_FORCED)
		case wire.Event_WANTED:
			n.notice(e, &wire.HoldNotice{Wanted: true})
		case wire.Event_REVOKED:
			n.notice(e, &wire.HoldNotice{Revocation: n.revocation(e)})
		case wire.Event_SESSION_EXPIRED:
			n.lost(e.SessionId, endOf(e))
		case wire.Event_SESSION_CLOSED:
			n.lost(e.SessionId, closeOf(e))
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

// closeOf returns whether the client or an operator closed a session.
func closeOf(e *wire.Event) wire.SessionLost_Reason {
	if e.Reason != "" {
		return wire.SessionLost_FORCED
	}
	return wire.SessionLost_CLOSED
}

// outcome delivers the final outcome of a request that has waited. If the wait ended with its session,
// nothing is pushed: the push for the session's end covers it.
func (n *Notifier) outcome(e *wire.Event, status wire.Status_Code) {
	told := &struct { // one allocation
		push   wire.Push
		body   wire.Push_Outcome
		result wire.Result
	}{}
	result := &told.result
	result.Status, result.Seq, result.Revision = status, e.Seq, e.Revision
	result.Digest, result.Name = e.Digest, e.Lock
	if status == wire.Status_GRANTED {
		result.HoldId, result.Token, result.Count = e.HoldId, e.Token, n.count(e)
	}
	if status == wire.Status_NOT_HELD {
		result.Message = e.Reason
	}
	if status == wire.Status_SESSION_LOST {
		n.view(func(m *fsm.Machine) {
			ended := m.SessionLost(e.SessionId)
			result.Message, result.Restored = ended.Message, ended.Restored
		})
	}
	n.mu.Lock()
	key := request{e.SessionId, e.Seq}
	waiting, sink := n.awaits[key], n.sinks[e.SessionId]
	delete(n.awaits, key)
	n.mu.Unlock()
	answerAwaits(waiting, result)
	if sink != nil && status != wire.Status_SESSION_LOST {
		told.body.Outcome, told.push.SessionId, told.push.Body = result, e.SessionId, &told.body
		sink.Push(&told.push)
	}
}

// holdLost notifies the holder that its hold was ended, while its session is alive.
func (n *Notifier) holdLost(e *wire.Event, reason wire.HoldLost_Reason) {
	n.push(&wire.Push{SessionId: e.SessionId, Body: &wire.Push_HoldLost{HoldLost: &wire.HoldLost{
		HoldId: e.HoldId, Token: e.Token, Reason: reason, Message: e.Reason,
	}}})
}

// notice notifies the holder that others want the hold.
func (n *Notifier) notice(e *wire.Event, notice *wire.HoldNotice) {
	notice.HoldId, notice.Token = e.HoldId, e.Token
	n.push(&wire.Push{SessionId: e.SessionId, Body: &wire.Push_HoldNotice{HoldNotice: notice}})
}

// Recall notifies a session again of its cached holds for which others wait.
func (n *Notifier) Recall(session uint64, notices []*wire.HoldNotice) {
	for _, notice := range notices {
		n.push(&wire.Push{SessionId: session, Body: &wire.Push_HoldNotice{HoldNotice: notice}})
	}
}

// revocation returns the current revocation of the hold, as an answer to attach would contain it, or else
// what the event contains.
func (n *Notifier) revocation(e *wire.Event) (known *wire.Revocation) {
	n.view(func(m *fsm.Machine) {
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
func (n *Notifier) count(e *wire.Event) uint32 {
	if !e.Upgrade {
		return 1
	}
	known := &wire.Result{}
	n.view(func(m *fsm.Machine) { known, _ = m.Outcome(e.SessionId, e.Seq) })
	return max(1, known.GetCount())
}

// push delivers to the session's sink, if one is bound. A client that is not connected learns the same from
// the answer to its next attach.
func (n *Notifier) push(p *wire.Push) {
	n.mu.Lock()
	sink := n.sinks[p.SessionId]
	n.mu.Unlock()
	if sink != nil {
		sink.Push(p)
	}
}

// lost delivers the last push of a session and removes its binding.
func (n *Notifier) lost(session uint64, reason wire.SessionLost_Reason) {
	n.mu.Lock()
	sink := n.sinks[session]
	delete(n.sinks, session)
	n.mu.Unlock()
	if sink != nil {
		sink.Push(lostPush(session, reason))
	}
}
