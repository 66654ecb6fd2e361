package peerport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// taken is a tunnel that a node has accepted.
type taken struct {
	conn    net.Conn
	from    string
	address string
}

// takesTunnels accepts tunnels, unless refused is set.
func takesTunnels(got chan<- taken, refused *wire.TunnelResponse) func(*peerport.Config) {
	return func(c *peerport.Config) {
		c.Tunnels = func(from *wire.PeerHello, req *wire.TunnelRequest) (*wire.TunnelResponse, func(net.Conn)) {
			if refused != nil {
				return refused, nil
			}
			return &wire.TunnelResponse{Status: wire.Status_OK}, func(conn net.Conn) {
				got <- taken{conn, from.GetId(), req.GetAddress()}
			}
		}
	}
}

// tunnelTo opens a tunnel from one layer to another.
func tunnelTo(t *testing.T, from, to *peerport.Layer, id string) (net.Conn, error) {
	t.Helper()
	return from.Tunnel(t.Context(), to.Addr().String(), id, &wire.TunnelRequest{Address: "10.1.2.3:4567"})
}

// carries sends some bytes from one end to the other.
func carries(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	go func() { _, _ = from.Write([]byte(text)) }()
	b := make([]byte, len(text))
	if _, err := io.ReadFull(to, b); err != nil || string(b) != text {
		t.Errorf("%q arrived, %v, want %q", b, err, text)
	}
}

func TestTunnelCarriesBytesOfAClient(t *testing.T) {
	dir := certificates(t, "c1")
	for name, secured := range map[string]bool{"in plaintext": false, "over TLS": true} {
		t.Run(name, func(t *testing.T) {
			files1, files2 := func(*peerport.Config) {}, func(*peerport.Config) {}
			if secured {
				files1, files2 = with(files(dir, "nodes/n1/peer")), with(files(dir, "nodes/n2/peer"))
			}
			got := make(chan taken, 1)
			a := start(t, knows("n1", "n2"), takesTunnels(got, nil), files1)
			b := start(t, knows("n2", "n1"), files2)
			near, err := tunnelTo(t, b, a, "n1")
			if err != nil {
				t.Fatal(err)
			}
			far := <-got
			if far.from != "n2" || far.address != "10.1.2.3:4567" {
				t.Errorf("taken from %q for %q", far.from, far.address)
			}
			carries(t, near, far.conn, "from the client")
			carries(t, far.conn, near, "from the leader")
			if err := near.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
			if _, err := far.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("after the client's last byte: %v", err)
			}
			carries(t, far.conn, near, "the leader's last word")
			_ = far.conn.Close()
			if _, err := io.Copy(io.Discard, near); errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			_ = near.Close()
			until(t, "the end of both", func() bool { return a.Stats().Tunnels == 0 && b.Stats().Outbound == 0 })
		})
	}
}

// TestTunnelsAreForMembers checks the answer on a raw connection: a complete node that was served by
// mistake might not notice that it counts as a stranger.
func TestTunnelsAreForMembers(t *testing.T) {
	for name, c := range map[string]struct{ id, incarnation, told string }{
		"a node that nobody added":          {"n9", "n9-1", "add it to the cluster first"},
		"a member with another incarnation": {"n2", "n2-2", "another incarnation"},
		"a member that was removed":         {"n3", "n3-1", "was removed"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan taken, 1)
			who := knows("n1", "n2", "n3")
			who.strict = true
			who.remove("n3")
			a := start(t, who, takesTunnels(got, nil))
			conn, err := net.Dial("tcp", a.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			hello := goodHello()
			hello.Purpose, hello.Id, hello.Incarnation = wire.PeerHello_TUNNEL, c.id, c.incarnation
			reply, err := greet(conn, hello)
			if err != nil || reply.GetStatus() != wire.Status_FAILED_PRECONDITION || !strings.Contains(reply.GetMessage(), c.told) {
				_ = conn.Close()
				t.Fatalf("it is told %v, %v; want that %q", reply, err, c.told)
			}
			_ = transport.NewFrameWriter(conn, 1<<10).Write(&wire.TunnelRequest{Address: "10.1.2.3:4567"})
			wantClosed(t, conn)
			if len(got) != 0 {
				t.Error("it has a tunnel")
			}
			if _, err := tunnelTo(t, start(t, knows(c.id, "n1")), a, "n1"); c.incarnation == c.id+"-1" && !errors.Is(err, peerport.ErrRefused) {
				t.Errorf("as a whole node it has a tunnel: %v", err)
			}
		})
	}
}

// TestRemovedMemberLosesItsTunnels checks that a removal closes the member's tunnels.
func TestRemovedMemberLosesItsTunnels(t *testing.T) {
	got := make(chan taken, 1)
	who := knows("n1", "n2")
	a, b := start(t, who, takesTunnels(got, nil)), start(t, knows("n2", "n1"))
	near, err := tunnelTo(t, b, a, "n1")
	if err != nil {
		t.Fatal(err)
	}
	<-got
	who.remove("n2")
	a.Recheck()
	wantClosed(t, near)
}

func TestTunnelIsRefusedWithAReason(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*peerport.Config)
		status wire.Status_Code
	}{
		"switched off": {func(*peerport.Config) {}, wire.Status_UNSUPPORTED},
		"by the handler": {takesTunnels(nil, &wire.TunnelResponse{Status: wire.Status_NOT_LEADER, Message: "n3 leads"}),
			wire.Status_NOT_LEADER},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := start(t, knows("n1", "n2"), c.change), start(t, knows("n2", "n1"))
			_, err := tunnelTo(t, b, a, "n1")
			refused, ok := errors.AsType[*peerport.TunnelError](err)
			if !ok || refused.Status != c.status || refused.Message == "" {
				t.Errorf("%v, want %v", err, c.status)
			}
			until(t, "the end of both", func() bool { return a.Stats().Tunnels == 0 && b.Stats().Outbound == 0 })
		})
	}
}

// TestTunnelsHavePlacesOfTheirOwn checks that clients of other nodes take no places of nodes.
func TestTunnelsHavePlacesOfTheirOwn(t *testing.T) {
	got := make(chan taken, 2)
	a := start(t, knows("n1", "n2"), takesTunnels(got, nil), func(c *peerport.Config) { c.MaxTunnels, c.MaxConns = 1, 1 })
	b := start(t, knows("n2", "n1"))
	near, err := tunnelTo(t, b, a, "n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tunnelTo(t, b, a, "n1"); !errors.Is(err, peerport.ErrRefused) {
		t.Errorf("a tunnel more than the bound: %v", err)
	}
	if _, _, err := b.Call(t.Context(), a.Addr().String(), "n1", &wire.PeerRequest{}); err != nil {
		t.Errorf("a node finds no place beside tunnels: %v", err)
	}
	far := <-got
	_ = far.conn.Close()
	until(t, "the tunnel's place", func() bool { return a.Stats().Tunnels == 0 })
	_ = near.Close()
	if near, err = tunnelTo(t, b, a, "n1"); err != nil {
		t.Fatal(err)
	}
	_ = near.Close()
}

// TestTunnelWaitsForItsAnswer checks that bytes of a client that arrive before the answer are refused.
func TestTunnelWaitsForItsAnswer(t *testing.T) {
	got := make(chan taken, 1)
	a := start(t, knows("n1", "n2"), takesTunnels(got, nil))
	conn, err := net.Dial("tcp", a.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	hello := goodHello()
	hello.Purpose = wire.PeerHello_TUNNEL
	if reply, err := greet(conn, hello); err != nil || reply.GetStatus() != wire.Status_OK {
		t.Fatal(reply, err)
	}
	early, err := transport.AppendFrame(nil, &wire.TunnelRequest{Address: "10.1.2.3:4567"}, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(append(early, "QLOCK"...)); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, conn)
	if len(got) != 0 {
		t.Error("the tunnel was accepted")
	}
}

// TestTunnelEndsWithItsContext checks that a node that does not answer blocks the caller no longer than
// its context allows.
func TestTunnelEndsWithItsContext(t *testing.T) {
	asked, silent := make(chan struct{}), make(chan struct{})
	a := start(t, knows("n1", "n2"), func(c *peerport.Config) {
		c.Tunnels = func(*wire.PeerHello, *wire.TunnelRequest) (*wire.TunnelResponse, func(net.Conn)) {
			close(asked)
			<-silent
			return &wire.TunnelResponse{Status: wire.Status_UNAVAILABLE}, nil
		}
	})
	defer close(silent)
	b := start(t, knows("n2", "n1"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := b.Tunnel(ctx, a.Addr().String(), "n1", &wire.TunnelRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("opened without an answer: %v", err)
	}
	if s := b.Stats(); s.Outbound != 0 {
		t.Errorf("stats %+v", s)
	}
}
