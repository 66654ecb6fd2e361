package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ways connects two ports of the same process by tunnels.
type ways struct {
	accept atomic.Pointer[func(net.Conn, *wire.Caller)] // of the port at the leader's end
	opened atomic.Int64
}

// far is the leader's side.
type far struct{ *ways }

func (f far) OpenTunnel(context.Context, *wire.LeaderHint, *wire.Caller) (net.Conn, error) {
	return nil, errors.New("the leader opens no tunnels")
}

func (f far) OnTunnel(accept func(net.Conn, *wire.Caller)) (cancel func()) {
	f.accept.Store(&accept)
	return func() {}
}

// near is the follower's side.
type near struct{ *ways }

func (n near) OpenTunnel(_ context.Context, _ *wire.LeaderHint, caller *wire.Caller) (net.Conn, error) {
	a, b := net.Pipe()
	n.opened.Add(1)
	(*n.accept.Load())(b, caller)
	return a, nil
}

func (n near) OnTunnel(func(net.Conn, *wire.Caller)) (cancel func()) { return func() {} }

// followed serves a leader, which requires TLS of direct clients, and a follower.
func followed(t *testing.T, change func(*Config)) (leader, follower *port, between *ways) {
	t.Helper()
	between = &ways{}
	leader = serve(t, func(c *Config) { c.NodeID, c.Tunnels, c.TLS = self, far{between}, &tls.Config{} })
	follower = serve(t, func(c *Config) {
		c.NodeID, c.Tunnels = other, near{between}
		if change != nil {
			change(c)
		}
	})
	follower.replica.moveLeader(&wire.LeaderHint{Id: self, ClientAddr: "here:7400", Term: 1})
	return leader, follower, between
}

// ask sends a hello that asks for a tunnel.
func ask(t *testing.T, p *port, to string) (*peer, *wire.TunnelReply) {
	t.Helper()
	conn := dial(t, p)
	reply, r, err := transport.ClientHandshake(t.Context(), conn, &wire.Hello{Agent: "test", TunnelTo: to})
	if err != nil {
		t.Fatal(err)
	}
	return greeting(t, conn, reply, r), reply.GetTunnel()
}

func greeting(t *testing.T, conn net.Conn, reply *wire.HelloReply, r *transport.FrameReader) *peer {
	return &peer{t: t, conn: conn, reply: reply, r: r, w: transport.NewFrameWriter(conn, transport.DefaultMaxFrame), others: map[uint64]*wire.Response{}}
}

// through connects to the leader through a follower.
func through(t *testing.T, follower *port) *peer {
	t.Helper()
	c, answer := ask(t, follower, self)
	if answer.GetStatus() != wire.Status_OK {
		t.Fatalf("no tunnel: %v", answer)
	}
	reply, r, err := transport.ClientHandshake(t.Context(), c.conn, &wire.Hello{Agent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return greeting(t, c.conn, reply, r)
}

// TestLeaderServesClientsThroughFollowers verifies that the leader serves a tunnelled connection like one of
// the client itself: with the client's address, and without the TLS of its own port, because the client's TLS
// ends at the follower.
func TestLeaderServesClientsThroughFollowers(t *testing.T) {
	leader, follower, _ := followed(t, nil)
	c := through(t, follower)
	if c.reply.GetNodeId() != self {
		t.Errorf("node %q answers, want the leader", c.reply.GetNodeId())
	}
	session := c.open(secret)
	c.expect(wire.Status_GRANTED, acquire(session, 1, "a", false))
	c.expect(wire.Status_OK, heartbeat(session))
	leader.replica.mu.Lock()
	opened := leader.replica.opened[0].GetClient().GetAddress()
	leader.replica.mu.Unlock()
	if want := c.conn.LocalAddr().String(); opened != want {
		t.Errorf("the session is of %s, want the client's own %s", opened, want)
	}
	if n, m := leader.Connections(), follower.Connections(); n != 1 || m != 1 {
		t.Errorf("%d connections at the leader and %d at the follower", n, m)
	}
	_ = c.conn.Close()
	eventually(t, "both places are free", func() bool { return leader.Connections() == 0 && follower.Connections() == 0 })
}

// TestTunnelledClientsCountByTheirOwnAddress verifies that limits by address apply to the client, not to the
// relaying node.
func TestTunnelledClientsCountByTheirOwnAddress(t *testing.T) {
	between := &ways{}
	leader := serve(t, func(c *Config) { c.Tunnels, c.Limits.MaxHandshakes = far{between}, 4 })
	half := func(address string) net.Conn {
		a, b := net.Pipe()
		t.Cleanup(func() { _ = a.Close() })
		(*between.accept.Load())(b, &wire.Caller{Address: address})
		return a
	}
	greedy := []net.Conn{half("10.0.0.1:1"), half("10.0.0.1:2"), half("10.0.0.1:3")}
	if _, err := greedy[0].Read(make([]byte, 1)); err == nil {
		t.Error("one address has more than its share of the handshakes")
	}
	honest := half("10.0.0.2:1")
	if _, _, err := transport.ClientHandshake(t.Context(), honest, &wire.Hello{}); err != nil {
		t.Errorf("a client of another address is kept out: %v", err)
	}
	if cut := leader.handshakes.Cuts(); cut != 1 {
		t.Errorf("%d handshakes were cut, want the oldest of the greedy", cut)
	}
}

func TestTunnelIsRefusedAndTheConnectionGoesOn(t *testing.T) {
	_, follower, between := followed(t, nil)
	off := serve(t, nil)
	for name, c := range map[string]struct {
		port   *port
		to     string
		status wire.Status_Code
	}{
		"switched off":          {off, "n9", wire.Status_UNSUPPORTED},
		"to somebody else":      {follower, "n9", wire.Status_FAILED_PRECONDITION},
		"to the follower":       {follower, other, wire.Status_FAILED_PRECONDITION},
		"without a leader's id": {follower, "", wire.Status_UNSPECIFIED},
	} {
		t.Run(name, func(t *testing.T) {
			p, answer := ask(t, c.port, c.to)
			if answer.GetStatus() != c.status || (answer != nil) != (c.to != "") {
				t.Errorf("answered %v, want %v", answer, c.status)
			}
			p.call(&wire.Request{Body: &wire.Request_Status{Status: &wire.StatusRequest{Stale: true}}})
		})
	}
	if n := between.opened.Load(); n != 0 {
		t.Errorf("%d tunnels were opened", n)
	}
}

// TestNoTunnelThroughATunnel verifies that a tunnel cannot be opened through another one.
func TestNoTunnelThroughATunnel(t *testing.T) {
	_, follower, between := followed(t, nil)
	c, answer := ask(t, follower, self)
	if answer.GetStatus() != wire.Status_OK {
		t.Fatal(answer)
	}
	reply, r, err := transport.ClientHandshake(t.Context(), c.conn, &wire.Hello{TunnelTo: self})
	if err != nil || reply.GetTunnel().GetStatus() != wire.Status_FAILED_PRECONDITION {
		t.Errorf("%v, %v", reply.GetTunnel(), err)
	}
	greeting(t, c.conn, reply, r).open(secret)
	if n := between.opened.Load(); n != 1 {
		t.Errorf("%d tunnels", n)
	}
}

func TestTunnelledClientIsNotifiedOfTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(leader, follower *port)
		code    wire.Goodbye_Code
	}{
		"the leader moves":   {func(_, follower *port) { follower.replica.moveLeader(&wire.LeaderHint{Id: "n3", Term: 2}) }, wire.Goodbye_TUNNEL_ENDED},
		"the follower stops": {func(_, follower *port) { _ = follower.Close(context.Background()) }, wire.Goodbye_SHUTDOWN},
		"the leader stops":   {func(leader, _ *port) { _ = leader.Close(context.Background()) }, wire.Goodbye_SHUTDOWN},
	} {
		t.Run(name, func(t *testing.T) {
			leader, follower, _ := followed(t, nil)
			c2 := through(t, follower)
			c2.open(secret)
			if err := c2.conn.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
				t.Fatal(err)
			}
			go c.happens(leader, follower)
			c2.goodbye(c.code)
		})
	}
}

// TestClientWaitsForTheTunnel verifies that a client must not send requests before the answer about the
// tunnel.
func TestClientWaitsForTheTunnel(t *testing.T) {
	_, follower, _ := followed(t, nil)
	conn := dial(t, follower)
	var b bytes.Buffer
	hello := &wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: 1, TunnelTo: self}}}
	if err := transport.NewFrameWriter(&b, 1<<10).WriteFirst(hello); err != nil {
		t.Fatal(err)
	}
	b.WriteString(transport.Preface)
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	r := transport.NewFrameReader(conn, 1<<20)
	var f wire.ServerFrame
	if err := r.Read(&f); err != nil || f.GetHello().GetTunnel() == nil {
		t.Fatal(&f, err)
	}
	if err := r.Read(&f); err == nil {
		t.Errorf("the tunnel goes on: %v", &f)
	}
	eventually(t, "a complaint", func() bool { return follower.log.count("before the answer about the tunnel") == 1 })
	eventually(t, "the tunnel's end", func() bool { return follower.relay.Len() == 0 })
}

func TestPortWithTunnelsIsBounded(t *testing.T) {
	_, follower, _ := followed(t, func(c *Config) { c.Limits.MaxTunnels = 1 })
	first := through(t, follower)
	if _, answer := ask(t, follower, self); answer.GetStatus() != wire.Status_RESOURCE_EXHAUSTED || !strings.Contains(answer.GetMessage(), "--max-tunnels") {
		t.Errorf("a second one: %v", answer)
	}
	_ = first.conn.Close()
	eventually(t, "the place is free", func() bool { return follower.relay.Len() == 0 })
	through(t, follower)
}
