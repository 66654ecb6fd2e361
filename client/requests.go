package client

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// call is one request, from its submission to its outcome. It is guarded by c.mu.
type call struct {
	kind     kind
	stale    bool         // any node may answer
	session  *Session     // nil if the call belongs to no session
	hold     *Hold        // kindAcquire: the hold granted; otherwise the hold it is about
	target   *call        // kindCancel: the wait
	acquired *acquireCall // kindAcquire: the call itself
	opening  *Session     // kindOpen: the session being opened

	request wire.Request

	list        *callList // the list it is in by its lane link
	links       [2]link
	sessionList *callList // the list of its session that it is in

	sentAt     time.Duration
	firstAt    time.Duration // when the first request that may have been executed was sent
	sends      int
	answers    int  // how many of the sends were answered as not executed
	queued     bool // it was answered QUEUED
	confirming bool // it was granted, and its caller waits for an extend
	cancelled  bool // a Cancel for it is in flight
	abandoned  bool // its caller has left
	waiting    int  // callers that wait for an act
	act        bool // it is counted in the client's acts
	finished   bool

	response *wire.Response // not set for frequent kinds: see keep
	revision uint64         // of the last answer
	claim    uint64         // id of the claim that waits on the cluster
	err      error
	done     chan struct{} // receives one token when finished; nil if no caller waits
	over     chan struct{} // closed when finished, if several callers may wait
	after    func()        // called when finished, with the mutex held; usually nil
}

// uncertain reports whether the call may have been executed without the client knowing.
func (k *call) uncertain() bool { return k.sends > k.answers }

// await takes the token that marks the call as finished. It returns false if ctx ends first. A context that
// never ends is not waited for, because a select over two channels takes several times as long as one
// receive.
func (k *call) await(ctx context.Context) bool {
	end := ctx.Done()
	if end == nil {
		<-k.done
		return true
	}
	select {
	case <-k.done:
		return true
	case <-end:
		return false
	}
}

// requestTable holds the calls that have no outcome yet, and the watches. It sends calls when the connection
// allows, and matches responses to them. It is guarded by the client's mutex.
type requestTable struct {
	client *Client

	nextCall uint64
	byID     numbered         // the calls in flight
	frame    wire.ClientFrame // reused for the request being sent
	body     wire.ClientFrame_Request
	flight   callList // sent and unanswered, oldest first
	urgent   callList // to be sent to the leader first: requests that keep sessions alive or release locks
	ready    callList // to be sent to the leader
	anywhere callList // to be sent to any node
	stalled  callList // to be resent at retryAt

	retryAt time.Duration // 0 if no call is stalled
	retries int           // consecutive retries without a definite answer

	watchers map[*Watcher]struct{}
	watching map[uint64]*Watcher // the active watches, by request id
}

// laneOf returns the list in which a call waits to be sent.
func (t *requestTable) laneOf(k *call) *callList {
	switch {
	case k.session != nil && k.kind != kindAttach && (t.client.conn == nil || k.session.conn != t.client.conn):
		return &k.session.parked
	case k.stale:
		return &t.anywhere
	case k.kind.policy().urgent:
		return &t.urgent
	}
	return &t.ready
}

// submit starts a new call.
func (t *requestTable) submit(k *call) {
	t.prepare(k)
	t.place(k)
	t.pump()
}

// submitAct starts a call that goes on after its callers have left, and for which Close waits.
func (t *requestTable) submitAct(k *call) {
	t.count(k)
	t.submit(k)
}

// count makes Close wait for a call.
func (t *requestTable) count(k *call) {
	k.act = true
	t.client.acts++
}

// calls calls yield for each call that is to be sent or in flight, except for those of sessions that are not attached.
func (t *requestTable) calls(yield func(*call) bool) {
	for _, l := range []*callList{&t.urgent, &t.ready, &t.anywhere, &t.stalled, &t.flight} {
		for k := l.head; k != nil; {
			following := k.links[l.slot].next
			if !yield(k) {
				return
			}
			k = following
		}
	}
}

// prepare assigns a new call its request id.
func (t *requestTable) prepare(k *call) {
	t.nextCall++
	k.request.Id = t.nextCall
}

// place puts a call into the list in which it waits to be sent, or sent again.
func (t *requestTable) place(k *call) {
	t.laneOf(k).push(k)
	if t.client.conn == nil {
		t.client.wakeConnector()
	}
}

// pump sends what can be sent. Part of the connection's window is reserved for requests that keep sessions
// alive and release locks.
func (t *requestTable) pump() {
	cn := t.client.conn
	if cn == nil || cn.err != nil {
		return
	}
	sent := false
	if cn.leads {
		sent = t.pumpLane(cn, &t.urgent, cn.window) || sent
		sent = t.pumpLane(cn, &t.ready, cn.window-cn.reserve) || sent
	} else if t.client.wanted() {
		t.client.search.arm()
	}
	sent = t.pumpLane(cn, &t.anywhere, cn.window-cn.reserve) || sent
	if sent {
		t.flush(cn)
		if k := t.oldest(); k != nil {
			t.client.armAt(k.sentAt + answerTimeout)
		} else if t.client.quiet(cn) {
			t.client.armAt(cn.pingAt())
		}
	}
}

// flush writes what was queued. If only one request is in flight, it is written on this goroutine, since no
// other goroutine needs the mutex meanwhile. Otherwise the writer goroutine does it, so that other callers
// can add their requests to the same write.
func (t *requestTable) flush(cn *conn) {
	if t.flight.n == 1 {
		cn.out.FlushHere()
		return
	}
	cn.out.Flush()
}

func (t *requestTable) pumpLane(cn *conn, l *callList, window int) (sent bool) {
	for l.head != nil && t.flight.n < window {
		if !t.transmit(cn, l.pop()) {
			return sent
		}
		sent = t.flight.n > 0
	}
	return sent
}

// transmit puts one call into the outbox. It reports whether the connection is still usable.
func (t *requestTable) transmit(cn *conn, k *call) bool {
	if s := k.session; s != nil && k.sessionList == &s.unsent {
		s.number(k)
	}
	if k.request.Seq != 0 || k.kind == kindAcknowledge {
		k.session.stamp(k)
	}
	k.sentAt = t.client.mu.now()
	if !k.uncertain() {
		k.firstAt = k.sentAt
	}
	t.body.Request = &k.request
	switch err := cn.out.Queue(&t.frame); {
	case errors.Is(err, transport.ErrFrameTooLarge):
		t.fail(k, &StatusError{StatusInvalidArgument, "the request is larger than the node accepts: " + err.Error()})
		return true
	case errors.Is(err, transport.ErrUnencodable):
		t.fail(k, &StatusError{StatusInvalidArgument, "the request cannot be encoded: " + err.Error()})
		return true
	case err != nil:
		t.place(k)
		cn.fail(err)
		return false
	}
	k.sends++
	cn.spoke = k.sentAt
	t.flight.push(k)
	t.byID.add(k)
	return true
}

// fail finishes a call with an error of the client.
func (t *requestTable) fail(k *call, err error) {
	if !k.finished {
		k.err = err
		t.finish(k)
	}
}

// finish hands a call to its waiting caller, which may reuse its memory immediately. A call in flight
// remains in flight, since the node counts it, until it is answered or the connection ends.
func (t *requestTable) finish(k *call) {
	if k.finished {
		return
	}
	k.finished = true
	if k.list != nil && k.list != &t.flight {
		k.list.remove(k)
		if t.stalled.n == 0 {
			t.retryAt = 0 // otherwise the next stalled call would be retried too early
		}
	}
	if k.session != nil {
		k.session.forget(k)
	}
	if k.after != nil {
		k.after()
	}
	if k.act {
		t.client.actOver(1)
	}
	if k.over != nil {
		close(k.over)
	}
	if k.done != nil {
		k.done <- struct{}{}
	}
}

// again resends a call that got no definite answer, after a backoff.
func (t *requestTable) again(k *call) {
	switch {
	case k.finished:
		return
	case k.kind == kindHeartbeat:
		k.session.heartbeatFailed()
		t.finish(k)
		return
	case k.abandoned && !k.uncertain() && !k.kind.policy().gives, k.kind.policy().dropped:
		t.finish(k)
		return
	}
	t.stalled.push(k)
	if t.retryAt == 0 {
		t.retryAt = t.client.clock.Now() + backoff(t.retries, retryFirst, retryMost)
		t.retries++
		t.client.armAt(t.retryAt)
	}
}

// retryStalled resends the stalled calls when the backoff has passed.
func (t *requestTable) retryStalled(now time.Duration) {
	if t.retryAt == 0 || now < t.retryAt {
		return
	}
	t.retryAt = 0
	for k := t.stalled.pop(); k != nil; k = t.stalled.pop() {
		t.place(k)
	}
	t.pump()
}

// onResponse processes a response, which is valid until the next frame. It returns an error if the node
// violates the protocol.
func (t *requestTable) onResponse(cn *conn, resp *wire.Response) error {
	k := t.byID.find(resp.GetId())
	if k == nil {
		return errors.New("answer to a request that was not made")
	}
	status := resp.GetResult().GetStatus()
	if status == wire.Status_UNSPECIFIED {
		return errors.New("answer without a status")
	}
	t.flight.remove(k)
	t.byID.remove(k)
	switch status {
	case wire.Status_NOT_LEADER:
		k.answers++
		t.again(k)
		t.client.notLeader(cn, resp.GetLeader())
	case wire.Status_UNAVAILABLE:
		k.answers++
		t.again(k)
	case wire.Status_UNCERTAIN:
		t.unknown(k, resp)
	case wire.Status_NOT_ATTACHED:
		k.answers++
		t.notAttached(cn, k)
	default:
		cn.useful = true
		cn.seen.advance(resp.GetTerm(), resp.GetNonce(), resp.GetResult().GetRevision())
		if proves(status) {
			t.retries = 0
		}
		if !k.finished {
			t.answered(cn, k, resp)
		}
	}
	if t.client.search.on {
		t.client.search.seek(t.client.mu.now()) // it may be over: the node does not hang any more
	}
	t.pump()
	return nil
}

// unknown handles an UNCERTAIN answer. A request with a sequence number learns its outcome by being sent
// again.
func (t *requestTable) unknown(k *call, resp *wire.Response) {
	if k.kind.policy().once {
		t.fail(k, statusError(resp.GetResult()))
		return
	}
	t.again(k)
}

// notAttached attaches the session again before the call is repeated.
func (t *requestTable) notAttached(cn *conn, k *call) {
	s := k.session
	if s == nil || k.kind == kindAttach {
		t.again(k)
		return
	}
	if s.conn == cn {
		s.detach()
		s.attach()
	}
	if k.kind == kindHeartbeat {
		s.heartbeat = nil
		t.finish(k)
	}
	if !k.finished {
		t.place(k)
	}
}

// answered passes a definite answer on to its call.
func (t *requestTable) answered(cn *conn, k *call, resp *wire.Response) {
	k.keep(cn, resp)
	switch {
	case k.session != nil:
		k.session.answered(cn, k, resp)
	case k.kind == kindOpen:
		t.client.opened(cn, k, resp.GetResult())
	default:
		k.err = k.failure(resp.GetResult())
		t.finish(k)
	}
}

// keep retains an answer beyond the next frame, unless its contents are copied at once.
func (k *call) keep(cn *conn, resp *wire.Response) {
	k.revision = resp.GetResult().GetRevision()
	if !k.kind.policy().brief {
		cn.frames.Keep()
		k.response = resp
	}
}

// onPush processes a push, which is valid until the next frame.
func (t *requestTable) onPush(cn *conn, push *wire.Push) error {
	switch body := push.GetBody().(type) {
	case *wire.Push_Leader:
		t.client.onLeader(cn, body.Leader)
	case *wire.Push_Outcome:
		if s := t.client.sessions[push.GetSessionId()]; s != nil && s.alive() {
			cn.seen.advance(push.GetTerm(), push.GetNonce(), body.Outcome.GetRevision())
			s.pushed(body.Outcome, s.proofAt)
		}
	case *wire.Push_Lost:
		if s := t.client.sessions[push.GetSessionId()]; s != nil {
			s.gone(lostReason(body.Lost.GetReason()))
		}
	case *wire.Push_HoldLost:
		if s := t.client.sessions[push.GetSessionId()]; s != nil && s.alive() {
			s.holdLost(body.HoldLost)
		}
	case *wire.Push_HoldNotice:
		if s := t.client.sessions[push.GetSessionId()]; s != nil && s.alive() {
			s.noticePushed(body.HoldNotice)
		}
	case *wire.Push_Watch:
		if w := t.watching[body.Watch.GetRequestId()]; w != nil {
			w.arrived(body.Watch.GetResponse())
		}
	default:
		// A newer node may send pushes that this client does not need to understand.
		t.client.note(slog.LevelDebug, "unknown push", "session", push.GetSessionId())
	}
	t.pump()
	return nil
}
