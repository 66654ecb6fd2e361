package framed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/budget"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// How long a connection that ends may take to answer what is under way, and to let the
// other side read the goodbye.
const (
	drainTimeout  = time.Second
	hangupTimeout = time.Second
	// farewellBytes may be unread before a goodbye where the node needs the memory.
	farewellBytes = 64 << 10
)

// conn is one connection after its handshake. Its reader runs in serve; the outbox has
// the writer; all else runs on the goroutines of whoever has something to say.
type conn struct {
	srv    *Server
	link   *link
	frames *transport.FrameReader
	out    *transport.Outbox
	remote string
	agent  string
	slots  chan struct{}   // one element per request under way
	memory *budget.Account // what the connection holds; nil without a budget
	// noMemory says that the node has no memory left for another connection.
	noMemory error
	told     *wire.LeaderHint // what the client was told last; guarded by the server's hints

	arrived  *exchange          // the request that was read last; only the reader uses it
	enlisted []replica.Proposal // of what was read, what is not proposed yet; only the reader uses it

	pages sync.Mutex // one page at a time is weighed and sent

	ctx     context.Context // ends when the connection does
	cancel  context.CancelFunc
	running sync.WaitGroup // of requests that have a goroutine; only the reader starts them

	unflushed atomic.Bool // what is queued goes out with the next flush of the server's flusher

	mu       sync.Mutex // guards what follows
	attached map[uint64]struct{}
	watches  map[uint64]*watch // by the id of their request
	ended    bool
	closed   bool // nothing may be bound any more
	goodbye  *wire.Goodbye
}

func newConn(srv *Server, l *link, frames *transport.FrameReader, agent string) *conn {
	limits := srv.cfg.Limits
	c := &conn{
		srv:      srv,
		link:     l,
		frames:   frames,
		remote:   l.RemoteAddr().String(),
		agent:    agent,
		slots:    make(chan struct{}, limits.MaxInFlight),
		attached: map[uint64]struct{}{},
		watches:  map[uint64]*watch{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	l.busy = c.busy
	c.memory, c.noMemory = srv.cfg.Buffers.Open(connBytes, c.heldMost)
	frames.SetMeter(c.memory)
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
	// connBytes is what a connection takes that has little to say: two goroutines, the first
	// part of its buffers, TLS.
	connBytes = 32 << 10
	// watchBytes is what a watch takes: a goroutine, and what it is about to send.
	watchBytes = 32 << 10
)

// heldMost is called when the node's buffers are used up and this connection holds most.
func (c *conn) heldMost() {
	c.end(wire.Goodbye_RESOURCE_EXHAUSTED, "the node's buffers are used up (--max-buffer-bytes), and this connection held most of them")
}

// busy says whether silence from this client is nothing to worry about.
func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.attached) > 0 || len(c.watches) > 0 || len(c.slots) > 0
}

// serve reads until the connection ends, and takes it down.
func (c *conn) serve() {
	err := c.frames.Receive(c)
	c.frames.Free() // to hang up may take a while
	c.propose()
	c.endFor(err)
	c.cancel()
	c.forgetSessions()
	c.running.Wait()
	if c.saidGoodbye(wire.Goodbye_SHUTDOWN) {
		c.drain()
	}
	c.hangup()
}

// Received takes the request in that was decoded last.
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
	c.srv.metrics.count(req)
	if x.Frequent {
		x.begin(c)
		return nil
	}
	exchanges.Put(x) // the request has memory of its own
	c.propose()      // in the order in which they came
	c.dispatch(req)
	return nil
}

// maxEnlisted is how many commands are proposed together at most.
const maxEnlisted = 256

// enlist proposes a command together with others that came in the same read.
func (c *conn) enlist(p replica.Proposal) {
	if c.enlisted = append(c.enlisted, p); len(c.enlisted) == maxEnlisted {
		c.propose()
	}
}

// propose hands over what was enlisted.
func (c *conn) propose() {
	if len(c.enlisted) > 0 {
		c.srv.cfg.Replica.ProposeAll(c.enlisted)
		clear(c.enlisted)
		c.enlisted = c.enlisted[:0]
	}
}

// Rested is called before the reader waits.
func (c *conn) Rested(begun bool) error {
	c.propose()
	return c.link.rest(begun)
}

// Overdue is called when it has waited for long.
func (c *conn) Overdue() error { return c.link.silence() }

// takeSlot makes the request one of those under way. While there are as many as there may be,
// the client feels the back-pressure.
func (c *conn) takeSlot() error {
	select {
	case c.slots <- struct{}{}: // far cheaper than a choice of two
		return nil
	default:
	}
	c.propose() // only answers make room
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-c.link.ending:
		return errEnded
	}
}

// Decode takes memory for a request when its bytes are there: a silent connection has
// none. Only the reader calls it.
func (c *conn) Decode(b []byte) error {
	c.arrived = newExchange()
	c.arrived.size = len(b)
	return c.arrived.Decode(b)
}

// respondFor answers a request of a session, with the time that is left to it.
func (c *conn) respondFor(req *wire.Request, res *wire.Result, session uint64) {
	resp := &wire.Response{Id: req.GetId(), Result: res}
	c.addRemaining(resp, session)
	c.reply(resp)
}

// addRemaining tells the time that is left to a session, if the request succeeded.
func (c *conn) addRemaining(resp *wire.Response, session uint64) {
	if succeeded(resp.GetResult()) {
		if left, known := c.srv.cfg.Replica.Remaining(session); known {
			resp.RemainingTtlMs = milliseconds(left)
		}
	}
}

func succeeded(res *wire.Result) bool {
	s := res.GetStatus()
	return s == wire.Status_GRANTED || s == wire.Status_OK
}

func milliseconds(left time.Duration) uint64 { return uint64(max(left, 0).Milliseconds()) }

// respond answers a request with a status alone.
func (c *conn) respond(req *wire.Request, res *wire.Result) {
	c.reply(&wire.Response{Id: req.GetId(), Result: res})
}

// replyPage gathers a page and replies with it. Half of the outbox is kept free of pages, so
// that a client which asks for more of them than it reads is told so instead of losing its
// sessions. What could not be sent is not gathered.
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

// reply sends the one response to a request. It does not wait.
func (c *conn) reply(resp *wire.Response) {
	c.conclude(c.answer(responseFrame(resp), resp, atOnce))
}

// put is a way into an outbox.
type put func(*transport.Outbox, proto.Message) error

var (
	atOnce put = (*transport.Outbox).Send
	// untilFlush leaves it to the server's flusher.
	untilFlush put = (*transport.Outbox).Queue
)

// answer queues a frame with its response, or why that is impossible.
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

// conclude makes room for another request, once one is answered.
func (c *conn) conclude(err error) {
	<-c.slots
	c.noteSendError(err)
}

func responseFrame(resp *wire.Response) *wire.ServerFrame {
	return &wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: resp}}
}

// noteSendError ends the connection if what had to be said could not be.
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

// end has the reader take the connection down. The first reason stays.
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

// endFor is end with the reason why reading ended.
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

func (c *conn) saidGoodbye(code wire.Goodbye_Code) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goodbye.GetCode() == code
}

// drain waits until everything under way is answered, or for long enough.
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

// hangup flushes, says goodbye where that was not the client's own wish, and closes.
func (c *conn) hangup() {
	c.mu.Lock()
	bye := c.goodbye
	c.mu.Unlock()
	switch {
	case bye.GetCode() == wire.Goodbye_UNSPECIFIED:
		_ = c.out.Close(nil)
		transport.Cut(c.link)
		return
	case bye.GetCode() == wire.Goodbye_RESOURCE_EXHAUSTED && c.out.Queued() > farewellBytes:
		transport.Cut(c.link) // others need the memory now, and it would hardly read so far
		_ = c.out.Close(nil)
		return
	}
	if c.out.Close(transport.Farewell(bye.GetCode(), bye.GetMessage())) != nil {
		transport.Cut(c.link) // it does not read: nobody to linger for
		return
	}
	transport.Hangup(c.link, hangupTimeout)
}
