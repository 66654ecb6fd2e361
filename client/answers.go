package client

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// ackBatch is how many outcomes wait for the next request to acknowledge them;
	// with more, they get a request of their own.
	ackBatch = 64
	// ackMost bounds the acknowledgements in one request.
	ackMost = 512
)

// enlist takes a call into the session's books. It is numbered when it is first sent.
func (s *Session) enlist(k *call) {
	k.session = s
	k.request.SessionId = s.id
	s.unsent.push(k)
}

// number gives a call its sequence number: the promise that it is executed once. Numbers
// follow the order of sending. Were they given earlier, requests that wait in line would
// hold the mark back while others overtake them, until the session's window is full.
func (s *Session) number(k *call) {
	s.unsent.remove(k)
	k.request.Seq = s.nextSeq
	s.nextSeq++
	s.unanswered.push(k)
	if a := k.acquired; a != nil && a.acquire.Owner == 0 {
		a.acquire.Owner = k.request.Seq
	}
}

// renumber sends a call once more that was refused because the session's window is full.
// It was not executed and is not remembered, so that it may take another number; under its
// own it would hold the mark, and with it the window, as it is.
func (s *Session) renumber(k *call) {
	s.unnumber(k)
	s.client.again(k)
}

// unnumber makes another request of one that was answered.
func (s *Session) unnumber(k *call) {
	s.unbook(k)
	k.request.Seq = 0
	s.unsent.push(k)
}

// unbook takes a request that has had its answer out of the session's books.
func (s *Session) unbook(k *call) {
	if k.books != nil {
		k.books.remove(k)
	}
	if k.queued {
		delete(s.waits, k.request.Seq)
		k.queued = false
	}
}

// mark is the low-water mark: every request below has had its first answer.
func (s *Session) mark() uint64 {
	if s.unanswered.head == nil {
		return s.nextSeq
	}
	return s.unanswered.head.request.Seq
}

// stamp writes the acknowledgements into a request. Only outcomes below the mark are
// acknowledged: there a late duplicate is STALE and never executed again.
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

// forget takes a finished call out of the session's books. What it should have
// acknowledged and did not is left to another.
func (s *Session) forget(k *call) {
	if k.books != nil {
		k.books.remove(k)
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

// acknowledge notes that the outcome of a request that had waited has arrived.
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

// answered books the answer to one of the session's requests.
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

// dispatch books the answer to a request by what was asked.
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
	if status != wire.Status_OK {
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

// attach takes the session to the present connection.
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

// attached resumes the session, or learns that it cannot be. before is the last proof
// of life ahead of this answer.
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

// reconcile compares what the cluster says of the session with what we know of it.
// What came after that answer, by its revision, it cannot know.
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

// missing ends a hold that the cluster does not name any more. One that is being
// released is left to that answer.
func (d *held) missing() {
	d.lose(errMissing)
	if !d.releasing() {
		d.forget()
	}
}

// adoptHold looks at a hold that an attach's answer names. One that nobody here knows of
// is given back: nothing may stay held silently.
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

// open says whether the request of that number has not had its first answer.
func (s *Session) open(seq uint64) bool {
	for k := s.unanswered.head; k != nil; k = k.links[books].next {
		if k.request.Seq == seq {
			return true
		}
	}
	return false
}

// pushed books the outcome of a request that was QUEUED. It may come any number of
// times; one whose request has not been answered yet is left to that answer.
// What it tells happened after since.
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
