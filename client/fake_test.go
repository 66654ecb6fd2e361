package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a cluster in memory that uses the real framing. One node leads. The state is shared, as if
// replication took no time. Tests script it through intercept.
type fake struct {
	t     testing.TB
	clock *testClock
	start time.Time

	mu        sync.Mutex
	nodes     map[string]*fakeNode // by address
	members   int                  // number of nodes that every node names
	leader    *wire.LeaderHint
	cluster   string
	service   *service
	clients   []*Client // clients whose state is checked
	seen      []seen
	window    uint32
	highest   int // highest number of unanswered requests on any connection
	intercept func(cn *fakeConn, req *wire.Request) bool
	onLost    func(k *claim, reason wire.HoldLost_Reason) // called before a hold ends by time or force
	lag       func() time.Duration                        // of the network, each way; nil means none
	hellos    []*wire.Hello
	admit     func(*wire.Hello) *wire.Goodbye // nil admits every client
}

// seen is a request as it arrived.
type seen struct {
	at   time.Duration // since the start, by the test's clock
	node string
	conn *fakeConn
	req  *wire.Request
}

type fakeNode struct {
	f        *fake
	id, addr string
	down     bool             // refuses connections
	hung     bool             // accepts connections and never answers
	silent   bool             // packets from the client to its address are lost
	believes *wire.LeaderHint // the leader it names, if not the actual one
	dials    int
	asked    int  // number of requests for tunnels
	tunnels  bool // opens tunnels
	conns    []*fakeConn
}

type fakeConn struct {
	f       *fake
	node    *fakeNode
	nc      net.Conn
	out     *transport.Outbox
	pending int
	tunnel  bool             // it comes through another node
	told    *wire.LeaderHint // the leader that its hello named
	// When the last frame arrives, each way, if the network has a lag.
	inAt, outAt time.Time
}

// testClock is virtual time in a bubble, plus the time the machine was suspended.
type testClock struct {
	start     time.Time
	suspended atomic.Int64
	rung      func() // called after each timer has fired
}

func (c *testClock) Now() time.Duration {
	return time.Since(c.start) + time.Duration(c.suspended.Load()) + time.Second
}

func (c *testClock) AfterFunc(d time.Duration, f func()) Timer {
	return time.AfterFunc(d, func() {
		f()
		if c.rung != nil {
			c.rung()
		}
	})
}

func newFake(t testing.TB, nodes int) *fake {
	f := makeFake(nodes)
	f.t = t
	f.clock.rung = func() { f.check("after an alarm") }
	t.Cleanup(f.close)
	return f
}

func makeFake(nodes int) *fake {
	f := &fake{start: time.Now(), clock: &testClock{start: time.Now()}, nodes: make(map[string]*fakeNode), window: 64}
	f.service = newService(f)
	for i := 1; i <= nodes; i++ {
		n := &fakeNode{f: f, id: fmt.Sprintf("n%d", i), addr: fmt.Sprintf("n%d:7400", i)}
		f.nodes[n.addr] = n
	}
	f.lead("n1", 1)
	return f
}

func (f *fake) close() {
	for _, n := range f.nodes {
		f.cut(n.id)
	}
}

// lead makes a node the leader of a term without notifying any client.
func (f *fake) lead(id string, term uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leader = &wire.LeaderHint{Id: id, ClientAddr: id + ":7400", Term: term}
	f.service.restartBounds()
}

// elect makes a node the leader of a term, and notifies all connections except those of the deaf nodes.
func (f *fake) elect(id string, term uint64, deaf ...string) {
	f.lead(id, term)
	f.set(func() {
		for _, n := range f.nodes {
			for _, cn := range n.conns {
				if cn.out != nil && !slices.Contains(deaf, n.id) {
					cn.push(&wire.Push{Body: &wire.Push_Leader{Leader: f.leader}})
				}
			}
		}
	})
}

func (f *fake) node(id string) *fakeNode { return f.nodes[id+":7400"] }

// cut ends all connections of a node.
func (f *fake) cut(id string) {
	f.mu.Lock()
	conns := f.node(id).conns
	f.node(id).conns = nil
	f.mu.Unlock()
	for _, cn := range conns {
		_ = cn.nc.Close()
	}
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) config() Config {
	cfg := Config{Dial: f.dial, Clock: f.clock, Agent: "test"}
	for i := range len(f.nodes) {
		cfg.Endpoints = append(cfg.Endpoints, fmt.Sprintf("n%d:7400", i+1))
	}
	return cfg
}

func (f *fake) client() *Client {
	f.t.Helper()
	c, err := New(f.config())
	if err != nil {
		f.t.Fatal(err)
	}
	f.set(func() { f.clients = append(f.clients, c) })
	f.t.Cleanup(func() {
		_ = c.Close()
		f.check("after Close")
	})
	return c
}

// session opens a session with a TTL of 15 s.
func (f *fake) session(c *Client) *Session {
	f.t.Helper()
	s, err := c.NewSession(context.Background(), SessionOptions{TTL: 15 * time.Second, Name: "tester"})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// dials counts the connections made to all nodes.
func (f *fake) dials() (sum int) {
	f.set(func() {
		for _, n := range f.nodes {
			sum += n.dials
		}
	})
	return sum
}

func (f *fake) dial(ctx context.Context, addr string) (net.Conn, error) {
	f.mu.Lock()
	if n := f.nodes[addr]; n != nil && n.silent {
		f.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	defer f.mu.Unlock()
	n := f.nodes[addr]
	if n == nil || n.down {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	n.dials++
	near, far := net.Pipe()
	cn := &fakeConn{f: f, node: n, nc: far}
	n.conns = append(n.conns, cn)
	go cn.serve(n.hung)
	return near, nil
}

func (cn *fakeConn) serve(hung bool) {
	defer cn.nc.Close()
	if hung {
		cn.drain()
		return
	}
	_, in, err := transport.ServerHandshake(context.Background(), cn.nc, cn.greet)
	if err == nil && cn.tunnel {
		_, in, err = transport.ServerHandshake(context.Background(), cn.nc, cn.greet)
	}
	if err != nil {
		return
	}
	out := transport.NewOutbox(cn.nc, transport.OutboxConfig{})
	defer out.Close(nil)
	cn.f.set(func() {
		cn.out = out
		if hint := cn.node.hint(); !proto.Equal(hint, cn.told) { // since the hello
			cn.push(&wire.Push{Body: &wire.Push_Leader{Leader: hint}})
		}
	})
	for {
		var frame wire.ClientFrame
		if in.Read(&frame) != nil {
			return
		}
		cn.arrive(frame.GetRequest())
	}
}

// greet answers a hello, and opens the tunnel that it asks for.
func (cn *fakeConn) greet(hello *wire.Hello) (*wire.HelloReply, *wire.Goodbye) {
	cn.f.mu.Lock()
	defer cn.f.mu.Unlock()
	cn.f.hellos = append(cn.f.hellos, hello)
	if cn.f.admit != nil {
		if bye := cn.f.admit(hello); bye != nil {
			return nil, bye
		}
	}
	reply := &wire.HelloReply{ClusterId: cn.f.cluster, NodeId: cn.node.id, Leader: cn.node.hint(), MaxInFlight: cn.f.window}
	for i := range cn.f.members {
		reply.Members = append(reply.Members, fmt.Sprintf("n%d:7400", i+1))
	}
	cn.told = reply.Leader
	if hello.GetTunnelTo() == "" {
		return reply, nil
	}
	cn.node.asked++
	reply.Tunnel = &wire.TunnelReply{Status: wire.Status_UNSUPPORTED}
	if cn.node.tunnels && hello.GetTunnelTo() == cn.f.leader.GetId() {
		reply.Tunnel.Status = wire.Status_OK
		cn.node, cn.tunnel = cn.f.node(cn.f.leader.GetId()), true
	}
	return reply, nil
}

// arrive delivers a request after the lag of the network, in order.
func (cn *fakeConn) arrive(req *wire.Request) {
	cn.f.mu.Lock()
	lag := cn.f.lag
	if lag == nil {
		cn.f.mu.Unlock()
		cn.request(req)
		return
	}
	wait := inOrder(&cn.inAt, lag())
	cn.f.mu.Unlock()
	time.AfterFunc(wait, func() { cn.request(req) })
}

// inOrder returns how long a frame takes, given that it must not overtake the last one.
func inOrder(last *time.Time, lag time.Duration) time.Duration {
	now := time.Now()
	at := now.Add(lag)
	if !at.After(*last) {
		at = last.Add(time.Nanosecond)
	}
	*last = at
	return at.Sub(now)
}

// send sends a frame to the client. The caller holds f.mu.
func (cn *fakeConn) send(frame *wire.ServerFrame) {
	if cn.f.lag == nil {
		_ = cn.out.Send(frame)
		return
	}
	time.AfterFunc(inOrder(&cn.outAt, cn.f.lag()), func() { _ = cn.out.Send(frame) })
}

// hint returns the leader that the node names. The caller holds f.mu.
func (n *fakeNode) hint() *wire.LeaderHint {
	if n.believes != nil {
		return proto.CloneOf(n.believes)
	}
	return proto.CloneOf(n.f.leader)
}

// drain reads everything and answers nothing.
func (cn *fakeConn) drain() {
	buf := make([]byte, 1<<10)
	for {
		if _, err := cn.nc.Read(buf); err != nil {
			return
		}
	}
}

func (cn *fakeConn) request(req *wire.Request) {
	f := cn.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, seen{time.Since(f.start), cn.node.id, cn, req})
	cn.pending++
	f.highest = max(f.highest, cn.pending)
	if f.intercept != nil && f.intercept(cn, req) {
		return
	}
	cn.serveRequest(req)
}

// serveRequest answers as a node does. The caller holds f.mu.
func (cn *fakeConn) serveRequest(req *wire.Request) {
	if resp := cn.stale(req); resp != nil {
		cn.answer(req, resp)
		return
	}
	if cn.f.leader.GetId() != cn.node.id {
		cn.answer(req, &wire.Response{Result: status(wire.Status_NOT_LEADER), Leader: cn.node.hint()})
		return
	}
	if resp := cn.f.service.serve(cn, req); resp != nil {
		cn.answer(req, resp)
	}
}

func (cn *fakeConn) stale(req *wire.Request) *wire.Response {
	if !req.GetStatus().GetStale() {
		return nil
	}
	return &wire.Response{Result: status(wire.Status_OK), Body: &wire.Response_Status{Status: &wire.StatusResponse{NodeId: cn.node.id}}}
}

// answer sends a response. The caller holds f.mu.
func (cn *fakeConn) answer(req *wire.Request, resp *wire.Response) {
	cn.pending--
	resp.Id = req.GetId()
	cn.send(&wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: resp}})
}

func (cn *fakeConn) push(p *wire.Push) {
	cn.send(&wire.ServerFrame{Frame: &wire.ServerFrame_Push{Push: p}})
}

func status(code wire.Status_Code) *wire.Result { return &wire.Result{Status: code} }

// count returns the number of requests that satisfy all conditions.
func (f *fake) count(conditions ...func(seen) bool) int { return len(f.all(conditions...)) }

func (f *fake) all(conditions ...func(seen) bool) (found []seen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seen {
		if !slices.ContainsFunc(conditions, func(c func(seen) bool) bool { return !c(s) }) {
			found = append(found, s)
		}
	}
	return found
}

func heartbeats(s seen) bool { return s.req.GetHeartbeat() != nil }
func attaches(s seen) bool   { return s.req.GetAttach() != nil }
func acquires(s seen) bool   { return s.req.GetAcquire() != nil }
func releases(s seen) bool   { return s.req.GetRelease() != nil }
func cancels(s seen) bool    { return s.req.GetCancel() != nil }
func acks(s seen) bool       { return s.req.GetAcknowledge() != nil }
func at(node string) func(seen) bool {
	return func(s seen) bool { return s.node == node }
}

// virtual runs a test in a bubble, where time passes when all goroutines wait. It checks the clients'
// invariants throughout.
func virtual(t *testing.T, nodes int, test func(t *testing.T, f *fake, c *Client)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t, nodes)
		test(t, f, f.client())
		synctest.Wait()
		f.check("at the end")
	})
}

// lockResult is the result of a call in another goroutine.
type lockResult struct {
	hold *Hold
	err  error
}

func lockSoon(ctx context.Context, s *Session, name string) <-chan lockResult {
	ch := make(chan lockResult, 1)
	go func() {
		hold, err := s.Lock(ctx, name)
		ch <- lockResult{hold, err}
	}()
	synctest.Wait()
	return ch
}

func mustLock(t testing.TB, s *Session, name string) *Hold {
	t.Helper()
	hold, err := s.Lock(context.Background(), name)
	if err != nil {
		t.Fatalf("Lock(%s): %v", name, err)
	}
	return hold
}

func wantErr(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("error %v, want one that is %v", err, target)
		}
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
