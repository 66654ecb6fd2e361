package client

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// kind is the kind of a call where it affects how the call is sent and answered.
type kind uint8

const (
	kindRead    kind = iota // can be repeated
	kindAdmin               // never repeated once it may have been executed
	kindOperate             // like kindAdmin, but answered soon
	kindOpen
	kindAttach
	kindHeartbeat
	kindAcknowledge
	kindClose
	kindAcquire
	kindRelease
	kindCancel
	kindSetValue
	kindUpgrade
	kindDowngrade
	kindExtend
	kindLease    // answered after its wait
	kindLeased   // about a lease; can be repeated
	kindWatch    // answered, and then followed by pushes
	kindEndWatch // of this connection only
	kindPing     // of this connection only
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
	finished   bool

	response *wire.Response // not set for frequent kinds: see keep
	revision uint64         // of the last answer
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

// The two lists a call can be in: lane orders it for sending, books is one of its session's lists, either
// the calls to be numbered or the unanswered ones.
const (
	lane = iota
	sessionList
)

type link struct{ prev, next *call }

// callList is a queue of calls from which any call can be removed in constant time.
type callList struct {
	slot       int
	head, tail *call
	n          int
}

func (l *callList) push(k *call) {
	link := &k.links[l.slot]
	link.prev, link.next = l.tail, nil
	if l.tail == nil {
		l.head = k
	} else {
		l.tail.links[l.slot].next = k
	}
	l.tail = k
	l.n++
	if l.slot == lane {
		k.list = l
	} else {
		k.sessionList = l
	}
}

func (l *callList) remove(k *call) {
	link := &k.links[l.slot]
	if link.prev == nil {
		l.head = link.next
	} else {
		link.prev.links[l.slot].next = link.next
	}
	if link.next == nil {
		l.tail = link.prev
	} else {
		link.next.links[l.slot].prev = link.prev
	}
	link.prev, link.next = nil, nil
	l.n--
	if l.slot == lane {
		k.list = nil
	} else {
		k.sessionList = nil
	}
}

// insert puts a call back into its session's list, ordered by sequence number.
func (l *callList) insert(k *call) {
	var later []*call
	for l.tail != nil && l.tail.request.Seq > k.request.Seq {
		later = append(later, l.tail)
		l.remove(l.tail)
	}
	l.push(k)
	for _, k := range slices.Backward(later) {
		l.push(k)
	}
}

// pop removes and returns the first call, or nil.
func (l *callList) pop() *call {
	k := l.head
	if k != nil {
		l.remove(k)
	}
	return k
}

// laneOf returns the list in which a call waits to be sent.
func (c *Client) laneOf(k *call) *callList {
	switch {
	case k.session != nil && k.kind != kindAttach && (c.conn == nil || k.session.conn != c.conn):
		return &k.session.parked
	case k.stale:
		return &c.anywhere
	case k.kind == kindRead, k.kind == kindAdmin, k.kind == kindOperate, k.kind == kindOpen,
		k.kind == kindAcquire, k.kind == kindUpgrade, k.kind == kindLease, k.kind == kindWatch:
		return &c.ready
	}
	return &c.urgent
}

// submit starts a new call.
func (c *Client) submit(k *call) {
	c.prepare(k)
	c.place(k)
	c.pump()
}

// prepare assigns a new call its request id.
func (c *Client) prepare(k *call) {
	c.nextCall++
	k.request.Id = c.nextCall
}

// ofConnection reports whether a call concerns only its connection. It is not resent on the next one.
func (k *call) ofConnection() bool {
	switch k.kind {
	case kindAttach, kindHeartbeat, kindAcknowledge, kindEndWatch, kindPing:
		return true
	}
	return false
}

// place puts a call into the list in which it waits to be sent, or sent again.
func (c *Client) place(k *call) {
	c.laneOf(k).push(k)
	if c.conn == nil {
		c.wakeConnector()
	}
}

// pump sends what can be sent. Part of the connection's window is reserved for requests that keep sessions
// alive and release locks.
func (c *Client) pump() {
	cn := c.conn
	if cn == nil || cn.err != nil {
		return
	}
	sent := false
	if cn.leads {
		sent = c.pumpLane(cn, &c.urgent, cn.window) || sent
		sent = c.pumpLane(cn, &c.ready, cn.window-cn.reserve) || sent
	} else if c.wanted() {
		c.scheduleProbe()
	}
	sent = c.pumpLane(cn, &c.anywhere, cn.window-cn.reserve) || sent
	if sent {
		c.flush(cn)
		if k := c.oldest(); k != nil {
			c.armAt(k.sentAt + answerTimeout)
		} else if c.quiet(cn) {
			c.armAt(cn.pingAt())
		}
	}
}

// flush writes what was queued. If only one request is in flight, it is written on this goroutine, since no
// other goroutine needs the mutex meanwhile. Otherwise the writer goroutine does it, so that other callers
// can add their requests to the same write.
func (c *Client) flush(cn *conn) {
	if c.flight.n == 1 {
		cn.out.FlushHere()
		return
	}
	cn.out.Flush()
}

func (c *Client) pumpLane(cn *conn, l *callList, window int) (sent bool) {
	for l.head != nil && c.flight.n < window {
		if !c.transmit(cn, l.pop()) {
			return sent
		}
		sent = c.flight.n > 0
	}
	return sent
}

// transmit puts one call into the outbox. It reports whether the connection is still usable.
func (c *Client) transmit(cn *conn, k *call) bool {
	if s := k.session; s != nil && k.sessionList == &s.unsent {
		s.number(k)
	}
	if k.request.Seq != 0 || k.kind == kindAcknowledge {
		k.session.stamp(k)
	}
	k.sentAt = c.mu.now()
	if !k.uncertain() {
		k.firstAt = k.sentAt
	}
	c.body.Request = &k.request
	switch err := cn.out.Queue(&c.frame); {
	case errors.Is(err, transport.ErrFrameTooLarge):
		c.fail(k, &StatusError{wire.Status_INVALID_ARGUMENT, "the request is larger than the node accepts: " + err.Error()})
		return true
	case errors.Is(err, transport.ErrUnencodable):
		c.fail(k, &StatusError{wire.Status_INVALID_ARGUMENT, "the request cannot be encoded: " + err.Error()})
		return true
	case err != nil:
		c.place(k)
		cn.fail(err)
		return false
	}
	k.sends++
	cn.spoke = k.sentAt
	c.flight.push(k)
	c.byID.add(k)
	return true
}

// fail finishes a call with an error of the client.
func (c *Client) fail(k *call, err error) {
	k.err = err
	c.finish(k)
}

// finish hands a call to its waiting caller, which may reuse its memory immediately. A call in flight
// remains in flight, since the node counts it, until it is answered or the connection ends.
func (c *Client) finish(k *call) {
	if k.finished {
		return
	}
	k.finished = true
	if k.list != nil && k.list != &c.flight {
		k.list.remove(k)
		if c.stalled.n == 0 {
			c.retryAt = 0 // otherwise the next stalled call would be retried too early
		}
	}
	if k.session != nil {
		k.session.forget(k)
	}
	if k.after != nil {
		k.after()
	}
	if k.over != nil {
		close(k.over)
	}
	if k.done != nil {
		k.done <- struct{}{}
	}
}

// again resends a call that got no definite answer, after a backoff.
func (c *Client) again(k *call) {
	switch {
	case k.finished:
		return
	case k.kind == kindHeartbeat:
		k.session.heartbeatFailed()
		c.finish(k)
		return
	case k.abandoned && !k.uncertain(), k.kind == kindEndWatch, k.kind == kindPing:
		c.finish(k)
		return
	}
	c.stalled.push(k)
	if c.retryAt == 0 {
		c.retryAt = c.clock.Now() + backoff(c.retries, retryFirst, retryMost)
		c.retries++
		c.armAt(c.retryAt)
	}
}

// retryStalled resends the stalled calls when the backoff has passed.
func (c *Client) retryStalled(now time.Duration) {
	if c.retryAt == 0 || now < c.retryAt {
		return
	}
	c.retryAt = 0
	for k := c.stalled.pop(); k != nil; k = c.stalled.pop() {
		c.place(k)
	}
	c.pump()
}

// onResponse processes a response, which is valid until the next frame. It returns an error if the node
// violates the protocol.
func (c *Client) onResponse(cn *conn, resp *wire.Response) error {
	k := c.byID.find(resp.GetId())
	if k == nil {
		return errors.New("answer to a request that was not made")
	}
	status := resp.GetResult().GetStatus()
	if status == wire.Status_UNSPECIFIED {
		return errors.New("answer without a status")
	}
	c.flight.remove(k)
	c.byID.remove(k)
	switch status {
	case wire.Status_NOT_LEADER:
		k.answers++
		c.again(k)
		c.notLeader(cn, resp.GetLeader())
	case wire.Status_UNAVAILABLE:
		k.answers++
		c.again(k)
	case wire.Status_UNCERTAIN:
		c.unknown(k, resp)
	case wire.Status_NOT_ATTACHED:
		k.answers++
		c.notAttached(cn, k)
	default:
		cn.useful, c.probes = true, 0
		if proves(status) {
			c.retries = 0
		}
		if !k.finished {
			c.answered(cn, k, resp)
		}
	}
	c.pump()
	return nil
}

// unknown handles an UNCERTAIN answer. A request with a sequence number learns its outcome by being sent
// again.
func (c *Client) unknown(k *call, resp *wire.Response) {
	if k.kind == kindAdmin || k.kind == kindOperate {
		c.fail(k, statusError(resp.GetResult()))
		return
	}
	c.again(k)
}

// notAttached attaches the session again before the call is repeated.
func (c *Client) notAttached(cn *conn, k *call) {
	s := k.session
	if s == nil || k.kind == kindAttach {
		c.again(k)
		return
	}
	if s.conn == cn {
		s.conn = nil
		s.attach()
	}
	if k.kind == kindHeartbeat {
		s.heartbeat = nil
		c.finish(k)
	}
	if !k.finished {
		c.place(k)
	}
}

// answered passes a definite answer on to its call.
func (c *Client) answered(cn *conn, k *call, resp *wire.Response) {
	k.keep(cn, resp)
	switch {
	case k.session != nil:
		k.session.answered(cn, k, resp.GetResult())
	case k.kind == kindOpen:
		c.opened(cn, k, resp.GetResult())
	default:
		k.err = k.failure(resp.GetResult())
		c.finish(k)
	}
}

// keep retains an answer beyond the next frame if it is read later. The contents of answers to acquires and
// releases are extracted immediately.
func (k *call) keep(cn *conn, resp *wire.Response) {
	k.revision = resp.GetResult().GetRevision()
	switch k.kind {
	case kindAcquire, kindUpgrade, kindRelease, kindHeartbeat:
	default:
		cn.frames.Keep()
		k.response = resp
	}
}

// onPush processes a push, which is valid until the next frame.
func (c *Client) onPush(cn *conn, push *wire.Push) error {
	switch body := push.GetBody().(type) {
	case *wire.Push_Leader:
		c.onLeader(cn, body.Leader)
	case *wire.Push_Outcome:
		if s := c.sessions[push.GetSessionId()]; s != nil && s.alive() {
			s.pushed(body.Outcome, s.proofAt)
		}
	case *wire.Push_Lost:
		if s := c.sessions[push.GetSessionId()]; s != nil {
			s.gone(lostReason(body.Lost.GetReason()))
		}
	case *wire.Push_HoldLost:
		if s := c.sessions[push.GetSessionId()]; s != nil && s.alive() {
			s.holdLost(body.HoldLost)
		}
	case *wire.Push_HoldNotice:
		if s := c.sessions[push.GetSessionId()]; s != nil && s.alive() {
			s.noticePushed(body.HoldNotice)
		}
	case *wire.Push_Watch:
		if w := c.watching[body.Watch.GetRequestId()]; w != nil {
			w.arrived(body.Watch.GetResponse())
		}
	default:
		// A newer node may send pushes that this client does not need to understand.
		c.note(slog.LevelDebug, "unknown push", "session", push.GetSessionId())
	}
	c.pump()
	return nil
}
