package client

import (
	"cmp"
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
	// Backoff of connections. Those that end early follow without delay at first.
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
	// identity is the one that the node has verified.
	identity string
	leader   *wire.LeaderHint
	nc       net.Conn
	since    time.Time // when it was established
	in       *transport.FrameReader
	frames   wire.ServerFrameDecoder // decodes what in reads
	out      *transport.Outbox

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
	seen       position      // the latest that its answers have shown of the cluster's history
	err        error         // why the client ended it, if it did
}

// fail ends the connection: its reader returns, and the next connection is established.
func (cn *conn) fail(err error) {
	if cn.err == nil {
		cn.err = err
	}
	transport.Cut(cn.nc)
}

// connector keeps the connection to the leader, or to any node while there is no leader. Except for need it is guarded by
// the client's mutex.
type connector struct {
	client *Client
	need   chan struct{} // holds one token while there may be a connection to use, or a reason to look for one

	conn    *conn            // nil while disconnected
	made    *conn            // an established connection to use next
	silence time.Duration    // how long a request may be unanswered before the connection is closed
	leader  *wire.LeaderHint // the leader of the highest known term
	cluster string           // cluster id of the last connection
	overdue map[string]int   // hellos that go on after the end of their ctx, by address
	lastErr error            // error of the last connection attempt, reported to callers that stop waiting
	refusal error            // why the cluster does not accept this client's connections; nil while it does
	full    error            // why a node has no place for this client; nil after a connection to the leader
}

// run uses the connections that the search makes, one after the other, until Close.
func (n *connector) run() {
	defer n.client.wg.Done()
	defer n.discardMade()
	for {
		cn := n.awaitMade()
		if cn == nil {
			return
		}
		stop := context.AfterFunc(n.client.ctx, func() { n.hangUp(cn) })
		var err error
		if n.adopt(cn) {
			err = n.read(cn)
		}
		stop()
		n.drop(cn, err)
	}
}

// awaitMade has the search make a connection whenever there is a reason to, and waits for one. It returns nil once the
// client is closed.
func (n *connector) awaitMade() *conn {
	for {
		n.client.mu.Lock()
		cn := n.made
		n.made = nil
		if cn == nil {
			n.client.search.seek(n.client.clock.Now())
		}
		n.client.unlock()
		if cn != nil {
			return cn
		}
		select {
		case <-n.need:
		case <-n.client.ctx.Done():
			return nil
		}
	}
}

// discardMade discards an established connection that will not be used.
func (n *connector) discardMade() {
	n.client.mu.Lock()
	defer n.client.unlock()
	if n.made != nil {
		n.made.discard()
		n.made = nil
	}
}

// hangUp closes the connection of a closed client after flushing its outbox.
func (n *connector) hangUp(cn *conn) {
	_ = cn.out.Close(nil)
	transport.Cut(cn.nc)
}

// wanted reports whether there is work that only a leader can do.
func (n *connector) wanted() bool {
	return len(n.client.sessions)+len(n.client.watchers)+n.client.ready.n+n.client.urgent.n+n.client.stalled.n > 0
}

// backoff returns a random time up to first·2^n, capped at most (full jitter).
func backoff(n int, first, most time.Duration) time.Duration {
	limit := most
	if n = max(n, 0); n < 16 {
		limit = min(most, first<<n)
	}
	return rand.N(limit) + time.Microsecond
}

// greeting is a network connection and the node's answer to its hello.
type greeting struct {
	nc    net.Conn
	reply *wire.HelloReply
	in    *transport.FrameReader
}

// leads reports whether the node names itself.
func (g *greeting) leads() bool {
	return g.reply.GetNodeId() != "" && g.reply.GetNodeId() == g.reply.GetLeader().GetId()
}

// newConn returns the conn for a network connection that has completed the hello.
func newConn(addr string, g *greeting) *conn {
	reply := g.reply
	cn := &conn{
		addr: addr, node: reply.GetNodeId(), cluster: reply.GetClusterId(), identity: reply.GetIdentity(), leader: reply.GetLeader(), nc: g.nc, in: g.in, since: time.Now(),
		window: int(min(reply.GetMaxInFlight(), 1<<20)),
	}
	if cn.window == 0 {
		cn.window = defaultWindow
	}
	cn.reserve = cn.window / 8
	cn.leads = g.leads()
	cn.term = cn.leader.GetTerm()
	cn.out = transport.NewOutbox(g.nc, transport.OutboxConfig{MaxFrame: int(reply.GetMaxFrameBytes()), MaxBytes: 16 << 20})
	return cn
}

// greet opens a connection and returns the node's answer to the first frame, which presents the token, if there
// is one. With tunnelTo, that frame asks for a tunnel to the leader.
func (n *connector) greet(ctx context.Context, addr, tunnelTo string) (*greeting, error) {
	var network transport.Network
	if n.client.cfg.Dial != nil {
		network = dialler(n.client.cfg.Dial)
	}
	token, err := n.client.cfg.credential(addr)
	if err != nil {
		return nil, err
	}
	nc, err := transport.Dial(ctx, network, addr, n.client.cfg.TLS)
	if err != nil {
		return nil, err
	}
	reply, in, err := transport.ClientHandshake(ctx, nc, &wire.Hello{Agent: n.client.cfg.Agent, TunnelTo: tunnelTo, AuthToken: token})
	if err != nil {
		transport.Cut(nc)
		return nil, err
	}
	return &greeting{nc, reply, in}, nil
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
func (n *connector) adopt(cn *conn) bool {
	n.client.mu.Lock()
	defer n.client.unlock()
	if n.client.halted || n.made != nil { // a better one was made meanwhile
		return false
	}
	n.conn, n.refusal = cn, nil
	cn.receivedAt = n.client.mu.now()
	cn.spoke = cn.receivedAt
	n.begin(cn)
	n.client.note(slog.LevelInfo, "connected", "addr", cn.addr, "node", cn.node, "leads", cn.leads, "tunnel", cn.direct != "", "identity", cn.identity)
	if cn.leads {
		n.full = nil
		n.client.attachAll()
	}
	n.client.search.arm()
	n.client.pump()
	return true
}

// begin accepts what the node reports about the leader. It replaces earlier information if the node itself
// leads or belongs to another cluster, because each cluster counts terms from the start. A node without a
// cluster id may belong to another cluster, even if the client connected before to nodes without one.
func (n *connector) begin(cn *conn) {
	if cn.leads || cn.cluster == "" || cn.cluster != n.cluster {
		n.leader = &wire.LeaderHint{Term: min(n.leader.GetTerm(), cn.term)}
	}
	n.cluster = cn.cluster
	n.noteLeader(cn.leader)
}

// noteLeader remembers the leader of the highest term.
func (n *connector) noteLeader(hint *wire.LeaderHint) {
	if hint.GetId() != "" && hint.GetTerm() >= n.leader.GetTerm() {
		n.leader = hint
	}
}

// leadsNow starts to use a node that was already connected when it became leader. Sessions attached in an
// earlier term of that node are no longer attached.
func (n *connector) leadsNow(cn *conn, term uint64) {
	if cn.leads && term <= cn.term {
		return
	}
	cn.leads, cn.term = true, term
	n.client.search.found(cn)
	for _, s := range n.client.sessions {
		s.conn = nil
	}
	n.client.attachAll()
	n.client.pump()
}

// attachAll attaches every session to the connection, which also sends their requests.
func (t *sessionTable) attachAll() {
	for _, s := range t.sessions {
		s.attach()
	}
}

// read handles frames until the connection ends.
func (n *connector) read(cn *conn) error {
	for {
		if err := cn.in.ReadBy(&cn.frames); err != nil {
			return err
		}
		if err := n.handle(cn, cn.frames.Frame()); err != nil {
			return err
		}
	}
}

func (n *connector) handle(cn *conn, frame *wire.ServerFrame) error {
	n.client.mu.Lock()
	defer n.client.unlock()
	if cn.err != nil {
		// The client has left this connection. Its answers would be mistaken for answers of the next one.
		return cn.err
	}
	cn.receivedAt = n.client.mu.now()
	switch f := frame.GetFrame().(type) {
	case *wire.ServerFrame_Response:
		return n.client.onResponse(cn, f.Response)
	case *wire.ServerFrame_Push:
		return n.client.onPush(cn, f.Push)
	case *wire.ServerFrame_Goodbye:
		return &transport.GoodbyeError{Code: f.Goodbye.GetCode(), Message: f.Goodbye.GetMessage()}
	}
	return fmt.Errorf("%w: unexpected frame %T", transport.ErrMalformed, frame.GetFrame())
}

// drop abandons a connection and requeues its requests in flight.
func (n *connector) drop(cn *conn, err error) {
	transport.Cut(cn.nc)
	_ = cn.out.Close(nil)
	n.client.mu.Lock()
	defer n.client.unlock()
	if cn.err != nil {
		err = cn.err
	}
	if n.conn == cn {
		n.conn = nil
	}
	n.client.search.ended(cn, n.client.clock.Now())
	n.lastErr = fmt.Errorf("connection to %s: %w", cn.addr, err)
	n.full = cmp.Or(noPlace(err), n.full)
	for _, s := range n.client.sessions {
		s.detach()
		s.attaching, s.heartbeat, s.acknowledging = nil, nil, nil
	}
	for k := n.client.flight.pop(); k != nil; k = n.client.flight.pop() {
		n.client.byID.remove(k)
		n.client.cutOff(cn, k)
	}
	for _, l := range []*callList{&n.client.urgent, &n.client.ready, &n.client.stalled} {
		n.client.lineUp(l)
	}
	n.client.retryAt = 0
	n.client.rewatch(cn)
	if refusal := refusalOf(err); refusal != nil && !cn.useful {
		n.refused(refusal)
	}
	if !n.client.halted {
		n.client.note(slog.LevelInfo, "connection ended", "addr", cn.addr, "node", cn.node, "err", err)
		n.wakeConnector()
	}
}

// cutOff handles a call whose answer will not arrive any more.
func (t *requestTable) cutOff(cn *conn, k *call) {
	switch {
	case k.finished:
	case t.transferred(cn, k):
		k.response = &wire.Response{Leader: t.client.leader}
		t.finish(k)
	case k.kind.policy().ofConnection:
		t.finish(k)
	case removes(k, cn.node):
		t.place(k)
	case k.kind.policy().once:
		t.fail(k, &StatusError{StatusUncertain, t.client.lastErr.Error()})
	case k.kind == kindOpen && k.abandoned:
		// If a session was opened, no heartbeat will be sent for it, so it ends with its TTL.
		t.finish(k)
	default:
		t.place(k)
	}
}

// transferred reports whether a leadership transfer is known to have succeeded: the push about the new
// leader arrived before the answer, and the client has followed it.
func (t *requestTable) transferred(cn *conn, k *call) bool {
	body, ok := k.request.Body.(*wire.Request_TransferLeadership)
	if !ok || t.client.leader.GetTerm() <= cn.term || t.client.leader.GetId() == cn.node {
		return false
	}
	wanted := body.TransferLeadership.GetId()
	return wanted == "" || wanted == t.client.leader.GetId()
}

// removes reports whether a call asks a node to remove itself. No node does that: a leader hands leadership over, so that
// the call can be sent to the next one.
func removes(k *call, node string) bool {
	body, ok := k.request.Body.(*wire.Request_RemoveMember)
	return ok && node != "" && body.RemoveMember.GetId() == node
}

// lineUp moves the calls of one list back to where they wait for a connection.
func (t *requestTable) lineUp(l *callList) {
	for n := l.n; n > 0; n-- {
		k := l.pop()
		if k.kind.policy().ofConnection {
			t.finish(k)
			continue
		}
		t.place(k)
	}
}
