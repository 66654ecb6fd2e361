package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/server/internal/lease"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// When a connection ends, drainTimeout bounds the answering of requests in flight, and hangupTimeout the
// delivery of the goodbye.
const (
	drainTimeout  = time.Second
	hangupTimeout = time.Second
	// maxUnreadAtGoodbye may be unread before a goodbye if the node needs the memory.
	maxUnreadAtGoodbye = 64 << 10
)

// conn is an established connection. serve is its reader and the outbox has its writer. Everything else runs
// on the goroutines of its callers.
type conn struct {
	srv    *Server
	link   *link
	frames *transport.FrameReader
	out    *transport.Outbox
	remote string
	caller *access.Caller
	quota  *quota.Account
	agent  string
	slots  chan struct{}   // one element per request in flight
	memory *budget.Account // charged for what the connection holds; nil without a budget
	// noMemory is the error if the node's budget has no room for another connection.
	noMemory error
	told     *wire.LeaderHint // the hint last sent to the client; guarded by the server's hints

	arrived  *exchange          // the request that was read last; used by the reader only
	readAt   time.Time          // when the requests of the last read came, zero before the first; used by the reader only
	timed    bool               // a frequent request of the last read is timed; used by the reader only
	arrivals arrivals           // those of the requests without an exchange
	enlisted []command.Proposal // commands read but not yet proposed; used by the reader only

	pages sync.Mutex // serializes weighing and sending of pages

	ctx     context.Context // ends when the connection does
	cancel  context.CancelCauseFunc
	running sync.WaitGroup // requests that have their own goroutine; only the reader starts them

	unflushed atomic.Bool // the outbox is already scheduled for the next flush of the server's flusher

	mu       sync.Mutex // guards the fields below
	attached map[uint64]struct{}
	watches  map[uint64]*watch             // by the id of their request
	leases   map[uint64]context.CancelFunc // end the waits of acquires of leases, by the id of their request
	ended    bool
	closed   bool // no session may be bound any more
	goodbye  *wire.Goodbye
}

func newConn(srv *Server, l *link, g *greeted) *conn {
	limits := srv.cfg.Limits
	c := &conn{
		srv:      srv,
		link:     l,
		frames:   g.frames,
		remote:   l.RemoteAddr().String(),
		caller:   g.caller,
		quota:    g.quota,
		agent:    g.hello.GetAgent(),
		slots:    make(chan struct{}, limits.MaxInFlight),
		attached: map[uint64]struct{}{},
		watches:  map[uint64]*watch{},
		leases:   map[uint64]context.CancelFunc{},
	}
	c.ctx, c.cancel = context.WithCancelCause(access.NewContext(context.Background(), g.caller))
	l.busy = c.busy
	c.memory, c.noMemory = srv.cfg.Buffers.Open(connBytes, c.heldMost)
	g.frames.SetMeter(c.memory)
	c.out = transport.NewOutbox(l, transport.OutboxConfig{
		MaxFrame:     limits.MaxFrameBytes,
		MaxBytes:     limits.MaxOutboxBytes,
		WriteTimeout: limits.FrameTimeout,
		FlushTimeout: hangupTimeout,
		Meter:        c.memory,
	})
	return c
}

const (
	// connBytes is the base memory of a connection in bytes: two goroutines, its initial buffers, TLS.
	connBytes = 32 << 10
	// watchBytes is the memory of a watch in bytes: a goroutine and the response it is about to send.
	watchBytes = 32 << 10
)

// heldMost is called when the node's budget is exhausted and this connection holds the largest share.
func (c *conn) heldMost() {
	c.end(wire.Goodbye_RESOURCE_EXHAUSTED, "the node's buffers are used up (--max-buffer-bytes), and this connection held most of them")
}

// sender returns where the requests of the connection come from.
func (c *conn) sender() identity.Sender {
	return identity.Sender{Identity: c.caller.Identity(), Connection: c}
}

// busy reports whether silence from this client is expected.
func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.attached) > 0 || len(c.watches) > 0 || len(c.slots) > 0
}

// serve reads until the connection ends, and then tears it down.
func (c *conn) serve() {
	err := c.frames.Receive(c)
	c.frames.Free() // hanging up can take a while
	c.propose()
	c.endFor(err)
	c.cancel(c.cause())
	c.forgetSessions()
	c.running.Wait()
	if c.saidGoodbye(wire.Goodbye_SHUTDOWN) {
		c.drain()
	}
	c.hangup()
}

// Received handles the request that was decoded last.
func (c *conn) Received() error {
	c.link.frameEnded()
	x := c.arrived
	c.arrived = nil
	req := x.Frame.GetRequest()
	if req == nil {
		return fmt.Errorf("%w: expected a request, got %T", transport.ErrMalformed, x.Frame.GetFrame())
	}
	if err := c.takeSlot(); err != nil {
		return err
	}
	arrived := arrival{c.srv.metrics.count(req), c.arrivedAt()}
	refused := c.quota.RequestOf(req, c.caller.CheckRequest(req))
	if x.Frequent && refused == nil {
		x.arrival = c.sampled(arrived)
		x.begin(c)
		return nil
	}
	c.arrivals.add(req.GetId(), arrived)
	if !x.Frequent {
		exchanges.Put(x) // the request does not share memory with x
	}
	c.propose() // keeps the order of arrival
	if refused != nil {
		c.respond(req, refused)
		return nil
	}
	c.dispatch(req)
	return nil
}

// arrivedAt returns when the present request was read, zero if nobody can read the metrics. Requests of one read share a
// time.
func (c *conn) arrivedAt() time.Time {
	if c.readAt.IsZero() && c.srv.metrics.measures {
		c.readAt = time.Now()
	}
	return c.readAt
}

// sampled returns the arrival of a frequent request if it is to be timed: the first of each read. The others are usually
// answered together with it, and an observation costs as much as decoding a request.
func (c *conn) sampled(a arrival) arrival {
	if c.timed {
		return arrival{}
	}
	c.timed = true
	return a
}

// maxEnlisted bounds the commands that are proposed together.
const maxEnlisted = 256

// enlist queues a command, so that it is proposed together with the others from the same read.
func (c *conn) enlist(p command.Proposal) {
	if c.enlisted = append(c.enlisted, p); len(c.enlisted) == maxEnlisted {
		c.propose()
	}
}

// propose hands the enlisted commands to the replica.
func (c *conn) propose() {
	if len(c.enlisted) > 0 {
		c.srv.cfg.Replica.ProposeAll(c.enlisted)
		clear(c.enlisted)
		c.enlisted = c.enlisted[:0]
	}
}

// BeforeRead is called before the reader blocks.
func (c *conn) BeforeRead(started bool) error {
	c.propose()
	c.readAt, c.timed = time.Time{}, false
	return c.link.rest(started)
}

// Overdue is called when the read deadline has passed.
func (c *conn) Overdue() error { return c.link.silence() }

// takeSlot counts the request as in flight. While MaxInFlight requests are in flight it blocks, so the client
// experiences back-pressure.
func (c *conn) takeSlot() error {
	select {
	case c.slots <- struct{}{}: // fast path: far cheaper than the two-way select
		return nil
	default:
	}
	c.propose() // commands that are not proposed would never free their slots
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-c.link.ending:
		return errEnded
	}
}

// Decode allocates memory for a request only when its bytes have arrived, so a silent connection holds none.
// Only the reader calls it.
func (c *conn) Decode(b []byte) error {
	c.arrived = newExchange()
	c.arrived.size = len(b)
	return c.arrived.Decode(b)
}

// respondFor answers a session's request.
func (c *conn) respondFor(req *wire.Request, res *wire.Result, session uint64) {
	c.reply(c.responseFor(req, res, session))
}

// responseFor returns the answer to a session's request, with the session's remaining TTL.
func (c *conn) responseFor(req *wire.Request, res *wire.Result, session uint64) *wire.Response {
	resp := &wire.Response{Id: req.GetId(), Result: c.shown(req, res)}
	c.addRemaining(resp, session)
	c.addTerm(resp)
	return resp
}

// addTerm adds the latest leadership to an answer from the log. It is that of the state after the request or of a later
// state, so the revision of the result precedes the next leadership.
func (c *conn) addTerm(resp *wire.Response) {
	if applied(resp.GetResult()) {
		latest := c.srv.cfg.Replica.LatestTerm()
		resp.Term, resp.Nonce = latest.GetTerm(), latest.GetNonce()
	}
}

// addRemaining sets the session's remaining TTL if the request succeeded.
func (c *conn) addRemaining(resp *wire.Response, session uint64) {
	if succeeded(resp.GetResult()) {
		if left, known := c.srv.cfg.Replica.Remaining(session); known {
			resp.RemainingTtlMs = milliseconds(left)
		}
	}
}

// applied reports whether a result comes from the state after the log was applied. Refusals on arrival have no revision.
func applied(res *wire.Result) bool { return res.GetRevision() != 0 }

func succeeded(res *wire.Result) bool {
	s := res.GetStatus()
	return s == wire.Status_GRANTED || s == wire.Status_OK
}

func milliseconds(left time.Duration) uint64 { return uint64(max(left, 0).Milliseconds()) }

// respond answers a request with a result only.
func (c *conn) respond(req *wire.Request, res *wire.Result) {
	c.reply(&wire.Response{Id: req.GetId(), Result: c.shown(req, res)})
}

// shown returns a result as the caller may see it, and reports a denial.
func (c *conn) shown(req *wire.Request, res *wire.Result) *wire.Result {
	c.caller.DeniedRequest(req, res)
	return c.caller.Answer(req, res)
}

// replyPage reads a page and replies with it. Pages may fill at most half of the outbox, so that a client
// that requests more pages than it reads gets an error instead of losing its connection and sessions. If a
// page could not be sent, it is not read from the state.
func (c *conn) replyPage(req *wire.Request) {
	c.pages.Lock()
	defer c.pages.Unlock()
	switch {
	case c.out.Queued() > c.srv.cfg.Limits.MaxOutboxBytes/2:
		c.respond(req, failure(wire.Status_UNAVAILABLE, "earlier answers are still unread: ask for fewer pages at once"))
	case c.link.ended() != nil && !c.saidGoodbye(wire.Goodbye_SHUTDOWN):
		c.respond(req, failure(wire.Status_UNAVAILABLE, "the connection is being closed"))
	default:
		c.reply(c.page(req))
	}
}

// reply sends the response to a request. It does not block.
func (c *conn) reply(resp *wire.Response) {
	c.arrivals.answered(resp.GetId())
	c.conclude(c.answer(responseFrame(resp), resp, atOnce))
}

// put is a way to put a message into an outbox.
type put func(*transport.Outbox, proto.Message) error

var (
	atOnce put = (*transport.Outbox).Send
	// untilFlush leaves writing to the server's flusher.
	untilFlush put = (*transport.Outbox).Queue
)

// answer queues a frame with its response. If the response is too large, it queues an error response instead.
func (c *conn) answer(frame *wire.ServerFrame, resp *wire.Response, put put) error {
	if resp.GetResult().GetStatus() == wire.Status_NOT_LEADER {
		resp.Leader = c.srv.cfg.Replica.Leader()
	}
	err := put(c.out, frame)
	if errors.Is(err, transport.ErrFrameTooLarge) {
		err = c.out.Send(responseFrame(&wire.Response{Id: resp.GetId(), Result: failure(wire.Status_RESOURCE_EXHAUSTED,
			"the answer does not fit into one frame: raise --max-frame-bytes")}))
	}
	return err
}

// conclude frees the slot of an answered request and handles the error of sending the answer.
func (c *conn) conclude(err error) {
	<-c.slots
	c.noteSendError(err)
}

func responseFrame(resp *wire.Response) *wire.ServerFrame {
	return &wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: resp}}
}

// noteSendError ends the connection if a message could not be sent.
func (c *conn) noteSendError(err error) {
	switch {
	case err == nil, errors.Is(err, transport.ErrOutboxClosed):
	case errors.Is(err, budget.ErrExhausted):
		c.end(wire.Goodbye_RESOURCE_EXHAUSTED, err.Error())
	case errors.Is(err, transport.ErrSlowConsumer):
		c.end(wire.Goodbye_SLOW_CONSUMER, err.Error())
	default:
		c.end(wire.Goodbye_UNSPECIFIED, err.Error())
	}
}

// end makes the reader tear the connection down. The first reason counts.
func (c *conn) end(code wire.Goodbye_Code, reason string) {
	c.mu.Lock()
	first := !c.ended
	if first {
		c.ended = true
		c.goodbye = &wire.Goodbye{Code: code, Message: reason}
		c.link.cutShort()
	}
	c.mu.Unlock()
	if first {
		c.srv.noteEnd(c, code, reason)
	}
}

// endFor calls end with the code for the error that ended reading.
func (c *conn) endFor(err error) {
	switch {
	case errors.Is(err, errEnded):
	case errors.Is(err, budget.ErrExhausted):
		c.end(wire.Goodbye_RESOURCE_EXHAUSTED, err.Error())
	case errors.Is(err, transport.ErrFrameTooLarge):
		c.end(wire.Goodbye_FRAME_TOO_LARGE, err.Error())
	case errors.Is(err, transport.ErrMalformed), errors.Is(err, errStalled):
		c.end(wire.Goodbye_PROTOCOL_ERROR, err.Error())
	case errors.Is(err, errIdle):
		c.end(wire.Goodbye_IDLE, fmt.Sprintf("nothing came for %v, no session is attached and nothing is watched", c.srv.cfg.Limits.IdleTimeout))
	case errors.Is(c.out.Err(), transport.ErrSlowConsumer):
		c.end(wire.Goodbye_SLOW_CONSUMER, c.out.Err().Error())
	default: // the client closed it, or the network did
		c.end(wire.Goodbye_UNSPECIFIED, err.Error())
	}
}

// cause returns why the requests of the connection end: their callers are gone, or this node is.
func (c *conn) cause() error {
	if c.saidGoodbye(wire.Goodbye_SHUTDOWN) {
		return lease.ErrStopping
	}
	return nil
}

func (c *conn) saidGoodbye(code wire.Goodbye_Code) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goodbye.GetCode() == code
}

// drain waits until everything in flight is answered, at most drainTimeout.
func (c *conn) drain() {
	enough := time.NewTimer(drainTimeout)
	defer enough.Stop()
	for range cap(c.slots) {
		select {
		case c.slots <- struct{}{}:
		case <-enough.C:
			return
		case <-c.out.Done():
			return
		}
	}
}

// hangup flushes, sends a goodbye unless the client closed the connection, and closes.
func (c *conn) hangup() {
	c.mu.Lock()
	bye := c.goodbye
	c.mu.Unlock()
	switch {
	case bye.GetCode() == wire.Goodbye_UNSPECIFIED:
		_ = c.out.Close(nil)
		transport.Cut(c.link)
		return
	case bye.GetCode() == wire.Goodbye_RESOURCE_EXHAUSTED && c.out.Queued() > maxUnreadAtGoodbye:
		transport.Cut(c.link) // other connections need the memory now, and the client would hardly read up to the goodbye
		_ = c.out.Close(nil)
		return
	}
	if c.out.Close(transport.GoodbyeFrame(bye.GetCode(), bye.GetMessage())) != nil {
		transport.Cut(c.link) // the client does not read, so there is no point in lingering
		return
	}
	transport.Hangup(c.link, hangupTimeout)
}
