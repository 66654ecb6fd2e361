package client

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// ackBatch is how many outcomes may wait for the next request to acknowledge them. With more, the
	// client sends a separate request.
	ackBatch = 64
	// ackMost bounds the acknowledgements in one request.
	ackMost = 512
)

// addCall adds a call to the session. The call is numbered when it is first sent.
func (s *Session) addCall(k *call) {
	k.session = s
	k.request.SessionId = s.id
	s.unsent.push(k)
}

// number assigns a call its sequence number, with which the cluster executes it exactly once. Numbers
// follow the order of sending. If they were assigned earlier, requests waiting to be sent would hold back
// the mark while others overtake them, until the session's window is full.
func (s *Session) number(k *call) {
	s.unsent.remove(k)
	k.request.Seq = s.nextSeq
	s.nextSeq++
	s.unanswered.push(k)
	if a := k.acquired; a != nil && a.acquire.Owner == 0 {
		a.acquire.Owner = k.request.Seq
	}
}

// renumber resends a call that was refused because the session's window is full. The call was not executed
// and is not remembered, so it may take a new number. Under its old number it would hold back the mark and
// thus keep the window full.
func (s *Session) renumber(k *call) {
	s.clearNumber(k)
	s.client.again(k)
}

// clearNumber makes an answered request unsent again, so that it gets a new sequence number.
func (s *Session) clearNumber(k *call) {
	s.removeFromLists(k)
	k.request.Seq = 0
	s.unsent.push(k)
}

// removeFromLists removes an answered request from the session's lists.
func (s *Session) removeFromLists(k *call) {
	if k.sessionList != nil {
		k.sessionList.remove(k)
	}
	if k.queued {
		delete(s.waits, k.request.Seq)
		k.queued = false
	}
}

// mark returns the low-water mark: every request below it has had its first answer.
func (s *Session) mark() uint64 {
	if s.unanswered.head == nil {
		return s.nextSeq
	}
	return s.unanswered.head.request.Seq
}

// stamp writes the acknowledgements into a request. Only outcomes below the mark are acknowledged: there a
// late duplicate is answered STALE and never executed again.
func (s *Session) stamp(k *call) {
	mark := s.mark()
	k.request.AckedBelow = mark
	if len(s.acks) == 0 || len(k.request.Acked) > 0 {
		return
	}
	s.acks = slices.DeleteFunc(s.acks, func(seq uint64) bool {
		take := seq < mark && len(k.request.Acked) < ackMost
		if take {
			k.request.Acked = append(k.request.Acked, seq)
		}
		return take
	})
}

// forget removes a finished call from the session. Acknowledgements that it carried without effect are left
// to another request.
func (s *Session) forget(k *call) {
	if k.sessionList != nil {
		k.sessionList.remove(k)
	}
	if k.queued {
		delete(s.waits, k.request.Seq)
	}
	if len(k.request.Acked) > 0 {
		s.acks = append(s.acks, k.request.Acked...)
		k.request.Acked = nil
	}
	if k.kind == kindExtend {
		k.hold.held.endExtend(k)
	}
	switch k {
	case s.acknowledging:
		s.acknowledging = nil
	case s.heartbeat:
		s.heartbeat = nil
	}
}

// acknowledge records that the outcome of a request that had waited has arrived.
func (s *Session) acknowledge(seq uint64) {
	if s.state == Lost || slices.Contains(s.acks, seq) {
		return
	}
	s.acks = append(s.acks, seq)
	if len(s.acks) <= ackBatch || s.acknowledging != nil || slices.Min(s.acks) >= s.mark() {
		return
	}
	s.acknowledging = &call{kind: kindAcknowledge, session: s}
	s.acknowledging.request.SessionId = s.id
	s.acknowledging.request.Body = &wire.Request_Acknowledge{Acknowledge: &wire.Acknowledge{}}
	s.client.submit(s.acknowledging)
}

// answered processes the answer to one of the session's requests.
func (s *Session) answered(cn *conn, k *call, result *wire.Result) {
	status := result.GetStatus()
	if status == wire.Status_SESSION_LOST {
		s.gone(lostAnswer(result))
		return
	}
	if s.closing == nil && !s.alive() {
		return
	}
	before := s.proofAt
	if proves(status) {
		s.proved(k.sentAt)
		k.request.Acked = nil
	}
	if k.kind == kindAttach {
		s.attached(cn, k, result, before)
		return
	}
	if k.kind == kindAcquire || k.kind == kindUpgrade {
		if err := k.mismatch(result); err != nil {
			s.misanswered(k, err)
			return
		}
	}
	s.dispatch(k, result)
}

// dispatch processes an answer according to the kind of the request.
func (s *Session) dispatch(k *call, result *wire.Result) {
	status := result.GetStatus()
	switch k.kind {
	case kindHeartbeat:
		s.heartbeatAnswered(k, status)
	case kindClose:
		s.closeAnswered(k, status)
	case kindAcquire, kindUpgrade:
		s.acquireAnswered(k, result)
	case kindCancel:
		s.cancelAnswered(k, result)
	case kindRelease:
		k.hold.releaseAnswered(k, result)
	case kindSetValue:
		k.hold.setValueAnswered(k, result)
	case kindDowngrade:
		k.hold.downgradeAnswered(k, result)
	case kindExtend:
		k.hold.extendAnswered(k, result)
	default:
		s.client.finish(k)
	}
}

func (s *Session) heartbeatAnswered(k *call, status wire.Status_Code) {
	if status == wire.Status_OK {
		// A heartbeat that was due while this one was unanswered has been skipped: it is sent now.
		s.heartbeatAt = s.proofAt + s.interval()
		s.wakeBy(s.heartbeatAt)
	} else {
		s.heartbeatFailed()
	}
	s.client.finish(k)
}

func (s *Session) closeAnswered(k *call, status wire.Status_Code) {
	if status != wire.Status_OK {
		s.client.again(k)
		return
	}
	s.leave(nil)
}

// attach attaches the session to the current connection.
func (s *Session) attach() {
	c := s.client
	if s.attaching != nil || s.conn != nil && s.conn == c.conn {
		return
	}
	s.attaching = &call{kind: kindAttach, session: s}
	s.attaching.request.SessionId = s.id
	s.attaching.request.Body = &wire.Request_Attach{Attach: &wire.AttachRequest{Secret: s.secret}}
	c.submit(s.attaching)
}

// attached processes the answer to an attach: the session is resumed, or cannot be. before is the sending
// time of the last request that was acknowledged before this answer.
func (s *Session) attached(cn *conn, k *call, result *wire.Result, before time.Duration) {
	c := s.client
	switch result.GetStatus() {
	case wire.Status_OK:
	case wire.Status_PERMISSION_DENIED:
		s.gone(fmt.Errorf("%w: %w", ErrSessionLost, statusError(result)))
		return
	default:
		c.again(k)
		return
	}
	s.attaching = nil
	s.conn = cn
	c.finish(k)
	if s.state != Lost {
		s.resumed = resumption{sentAt: k.sentAt, revision: result.GetRevision()}
		s.reconcile(result, before)
	}
	for n := s.parked.n; n > 0; n-- {
		c.place(s.parked.pop())
	}
}

// reconcile compares the cluster's state of the session with the client's. The answer does not reflect
// changes at higher revisions than its own.
func (s *Session) reconcile(result *wire.Result, before time.Duration) {
	state := result.GetSession()
	clear(s.early)
	s.resumed.holds = make(map[uint64]bool, len(state.GetHolds()))
	for _, h := range state.GetHolds() {
		s.resumed.holds[h.GetHoldId()] = true
		s.adoptHold(h, before)
	}
	for d := range s.holds.all {
		if !s.resumed.holds[d.id] && d.revision <= result.GetRevision() {
			d.missing()
		}
	}
	known := make(map[uint64]bool, len(state.GetOutcomes()))
	for _, outcome := range state.GetOutcomes() {
		known[outcome.GetSeq()] = true
		s.pushed(outcome, before)
	}
	for seq, k := range s.waits {
		if !known[seq] && k.revision <= result.GetRevision() {
			delete(s.waits, seq)
			k.queued = false
			s.unanswered.insert(k)
			s.client.place(k)
		}
	}
	if s.unanswered.n == 0 {
		s.resumed.holds = nil
	}
}

// missing ends a hold that the cluster no longer lists. If it is being released, the answer to the release
// removes it.
func (d *held) missing() {
	d.lose(errMissing)
	if !d.releasing() {
		d.forget()
	}
}

// adoptHold processes a hold listed in the answer to an attach. A hold without a caller is released:
// nothing may remain held unnoticed.
func (s *Session) adoptHold(held *wire.HeldLock, before time.Duration) {
	if d := s.holds.find(held.GetHoldId()); d != nil {
		d.noticed(held.GetWanted(), held.GetRevocation(), false, func(grace uint32) time.Duration { return untilOf(before, grace) })
		return
	}
	if s.waits[held.GetSeq()] != nil || s.open(held.GetSeq()) {
		return
	}
	s.client.note(slog.LevelWarn, "releasing a hold that nobody asked for", "session", s.id, "lock", held.GetName())
	h := newHold(s, held.GetName(), held.GetHoldId(), held.GetToken(), held.GetRevision())
	h.held.orphan = true
	h.startRelease()
}

// open reports whether the request with that number has not had its first answer.
func (s *Session) open(seq uint64) bool {
	for k := s.unanswered.head; k != nil; k = k.links[sessionList].next {
		if k.request.Seq == seq {
			return true
		}
	}
	return false
}

// pushed processes the outcome of a request that was QUEUED. It may arrive any number of times. If the
// request has not had its first answer yet, that answer is awaited instead. The outcome happened after
// since.
func (s *Session) pushed(result *wire.Result, since time.Duration) {
	seq := result.GetSeq()
	k := s.waits[seq]
	switch {
	case result.GetStatus() == wire.Status_QUEUED:
	case k != nil:
		if err := k.mismatch(result); err != nil {
			s.misanswered(k, err)
			return
		}
		s.outcome(k, result, since)
	case seq == 0 || seq >= s.nextSeq || s.open(seq):
	default:
		s.acknowledge(seq)
	}
}
