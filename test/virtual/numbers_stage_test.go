package virtual_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// governed is a cluster with a policy, whose parties have sessions with remembered outcomes from before it.
type governed struct {
	t                *testing.T
	c                *cluster
	leader, follower *node
	registries       []*prometheus.Registry
	parties          map[string]*party
	// victim is another identity, which holds rights.Lock.
	victim     *party
	http       *http.Client
	procedures map[string]procedure
}

// party is a caller.
type party struct {
	g        *governed
	name     string
	token    string
	session  map[string]uint64 // A and B, by name
	examples map[string]proto.Message
	// seqs are the numbers of its requests in both sessions, and outcomes the first answers to them, by kind.
	seqs     map[number]map[string]uint64
	outcomes map[number]map[string]*wire.Result
	// conn is its present connection, and other the one to which session B is attached.
	conn, other *caller
}

// The numbers of the requests in a session. Those from firstSeq on are remembered, one of each kind.
const (
	staleSeq   = 1
	firstSeq   = 3
	pendingSeq = 40
	holdSeq    = 50
)

// newGoverned starts the cluster. Its addresses are on loopback, where tokens are accepted without TLS.
func newGoverned(t *testing.T) *governed {
	g := &governed{t: t, parties: map[string]*party{}, procedures: proceduresOf()}
	var peers []server.Peer
	for i := range 3 {
		peers = append(peers, server.Peer{ID: fmt.Sprintf("n%d", i+1), Addr: fmt.Sprintf("127.0.0.%d:7401", i+1)})
		g.registries = append(g.registries, prometheus.NewRegistry())
	}
	g.c = newClusterOf(t, 1, peers, func(i int, cfg *server.Config) {
		cfg.Listen.HTTP, cfg.Registry = fmt.Sprintf("127.0.0.%d:7402", i+1), g.registries[i]
	})
	g.leader = g.c.leaderWithReports()
	g.follower = g.c.except(g.leader)[0]
	transporter := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return g.c.net.Host("127.0.0.9").Dial(ctx, addr)
	}}
	t.Cleanup(transporter.CloseIdleConnections)
	g.http = &http.Client{Transport: transporter}

	first := g.dial(g.leader, &wire.Hello{}) // its session is 1, which requests of package rights close
	first.must(&wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: make([]byte, 16), TtlMs: 600_000}}})
	first.close()
	g.victim = g.join("victim")
	for _, name := range parties {
		g.parties[name] = g.join(name)
	}
	admin := g.dial(g.leader, &wire.Hello{AuthToken: g.parties["admin"].token})
	admin.must(&wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: partiesPolicy(), Reason: "test"}}})
	return g
}

// join creates an identity with a token, two sessions and a lease. It sends one request of each kind in each session.
func (g *governed) join(name string) *party {
	g.t.Helper()
	p := &party{g: g, name: name, token: identity.NewToken(), session: map[string]uint64{}, seqs: map[number]map[string]uint64{}, outcomes: map[number]map[string]*wire.Result{}}
	for _, n := range []number{executed, pending, elsewhere} {
		p.seqs[n], p.outcomes[n] = map[string]uint64{}, map[string]*wire.Result{}
	}
	setup := g.dial(g.leader, &wire.Hello{})
	setup.must(&wire.Request{Body: &wire.Request_CreateToken{CreateToken: &wire.CreateTokenRequest{Name: name, AuthToken: p.token, Reason: "test"}}})
	setup.close()
	conn := g.dial(g.leader, &wire.Hello{AuthToken: p.token})
	defer conn.close()
	for _, which := range []string{"A", "B"} {
		opened := conn.must(&wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: []byte(p.secret(which)), TtlMs: 600_000}}})
		p.session[which] = opened.GetSession().GetSessionId()
	}
	lock := p.lock()
	if g.victim == nil {
		lock = rights.Lock
	}
	held := conn.must(&wire.Request{SessionId: p.session["A"], Seq: holdSeq, Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: lock}}, Owner: 1}}})
	conn.must(&wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: &wire.AcquireLeaseRequest{
		Secret: []byte(p.secret("lease")), TtlMs: 600_000, Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: p.lock() + "/leased"}}},
	}}})
	p.examples = rights.Requests(held.GetHoldId())
	p.examples["TransferLeadershipRequest"].(*wire.TransferLeadershipRequest).Id = g.leader.id // others would end the stage
	p.executeAll(conn, "A", executed)
	p.executeAll(conn, "B", elsewhere)
	wait := &wire.Acquire{Locks: []*wire.LockRequest{{Name: rights.Lock}}, WaitForever: true}
	p.execute(conn, "A", pending, "Acquire", pendingSeq, &wire.Request{Body: &wire.Request_Acquire{Acquire: wait}})
	return p
}

// executeAll sends one request of each kind, and then moves the mark past the first numbers.
func (p *party) executeAll(conn *caller, session string, n number) {
	fields := (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	seq := uint64(firstSeq)
	for i := range fields.Len() {
		body := p.examples[string(fields.Get(i).Message().Name())]
		if kind := kindOf(body); kind != "" && kind == string(fields.Get(i).Message().Name()) {
			req := &wire.Request{AckedBelow: firstSeq}
			req.ProtoReflect().Set(fields.Get(i), protoreflect.ValueOfMessage(body.ProtoReflect()))
			p.execute(conn, session, n, kind, seq, req)
			seq++
		}
	}
}

func (p *party) execute(conn *caller, session string, n number, kind string, seq uint64, req *wire.Request) {
	p.g.t.Helper()
	req.SessionId, req.Seq = p.session[session], seq
	res := conn.calls([]*wire.Request{req})[0].GetResult()
	if res.GetStatus() == wire.Status_INVALID_ARGUMENT {
		p.g.t.Fatalf("%s cannot be executed: give its example in package rights what it needs: %v", kind, res)
	}
	p.seqs[n][kind], p.outcomes[n][kind] = seq, res
}

// secret returns the secret of a session or of the lease.
func (p *party) secret(of string) string { return fmt.Sprintf("%-16s", p.name+" "+of) }

// lock returns the name of the party's own lock.
func (p *party) lock() string { return "b/" + p.name }

// numberOf returns the session and the number that a request of a kind carries, and whether there is one of that sort. A
// request without a number is sent with that of an acquire.
func (p *party) numberOf(kind string, n number) (session, seq uint64, exists bool) {
	other, same := "Acquire", kind
	if kind == "Acquire" {
		other = "Release"
	}
	if kind == "" {
		same = "Acquire"
	}
	switch victim := p.g.victim; n {
	case none:
		return 0, 0, true
	case executed:
		return p.session["A"], p.seqs[executed][same], p.seqs[executed][same] != 0
	case pending:
		return p.session["A"], pendingSeq, p.seqs[pending][same] != 0
	case reused:
		return p.session["A"], p.seqs[executed][other], true
	case waiting:
		return p.session["A"], pendingSeq, p.seqs[pending][kind] == 0
	case below:
		return p.session["A"], staleSeq, true
	case elsewhere:
		return p.session["B"], p.seqs[elsewhere][same], p.seqs[elsewhere][same] != 0
	case another:
		return victim.session["A"], victim.seqs[executed][same], true
	}
	return 1 << 50, firstSeq, true
}

// connect connects to a node, and attaches session A there if it reaches the leader. Session B goes to another connection.
func (p *party) connect(at string) {
	p.g.t.Helper()
	for _, old := range []*caller{p.conn, p.other} {
		if old != nil {
			old.close()
		}
	}
	p.other = p.g.dial(p.g.leader, &wire.Hello{AuthToken: p.token})
	p.attach(p.other, "B")
	switch at {
	case "leader":
		p.conn = p.g.dial(p.g.leader, &wire.Hello{AuthToken: p.token})
	case "tunnel":
		p.conn = p.g.dial(p.g.follower, &wire.Hello{AuthToken: p.token, TunnelTo: p.g.leader.id})
	default:
		p.conn = p.g.dial(p.g.follower, &wire.Hello{AuthToken: p.token})
		return
	}
	p.attach(p.conn, "A")
}

func (p *party) attach(to *caller, session string) {
	p.g.t.Helper()
	to.must(&wire.Request{SessionId: p.session[session], Body: &wire.Request_Attach{Attach: &wire.AttachRequest{Secret: []byte(p.secret(session))}}})
}

// denials returns how many requests and callers all nodes have refused so far.
func (g *governed) denials() (n int) {
	g.t.Helper()
	for _, r := range g.registries {
		families, err := r.Gather()
		if err != nil {
			g.t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "quorumlock_denials_total" {
				for _, m := range f.GetMetric() {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

func bodyOf(req *wire.Request) proto.Message {
	m := req.ProtoReflect()
	return m.Get(m.WhichOneof(m.Descriptor().Oneofs().ByName("body"))).Message().Interface()
}

// caller is a connection to the client port of a node.
type caller struct {
	t    *testing.T
	conn net.Conn
	r    *transport.FrameReader
	w    *transport.FrameWriter
	last uint64
}

// dial connects to a node, and through it to the leader if the hello asks for a tunnel.
func (g *governed) dial(to *node, hello *wire.Hello) *caller {
	g.t.Helper()
	conn, err := g.c.net.Host("127.0.0.9").Dial(g.t.Context(), to.host+":7400")
	if err != nil {
		g.t.Fatal(err)
	}
	reply, r, err := transport.ClientHandshake(g.t.Context(), conn, hello)
	if err == nil && hello.GetTunnelTo() != "" {
		if status := reply.GetTunnel().GetStatus(); status != wire.Status_OK {
			g.t.Fatalf("tunnel: %v", reply)
		}
		_, r, err = transport.ClientHandshake(g.t.Context(), conn, &wire.Hello{})
	}
	if err != nil {
		g.t.Fatal(err)
	}
	c := &caller{t: g.t, conn: conn, r: r, w: transport.NewFrameWriter(conn, transport.DefaultMaxFrame)}
	g.t.Cleanup(c.close)
	return c
}

func (c *caller) close() { _ = c.conn.Close() }

// calls sends requests together, and returns their answers in this order.
func (c *caller) calls(all []*wire.Request) []*wire.Response {
	c.t.Helper()
	first := c.last + 1
	for _, req := range all {
		c.last++
		req.Id = c.last
		if err := c.w.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}}); err != nil {
			c.t.Fatal(err)
		}
	}
	answers := make([]*wire.Response, len(all))
	for missing := len(all); missing > 0; {
		var frame wire.ServerFrame
		if err := c.r.Read(&frame); err != nil {
			c.t.Fatal(err)
		}
		if bye := frame.GetGoodbye(); bye != nil {
			c.t.Fatalf("goodbye: %v", bye)
		}
		if resp := frame.GetResponse(); resp != nil {
			answers[resp.GetId()-first] = resp
			missing--
		}
	}
	return answers
}

// must sends a request that succeeds.
func (c *caller) must(req *wire.Request) *wire.Result {
	c.t.Helper()
	res := c.calls([]*wire.Request{req})[0].GetResult()
	switch res.GetStatus() {
	case wire.Status_OK, wire.Status_GRANTED:
	default:
		c.t.Fatalf("%v: %v", req, res)
	}
	return res
}
