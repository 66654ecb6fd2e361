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

// kind says what a call is, where that decides how it is sent and answered.
type kind uint8

const (
	kindRead    kind = iota // repeated freely
	kindAdmin               // never repeated once it may have been executed
	kindOperate             // likewise, and answered soon
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
	kindLeased   // about a lease; repeated freely
	kindWatch    // answered, and then followed by pushes
	kindEndWatch // of this connection only
	kindPing     // likewise
)

// call is one request from its first sending to its outcome. c.mu guards it.
type call struct {
	kind     kind
	stale    bool         // any node may answer
	session  *Session     // nil for the client's own
	hold     *Hold        // kindAcquire: the one granted; otherwise whose it is
	target   *call        // kindCancel: the wait
	acquired *acquireCall // kindAcquire: itself
	opening  *Session     // kindOpen: what it will be

	request wire.Request

	list  *callList // the list of lane links that it is in
	links [2]link
	books *callList // the list of its session's that it is in

	sentAt     time.Duration
	firstAt    time.Duration // of the first sending that may have been executed
	sends      int
	answers    int  // of the sends, those that said it was not executed
	queued     bool // it was answered QUEUED
	confirming bool // it was granted, and its caller waits for more
	cancelled  bool // a Cancel for it is under way
	abandoned  bool // its caller does not want the outcome any more
	finished   bool

	response *wire.Response // not of the frequent kinds: see keep
	revision uint64         // of the last answer
	err      error
	done     chan struct{} // one token once finished; nil if nobody waits
	over     chan struct{} // closed once finished, where many wait
	after    func()        // called once finished, under the mutex; nil mostly
}

// uncertain says that the call may have been executed though no answer tells.
func (k *call) uncertain() bool { return k.sends > k.answers }

// await takes the token that says that the call is finished. It returns false if ctx ends
// before. To wait for two things at once takes several times as long as for one, and a
// context that never ends need not be waited for.
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

// The two memberships of a call: where it stands on its way, and in the books of its
// session, among those to be numbered or the unanswered ones.
const (
	lane = iota
	books
)

type link struct{ prev, next *call }

// callList is a queue of calls that lets go of any of them at once.
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
		k.books = l
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
		k.books = nil
	}
}

// insert puts a call back among those of its session, by its sequence number.
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

// pop takes the first call, or nil.
func (l *callList) pop() *call {
	k := l.head
	if k != nil {
		l.remove(k)
	}
	return k
}

// laneOf is where a call waits to be sent.
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

// submit takes a new call on its way.
func (c *Client) submit(k *call) {
	c.prepare(k)
	c.place(k)
	c.pump()
}

// prepare gives a new call its number on the connection.
func (c *Client) prepare(k *call) {
	c.nextCall++
	k.request.Id = c.nextCall
}

// ofConnection says that a call is about its connection: the next one makes its own.
func (k *call) ofConnection() bool {
	switch k.kind {
	case kindAttach, kindHeartbeat, kindAcknowledge, kindEndWatch, kindPing:
		return true
	}
	return false
}

// place puts a call where it waits to be sent, again or for the first time.
func (c *Client) place(k *call) {
	c.laneOf(k).push(k)
	if c.conn == nil {
		c.kick()
	}
}

// pump sends what may be sent. A share of the connection's bound is kept for what
// keeps sessions alive and gives locks back.
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
		c.armLook()
	}
	sent = c.pumpLane(cn, &c.anywhere, cn.window-cn.reserve) || sent
	if sent {
		c.flush(cn)
		if k := c.oldest(); k != nil {
			c.armAt(k.sentAt + patience)
		} else if c.quiet(cn) {
			c.armAt(cn.pingAt())
		}
	}
}

// flush has written what was sent. A request that is the only one under way is written
// here: nobody waits for the mutex meanwhile. Where there are more, the writer lets others
// add theirs to the same write.
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

// transmit puts one call into the outbox. It reports whether the connection can go on.
func (c *Client) transmit(cn *conn, k *call) bool {
	if s := k.session; s != nil && k.books == &s.unsent {
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

// fail finishes a call with an error of our own.
func (c *Client) fail(k *call, err error) {
	k.err = err
	c.finish(k)
}

// finish hands a call to whoever waits for it, who may use its memory for another one at
// once. One that is in flight stays there, since the node counts it, until it is answered
// or the connection ends.
func (c *Client) finish(k *call) {
	if k.finished {
		return
	}
	k.finished = true
	if k.list != nil && k.list != &c.flight {
		k.list.remove(k)
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

// again has a call that was not answered for good sent once more after a while.
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

// retryStalled sends again what stalled.
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

// onResponse books an answer, which is valid until the next frame. It returns an error if the node breaks the protocol.
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
		cn.useful, c.looks = true, 0
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

// unknown handles UNCERTAIN: what has a sequence number finds out by asking again.
func (c *Client) unknown(k *call, resp *wire.Response) {
	if k.kind == kindAdmin || k.kind == kindOperate {
		c.fail(k, statusError(resp.GetResult()))
		return
	}
	c.again(k)
}

// notAttached has the session attached once more before the call is repeated.
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

// answered gives a definite answer to what waits for it.
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

// keep keeps an answer beyond the next frame, where somebody is going to look at it: what
// answers acquires and releases say is taken out of them at once.
func (k *call) keep(cn *conn, resp *wire.Response) {
	k.revision = resp.GetResult().GetRevision()
	switch k.kind {
	case kindAcquire, kindUpgrade, kindRelease, kindHeartbeat:
	default:
		cn.frames.Keep()
		k.response = resp
	}
}

// onPush books what a node said unasked, which is valid until the next frame.
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
		// A newer node may say what we need not understand.
		c.note(slog.LevelDebug, "unknown push", "session", push.GetSessionId())
	}
	c.pump()
	return nil
}
