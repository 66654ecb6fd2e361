package client

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// window numbers the requests of a session and acknowledges their outcomes. It is guarded by the client's
// mutex.
type window struct {
	session *Session

	nextSeq       uint64
	unsent        callList         // requests without a sequence number yet
	unanswered    callList         // by seq; the first is the low-water mark
	waits         map[uint64]*call // acquires that were QUEUED, by seq
	acks          []uint64         // outcomes to be acknowledged one by one
	acknowledging *call
}

// attachment is the connection that a session is attached to, and what the answer to the last attach
// reported. It is guarded by the client's mutex.
type attachment struct {
	session *Session

	conn      *conn    // nil if none
	seen      position // the latest position in the cluster's history known when conn was given up
	attaching *call
	resumed   resumption
	parked    callList // requests that wait until the session is attached
}

// addCall adds a call to the session. The call is numbered when it is first sent.
func (w *window) addCall(k *call) {
	k.session = w.session
	k.request.SessionId = w.session.id
	w.unsent.push(k)
}

// number assigns a call its sequence number, with which the cluster executes it exactly once. Numbers
// follow the order of sending. If they were assigned earlier, requests waiting to be sent would hold back
// the mark while others overtake them, until the session's window is full.
func (w *window) number(k *call) {
	w.unsent.remove(k)
	k.request.Seq = w.nextSeq
	w.nextSeq++
	w.unanswered.push(k)
	if a := k.acquired; a != nil && a.acquire.Owner == 0 {
		a.acquire.Owner = k.request.Seq
	}
}

// renumber resends a call that was refused because the session's window is full. The call was not executed
// and is not remembered, so it may take a new number. Under its old number it would hold back the mark and
// thus keep the window full.
func (w *window) renumber(k *call) {
	w.clearNumber(k)
	w.session.client.again(k)
}

// clearNumber makes an answered request unsent again, so that it gets a new sequence number.
func (w *window) clearNumber(k *call) {
	w.removeFromLists(k)
	k.request.Seq = 0
	w.unsent.push(k)
}

// removeFromLists removes an answered request from the session's lists.
func (w *window) removeFromLists(k *call) {
	if k.sessionList != nil {
		k.sessionList.remove(k)
	}
	if k.queued {
		delete(w.waits, k.request.Seq)
		k.queued = false
	}
}

// mark returns the low-water mark: every request below it has had its first answer.
func (w *window) mark() uint64 {
	if w.unanswered.head == nil {
		return w.nextSeq
	}
	return w.unanswered.head.request.Seq
}

// stamp writes the acknowledgements into a request. Only outcomes below the mark are acknowledged: there a
// late duplicate is answered STALE and never executed again.
func (w *window) stamp(k *call) {
	mark := w.mark()
	k.request.AckedBelow = mark
	if len(w.acks) == 0 || len(k.request.Acked) > 0 {
		return
	}
	w.acks = slices.DeleteFunc(w.acks, func(seq uint64) bool {
		take := seq < mark && len(k.request.Acked) < ackMost
		if take {
			k.request.Acked = append(k.request.Acked, seq)
		}
		return take
	})
}

// forget removes a finished call from the session. Acknowledgements that it carried without effect are left
// to another request.
func (w *window) forget(k *call) {
	if k.sessionList != nil {
		k.sessionList.remove(k)
	}
	if k.queued {
		delete(w.waits, k.request.Seq)
	}
	if len(k.request.Acked) > 0 {
		w.acks = append(w.acks, k.request.Acked...)
		k.request.Acked = nil
	}
	if k.kind == kindExtend {
		k.hold.held.endExtend(k)
	}
	switch k {
	case w.acknowledging:
		w.acknowledging = nil
	case w.session.heartbeat:
		w.session.heartbeat = nil
	}
}

// acknowledge records that the outcome of a request that had waited has arrived.
func (w *window) acknowledge(seq uint64) {
	if w.session.state == Lost || slices.Contains(w.acks, seq) {
		return
	}
	w.acks = append(w.acks, seq)
	if len(w.acks) <= ackBatch || w.acknowledging != nil || slices.Min(w.acks) >= w.mark() {
		return
	}
	w.acknowledging = &call{kind: kindAcknowledge, session: w.session}
	w.acknowledging.request.SessionId = w.session.id
	w.acknowledging.request.Body = &wire.Request_Acknowledge{Acknowledge: &wire.Acknowledge{}}
	w.session.client.submit(w.acknowledging)
}

// answered processes the answer to one of the session's requests.
func (s *Session) answered(cn *conn, k *call, resp *wire.Response) {
	result := resp.GetResult()
	status := result.GetStatus()
	if status == wire.Status_SESSION_LOST {
		s.gone(lostAnswer(resp))
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
		s.attached(cn, k, resp, before)
		return
	}
	if k.kind == kindHeartbeat && status == wire.Status_OK && s.known.contradicts(resp.GetTerm(), resp.GetNonce(), result.GetRevision()) {
		s.rolledBack()
		return
	}
	if k.kind.policy().claims {
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

func (l *lifetime) heartbeatAnswered(k *call, status wire.Status_Code) {
	if status == wire.Status_OK {
		// A heartbeat that was due while this one was unanswered has been skipped: it is sent now.
		l.heartbeatAt = l.proofAt + l.interval()
		l.wakeBy(l.heartbeatAt)
	} else {
		l.heartbeatFailed()
	}
	l.session.client.finish(k)
}

func (s *Session) closeAnswered(k *call, status wire.Status_Code) {
	if status != wire.Status_OK {
		s.client.again(k)
		return
	}
	s.leave(nil)
}

// attach attaches the session to the current connection.
func (a *attachment) attach() {
	c := a.session.client
	if a.attaching != nil || a.conn != nil && a.conn == c.conn {
		return
	}
	a.attaching = &call{kind: kindAttach, session: a.session}
	a.attaching.request.SessionId = a.session.id
	body := &wire.AttachRequest{Secret: a.session.secret}
	if a.session.closing == nil { // a session that only needs to be closed has nothing to lose
		body.Seen = a.seen.message()
	}
	a.attaching.request.Body = &wire.Request_Attach{Attach: body}
	c.submit(a.attaching)
}

// detach gives the session's connection up. All sessions of a connection have seen what its answers have shown.
func (a *attachment) detach() {
	if a.conn != nil {
		a.seen, a.conn = a.conn.seen, nil
	}
}

// attached processes the answer to an attach: the session is resumed, or cannot be. before is the sending
// time of the last request that was acknowledged before this answer.
func (a *attachment) attached(cn *conn, k *call, resp *wire.Response, before time.Duration) {
	c, result := a.session.client, resp.GetResult()
	switch result.GetStatus() {
	case wire.Status_OK:
	case wire.Status_PERMISSION_DENIED:
		if resp.GetRolledBack() { // the id belongs to a session that was opened since then
			a.session.gone(ErrRolledBack)
			return
		}
		a.session.gone(fmt.Errorf("%w: %w", ErrSessionLost, statusError(result)))
		return
	default:
		c.again(k)
		return
	}
	a.attaching = nil
	a.conn = cn
	c.finish(k)
	switch {
	case a.session.state == Lost:
	case resp.GetRolledBack():
		a.session.rolledBack()
	default:
		a.resumed = resumption{sentAt: k.sentAt, revision: result.GetRevision()}
		a.reconcile(result, before)
	}
	for n := a.parked.n; n > 0; n-- {
		c.place(a.parked.pop())
	}
}

// reconcile compares the cluster's state of the session with the client's. The answer does not reflect
// changes at higher revisions than its own.
func (a *attachment) reconcile(result *wire.Result, before time.Duration) {
	state := result.GetSession()
	if a.contradicts(result) {
		a.session.rolledBack()
		return
	}
	clear(a.session.early)
	clear(a.session.notices)
	a.resumed.holds = make(map[uint64]bool, len(state.GetHolds()))
	for _, h := range state.GetHolds() {
		a.resumed.holds[h.GetHoldId()] = true
		a.adoptHold(h, before)
	}
	for d := range a.session.holds.all {
		if !a.resumed.holds[d.id] && d.revision <= result.GetRevision() {
			d.missing()
		}
	}
	known := make(map[uint64]bool, len(state.GetOutcomes()))
	for _, outcome := range state.GetOutcomes() {
		known[outcome.GetSeq()] = true
		a.session.pushed(outcome, before)
	}
	for seq, k := range a.session.waits {
		if !known[seq] && k.revision <= result.GetRevision() {
			delete(a.session.waits, seq)
			k.queued = false
			a.session.unanswered.insert(k)
			a.session.client.place(k)
		}
	}
	if a.session.unanswered.n == 0 {
		a.resumed.holds = nil
	}
}

// contradicts reports whether the cluster has other holds and waits under the ids and numbers of the session's.
func (a *attachment) contradicts(result *wire.Result) bool {
	for _, h := range result.GetSession().GetHolds() {
		if d := a.session.holds.find(h.GetHoldId()); d != nil && d.contradicts(h, result.GetRevision()) {
			return true
		}
	}
	for _, outcome := range result.GetSession().GetOutcomes() {
		k := a.session.waits[outcome.GetSeq()]
		if k != nil && k.acquired != nil && k.claim != 0 && outcome.GetHoldId() != 0 && outcome.GetHoldId() != k.claim {
			return true
		}
	}
	return false
}

// contradicts reports whether the cluster has another hold with this id, as of a revision.
func (d *held) contradicts(h *wire.HeldLock, revision uint64) bool {
	token, first := d.token.Load(), h.GetToken()
	if token < first {
		return d.replaced(first, revision)
	}
	return d.constant(revision) && token-first >= max(1, uint64(h.GetTokens()))
}

// replaced reports whether the cluster, as of a revision, has granted the hold a later token without this session.
func (d *held) replaced(token, revision uint64) bool {
	return d.constant(revision) && token > d.token.Load()
}

// constant reports whether the cluster has granted the hold by that revision, and no upgrade can have changed its token:
// it never was shared, as far as the client knows, which does not know what an orphan was.
func (d *held) constant(revision uint64) bool {
	return d.revision <= revision && !d.orphan && d.mode != Shared && d.changed == d.revision && (d.rare == nil || d.rare.upgrades == 0)
}

// missing ends a hold that the cluster no longer lists. If it is being released, the answer to the release
// removes it.
func (d *held) missing() {
	d.lose(errMissing)
	if !d.releasing() {
		d.forget()
	}
}

// adoptHold processes a hold listed in the answer to an attach. A hold without a caller is released.
func (a *attachment) adoptHold(held *wire.HeldLock, before time.Duration) {
	if d := a.session.holds.find(held.GetHoldId()); d != nil {
		d.noticed(held.GetWanted(), held.GetRevocation(), false, before, func(grace uint32) time.Duration { return untilOf(before, grace) })
		return
	}
	if a.session.waits[held.GetSeq()] != nil || a.session.open(held.GetSeq()) {
		a.session.noticeEarly(&wire.HoldNotice{HoldId: held.GetHoldId(), Wanted: held.GetWanted(), Revocation: held.GetRevocation()})
		return
	}
	a.session.releaseUnasked(held.GetName(), held.GetHoldId(), held.GetToken(), held.GetRevision())
}

// open reports whether the request with that number has not had its first answer.
func (w *window) open(seq uint64) bool {
	for k := w.unanswered.head; k != nil; k = k.links[sessionList].next {
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
	case result.GetStatus() == wire.Status_GRANTED && !slices.Contains(s.acks, seq):
		s.grantedAgain(result)
	default:
		s.acknowledge(seq)
	}
}

// grantedAgain processes the grant to a request whose outcome is known already. Usually it is repeated because the
// acknowledgement was late. If the session does not have that hold, it is released.
func (w *window) grantedAgain(result *wire.Result) {
	s := w.session
	d := s.holds.find(result.GetHoldId())
	switch {
	case d == nil:
		seq := result.GetSeq()
		h := s.releaseUnasked(strings.Clone(result.GetName()), result.GetHoldId(), result.GetToken(), result.GetRevision())
		h.release.after = func() { s.acknowledge(seq) }
	case d.orphan: // its release is repeated with the token of a later upgrade
		d.token.Store(max(d.token.Load(), result.GetToken()))
		s.acknowledge(result.GetSeq())
	case d.replaced(result.GetToken(), result.GetRevision()):
		s.rolledBack()
	default:
		s.acknowledge(result.GetSeq())
	}
}

// releaseUnasked releases a hold that the cluster has and the session does not. Nothing may remain held unnoticed.
func (a *attachment) releaseUnasked(name string, id, token, revision uint64) *Hold {
	s := a.session
	s.client.note(slog.LevelWarn, "releasing a hold that nobody asked for", "session", s.id, "lock", name)
	h := newHold(s, name, id, token, revision)
	h.held.orphan = true
	h.startRelease()
	return h
}
