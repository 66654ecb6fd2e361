package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// helloTimeout bounds dialling a node, TLS and the hello.
	helloTimeout = time.Second
	// defaultWindow is the maximum number of requests in flight if the node sets none.
	defaultWindow = 128
	// Backoff of connections. The first ones follow without delay, since a leader that moved is usually
	// found by the second or third.
	connectFree  = 3
	connectFirst = 10 * time.Millisecond
	connectMost  = time.Second
	// steady is how long a connection must last to count as a success. One that answers but ends sooner
	// counts as a failure, because whatever ended it may happen again immediately.
	steady = time.Second
	// Backoff of requests that were answered "not now".
	retryFirst = 5 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)

// conn is one connection, from its hello to its end.
type conn struct {
	addr    string
	node    string // id of the node at the other end
	cluster string // id of that node's cluster
	leader  *wire.LeaderHint
	nc      net.Conn
	since   time.Time // when it was established
	in      *transport.FrameReader
	frames  wire.ServerFrameDecoder // decodes what in reads
	out     *transport.Outbox

	window  int // maximum number of requests in flight
	reserve int // part of the window reserved for urgent requests

	// Guarded by the client's mutex.
	leads      bool          // the node leads, as far as the client knows
	term       uint64        // the term in which it leads
	receivedAt time.Duration // when the last frame arrived
	spoke      time.Duration // when the last frame was sent
	pinged     time.Duration // when the last ping was sent
	useful     bool          // it brought a definite answer
	direct     string        // tunnel only: the leader's own address
	retry      time.Duration // tunnel only: when to try that address again
	err        error         // why the client ended it, if it did
}

// fail ends the connection: its reader returns, and the next connection is established.
func (cn *conn) fail(err error) {
	if cn.err == nil {
		cn.err = err
	}
	transport.Cut(cn.nc)
}

// run connects whenever there is a reason to, until Close.
func (c *Client) run() {
	defer c.wg.Done()
	defer c.discardMade()
	for c.awaitNeed() {
		cn, err := c.connect()
		if err != nil {
			c.connectFailed(err)
			continue
		}
		stop := context.AfterFunc(c.ctx, func() { c.hangUp(cn) })
		if c.adopt(cn) {
			err = c.read(cn)
		}
		stop()
		c.drop(cn, err)
	}
}

// hangUp closes the connection of a closed client after flushing its outbox.
func (c *Client) hangUp(cn *conn) {
	_ = cn.out.Close(nil)
	transport.Cut(cn.nc)
}

// awaitNeed waits for the backoff and then for a reason to connect. It returns false once the client is
// closed.
func (c *Client) awaitNeed() bool {
	c.mu.Lock()
	c.attempts++
	wait := backoff(c.attempts-connectFree, connectFirst, connectMost)
	if c.attempts <= connectFree || c.made != nil {
		wait = 0
	}
	c.mu.Unlock()
	if wait > 0 {
		pause := time.NewTimer(wait)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-c.ctx.Done():
			return false
		}
	}
	for {
		c.mu.Lock()
		needed := c.wanted() || c.anywhere.n > 0
		c.mu.Unlock()
		if needed && c.ctx.Err() == nil {
			return true
		}
		select {
		case <-c.need:
		case <-c.ctx.Done():
			return false
		}
	}
}

// wanted reports whether there is work that only a leader can do.
func (c *Client) wanted() bool {
	return len(c.sessions)+len(c.watchers)+c.ready.n+c.urgent.n+c.stalled.n > 0
}

// backoff returns a random time up to first·2^n, capped at most (full jitter).
func backoff(n int, first, most time.Duration) time.Duration {
	limit := most
	if n = max(n, 0); n < 16 {
		limit = min(most, first<<n)
	}
	return rand.N(limit) + time.Microsecond
}

func (c *Client) connectFailed(err error) {
	c.mu.Lock()
	c.lastErr = err
	c.note(slog.LevelWarn, "no node reached", "err", err)
	c.wakeConnector()
	c.unlock()
}

// dial opens a connection and completes the hello.
func (c *Client) dial(ctx context.Context, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	nc, reply, in, err := c.hello(ctx, addr, "")
	if err != nil {
		return nil, err
	}
	return newConn(addr, nc, reply, in), nil
}

// newConn returns the conn for a network connection that has completed the hello.
func newConn(addr string, nc net.Conn, reply *wire.HelloReply, in *transport.FrameReader) *conn {
	cn := &conn{
		addr: addr, node: reply.GetNodeId(), cluster: reply.GetClusterId(), leader: reply.GetLeader(), nc: nc, in: in, since: time.Now(),
		window: int(min(reply.GetMaxInFlight(), 1<<20)),
	}
	if cn.window == 0 {
		cn.window = defaultWindow
	}
	cn.reserve = cn.window / 8
	cn.leads = cn.node != "" && cn.leader.GetId() == cn.node
	cn.term = cn.leader.GetTerm()
	cn.out = transport.NewOutbox(nc, transport.OutboxConfig{MaxFrame: int(reply.GetMaxFrameBytes()), MaxBytes: 16 << 20})
	return cn
}

// hello opens a connection and returns the node's answer to the first frame. With tunnelTo, that frame asks
// for a tunnel to the leader.
func (c *Client) hello(ctx context.Context, addr, tunnelTo string) (net.Conn, *wire.HelloReply, *transport.FrameReader, error) {
	var network transport.Network
	if c.cfg.Dial != nil {
		network = dialler(c.cfg.Dial)
	}
	nc, err := transport.Dial(ctx, network, addr, c.cfg.TLS)
	if err != nil {
		return nil, nil, nil, err
	}
	reply, in, err := transport.ClientHandshake(ctx, nc, &wire.Hello{Agent: c.cfg.Agent, TunnelTo: tunnelTo})
	if err != nil {
		transport.Cut(nc)
		return nil, nil, nil, err
	}
	return nc, reply, in, nil
}

// dialler adapts a dial function to transport.Network.
type dialler func(ctx context.Context, addr string) (net.Conn, error)

// Dial calls the function.
func (d dialler) Dial(ctx context.Context, addr string) (net.Conn, error) { return d(ctx, addr) }

// Listen is not supported by a client.
func (dialler) Listen(context.Context, string) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}

// discard ends a connection that will not be used.
func (cn *conn) discard() {
	transport.Cut(cn.nc)
	_ = cn.out.Close(nil)
}

// adopt makes cn the client's connection, attaches every session and sends the waiting requests.
func (c *Client) adopt(cn *conn) bool {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return false
	}
	c.conn = cn
	cn.receivedAt = c.mu.now()
	cn.spoke = cn.receivedAt
	c.begin(cn)
	c.note(slog.LevelInfo, "connected", "addr", cn.addr, "node", cn.node, "leads", cn.leads, "tunnel", cn.direct != "")
	if cn.leads {
		c.reroute.used = cn.direct != ""
		c.attachAll()
	}
	c.armAround(cn)
	c.pump()
	return true
}

// begin accepts what the node reports about the leader. It replaces earlier information if the node itself
// leads or belongs to another cluster, because each cluster counts terms from the start. A node without a
// cluster id may belong to another cluster, even if the client connected before to nodes without one.
func (c *Client) begin(cn *conn) {
	if cn.leads || cn.cluster == "" || cn.cluster != c.cluster {
		c.leader = &wire.LeaderHint{Term: min(c.leader.GetTerm(), cn.term)}
	}
	c.cluster = cn.cluster
	c.noteLeader(cn.leader)
}

// attachAll attaches every session to the connection, which also sends their requests.
func (c *Client) attachAll() {
	for _, s := range c.sessions {
		s.attach()
	}
}

// read handles frames until the connection ends.
func (c *Client) read(cn *conn) error {
	for {
		if err := cn.in.ReadBy(&cn.frames); err != nil {
			return err
		}
		if err := c.handle(cn, cn.frames.Frame()); err != nil {
			return err
		}
	}
}

func (c *Client) handle(cn *conn, frame *wire.ServerFrame) error {
	c.mu.Lock()
	defer c.unlock()
	if cn.err != nil {
		// The client has left this connection. Its answers would be mistaken for answers of the next one.
		return cn.err
	}
	cn.receivedAt = c.mu.now()
	switch f := frame.GetFrame().(type) {
	case *wire.ServerFrame_Response:
		return c.onResponse(cn, f.Response)
	case *wire.ServerFrame_Push:
		return c.onPush(cn, f.Push)
	case *wire.ServerFrame_Goodbye:
		return &transport.GoodbyeError{Code: f.Goodbye.GetCode(), Message: f.Goodbye.GetMessage()}
	}
	return fmt.Errorf("%w: unexpected frame %T", transport.ErrMalformed, frame.GetFrame())
}

// drop abandons a connection and requeues its requests in flight.
func (c *Client) drop(cn *conn, err error) {
	transport.Cut(cn.nc)
	_ = cn.out.Close(nil)
	c.mu.Lock()
	defer c.unlock()
	if cn.err != nil {
		err = cn.err
	}
	if c.conn == cn {
		c.conn = nil
	}
	if cn.direct != "" && c.next == nil && c.made == nil {
		c.next = &wire.LeaderHint{ClientAddr: cn.addr} // that node knows the leader and is reachable
	}
	if cn.useful && time.Since(cn.since) >= steady {
		c.attempts = 0
	}
	if c.cancelProbe != nil {
		c.cancelProbe() // the next connection starts its own probe
	}
	c.lastErr = fmt.Errorf("connection to %s: %w", cn.addr, err)
	for _, s := range c.sessions {
		s.conn, s.attaching, s.heartbeat, s.acknowledging = nil, nil, nil, nil
	}
	for k := c.flight.pop(); k != nil; k = c.flight.pop() {
		c.byID.remove(k)
		c.cutOff(cn, k)
	}
	for _, l := range []*callList{&c.urgent, &c.ready, &c.stalled} {
		c.lineUp(l)
	}
	c.retryAt = 0
	c.rewatch(cn)
	if !c.closed {
		c.note(slog.LevelInfo, "connection ended", "addr", cn.addr, "node", cn.node, "err", err)
		c.wakeConnector()
	}
}

// cutOff handles a call whose answer will not arrive any more.
func (c *Client) cutOff(cn *conn, k *call) {
	switch {
	case k.finished:
	case c.transferred(cn, k):
		k.response = &wire.Response{Leader: c.leader}
		c.finish(k)
	case k.ofConnection():
		c.finish(k)
	case k.kind == kindAdmin, k.kind == kindOperate:
		c.fail(k, &StatusError{wire.Status_UNCERTAIN, c.lastErr.Error()})
	case k.kind == kindOpen && k.abandoned:
		// If a session was opened, no heartbeat will be sent for it, so it ends with its TTL.
		c.finish(k)
	default:
		c.place(k)
	}
}

// transferred reports whether a leadership transfer is known to have succeeded: the push about the new
// leader arrived before the answer, and the client has followed it.
func (c *Client) transferred(cn *conn, k *call) bool {
	body, ok := k.request.Body.(*wire.Request_TransferLeadership)
	if !ok || c.leader.GetTerm() <= cn.term || c.leader.GetId() == cn.node {
		return false
	}
	wanted := body.TransferLeadership.GetId()
	return wanted == "" || wanted == c.leader.GetId()
}

// lineUp moves the calls of one list back to where they wait for a connection.
func (c *Client) lineUp(l *callList) {
	for n := l.n; n > 0; n-- {
		k := l.pop()
		if k.ofConnection() {
			c.finish(k)
			continue
		}
		c.place(k)
	}
}
