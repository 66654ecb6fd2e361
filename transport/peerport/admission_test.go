package peerport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// goodHello returns a valid hello from n2 to n1.
func goodHello() *wire.PeerHello {
	return &wire.PeerHello{
		Version: 1, Purpose: wire.PeerHello_RAFT, ClusterId: "c1", Id: "n2", Incarnation: "n2-1",
		TargetId: "n1", TargetIncarnation: "n1-1",
	}
}

// watchAccept returns the connections that raft would get.
func watchAccept(l *peerport.Layer) <-chan net.Conn {
	got := make(chan net.Conn, 100)
	go func() {
		defer close(got)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			got <- conn
		}
	}()
	return got
}

// wantRefusal waits for the refusal to be counted and logged, and checks that nothing else happened.
func wantRefusal(t *testing.T, l *peerport.Layer, log *journal, reason peerport.Reason) {
	t.Helper()
	until(t, "a refusal for "+string(reason), func() bool { return l.Stats().Refused[reason] == 1 })
	until(t, "its end", func() bool { return l.Stats().Handshaking == 0 })
	if s := l.Stats(); len(s.Refused) != 1 || s.Accepted != 0 || s.Inbound != 0 {
		t.Errorf("stats %+v", s)
	}
	if n := log.count("reason=" + string(reason)); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// noneAccepted closes l and fails if raft got a connection.
func noneAccepted(t *testing.T, l *peerport.Layer, got <-chan net.Conn) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if conn, ok := <-got; ok {
		t.Errorf("raft got a connection: %v", conn.RemoteAddr())
		_ = conn.Close()
	}
}

func TestHellosThatNeverReachRaft(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*wire.PeerHello)
		reason peerport.Reason
		told   string
	}{
		"another cluster":            {func(h *wire.PeerHello) { h.ClusterId = "c2" }, peerport.ReasonCluster, `cluster "c1"`},
		"for another node":           {func(h *wire.PeerHello) { h.TargetId = "n3" }, peerport.ReasonTarget, `"n1", not "n3"`},
		"for nobody":                 {func(h *wire.PeerHello) { h.TargetId = "" }, peerport.ReasonTarget, "not"},
		"for another incarnation":    {func(h *wire.PeerHello) { h.TargetIncarnation = "n1-0" }, peerport.ReasonTarget, "replaced"},
		"with another incarnation":   {func(h *wire.PeerHello) { h.Incarnation = "n2-2" }, peerport.ReasonIncarnation, "remove it"},
		"without an incarnation":     {func(h *wire.PeerHello) { h.Incarnation = "" }, peerport.ReasonIncarnation, "remove it"},
		"under this node's own name": {func(h *wire.PeerHello) { h.Id = "n1" }, peerport.ReasonTarget, "itself"},
		"without a name":             {func(h *wire.PeerHello) { h.Id = "" }, peerport.ReasonProtocol, "who"},
		"of version 0":               {func(h *wire.PeerHello) { h.Version = 0 }, peerport.ReasonVersion, "from 1"},
		"without a purpose":          {func(h *wire.PeerHello) { h.Purpose = 0 }, peerport.ReasonProtocol, "purpose"},
		"with an unknown purpose":    {func(h *wire.PeerHello) { h.Purpose = 99 }, peerport.ReasonProtocol, "purpose"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &journal{}
			who := knows("n1", "n2")
			l := start(t, who, log.config)
			got := watchAccept(l)
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			hello := goodHello()
			c.change(hello)
			reply, err := greet(conn, hello)
			if err != nil {
				t.Fatal(err)
			}
			if reply.GetStatus() != wire.Status_FAILED_PRECONDITION || !strings.Contains(reply.GetMessage(), c.told) {
				t.Errorf("told %v %q", reply.GetStatus(), reply.GetMessage())
			}
			wantClosed(t, conn)
			wantRefusal(t, l, log, c.reason)
			if who.seen() != 0 {
				t.Error("the identity was told of a caller that was refused")
			}
			noneAccepted(t, l, got)
		})
	}
}

func TestHellosThatDo(t *testing.T) {
	for name, change := range map[string]func(*wire.PeerHello){
		"as it should be":             func(*wire.PeerHello) {},
		"of a newer version":          func(h *wire.PeerHello) { h.Version = 5 },
		"before bootstrap":            func(h *wire.PeerHello) { h.ClusterId = "" },
		"without knowing the target":  func(h *wire.PeerHello) { h.TargetIncarnation = "" },
		"of a node that is not known": func(h *wire.PeerHello) { h.Id, h.Incarnation = "n9", "n9-1" },
	} {
		t.Run(name, func(t *testing.T) {
			who := knows("n1", "n2")
			l := start(t, who)
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			hello := goodHello()
			change(hello)
			reply, err := greet(conn, hello)
			if err != nil {
				t.Fatal(err)
			}
			want := &wire.PeerHelloReply{Version: 1, Status: wire.Status_OK, ClusterId: "c1", Id: "n1", Incarnation: "n1-1",
				State: who.State(hello.Incarnation)}
			if !proto.Equal(reply, want) {
				t.Errorf("answered %v", reply)
			}
			got, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			until(t, "to be observed", func() bool { return who.seen() == 1 })
			// All further bytes must be passed on to raft unchanged.
			if _, err := conn.Write([]byte("raft's")); err != nil {
				t.Error(err)
			}
			b := make([]byte, 6)
			if _, err := io.ReadFull(got, b); err != nil || string(b) != "raft's" {
				t.Errorf("read %q, %v", b, err)
			}
			_, _ = got.Close(), conn.Close()
			until(t, "its end", func() bool { return l.Stats().Inbound == 0 })
		})
	}
}

func TestBytesThatNeverReachRaft(t *testing.T) {
	early, err := transport.AppendFrame([]byte(transport.Preface), goodHello(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		send   string
		reason peerport.Reason
	}{
		"nothing":               {"", peerport.ReasonGone},
		"HTTP":                  {"GET / HTTP/1.1\r\n\r\n", peerport.ReasonProtocol},
		"raft's own protocol":   {"\x01\x85\xacLastLogIndex\x01", peerport.ReasonProtocol},
		"TLS on a plain port":   {"\x16\x03\x01\x02\x00", peerport.ReasonProtocol},
		"half a preface":        {"QLOCK", peerport.ReasonProtocol},
		"an oversized hello":    {transport.Preface + "\x00\x10\x00\x00", peerport.ReasonProtocol},
		"a hello cut short":     {string(early[:20]), peerport.ReasonGone},
		"no protobuf":           {transport.Preface + "\x00\x00\x00\x02\xff\xff", peerport.ReasonProtocol},
		"more before an answer": {string(early) + "\x01", peerport.ReasonProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			log := &journal{}
			l := start(t, knows("n1", "n2"), log.config)
			got := watchAccept(l)
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			wantClosed(t, conn)
			wantRefusal(t, l, log, c.reason)
			noneAccepted(t, l, got)
		})
	}
}

func TestCertificatesThatNeverReachRaft(t *testing.T) {
	ours, stranger, otherCluster := certificates(t, "c1"), certificates(t, "c1"), t.TempDir()
	// The same authority for another cluster: they differ only in the name.
	for _, name := range []string{"ca.crt", "ca.key"} {
		b, err := os.ReadFile(filepath.Join(ours, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(otherCluster, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pki.Extend(otherCluster, "c2", []pki.Node{{ID: "n2"}}, nil); err != nil {
		t.Fatal(err)
	}
	none := files(ours, "nodes/n2/peer")
	none.Cert, none.Key = "", ""
	for name, c := range map[string]struct {
		present *transport.TLSFiles // nil: plaintext
		maximum uint16
		reason  peerport.Reason
	}{
		"plaintext":           {nil, 0, peerport.ReasonTLS},
		"no certificate":      {none, 0, peerport.ReasonTLS},
		"another authority's": {files(stranger, "nodes/n2/peer"), 0, peerport.ReasonTLS},
		"TLS 1.2":             {files(ours, "nodes/n2/peer"), tls.VersionTLS12, peerport.ReasonTLS},
		"another node's":      {files(ours, "nodes/n1/peer"), 0, peerport.ReasonCertificate},
		"another cluster's":   {files(otherCluster, "nodes/n2/peer"), 0, peerport.ReasonCertificate},
		"for the client port": {files(ours, "nodes/n2/server"), 0, peerport.ReasonTLS},
		"a client's":          {files(ours, "clients/app/client"), 0, peerport.ReasonCertificate},
	} {
		t.Run(name, func(t *testing.T) {
			log := &journal{}
			l := start(t, knows("n1", "n2"), log.config, with(files(ours, "nodes/n1/peer")))
			got := watchAccept(l)
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if c.present != nil {
				config, err := c.present.ClientConfig()
				if err != nil {
					t.Fatal(err)
				}
				config.InsecureSkipVerify = true
				if config.MaxVersion = c.maximum; c.maximum != 0 {
					config.MinVersion = c.maximum
				}
				conn = tls.Client(conn, config)
			}
			reply, err := greet(conn, goodHello())
			if err == nil && reply.GetStatus() == wire.Status_OK {
				t.Error("accepted")
			}
			if c.reason == peerport.ReasonCertificate && !strings.Contains(reply.GetMessage(), "certificate") {
				t.Errorf("told %q, %v", reply.GetMessage(), err)
			}
			wantClosed(t, conn)
			wantRefusal(t, l, log, c.reason)
			noneAccepted(t, l, got)
		})
	}
}

func TestLayerWithAnothersCertificate(t *testing.T) {
	dir := certificates(t, "c1")
	for name, c := range map[string]struct {
		who  *identity
		pair string
	}{
		"another node's":      {knows("n1"), "nodes/n2/peer"},
		"for the client port": {knows("n1"), "nodes/n1/server"},
		"another cluster's":   {&identity{id: "n1", cluster: "c2"}, "nodes/n1/peer"},
	} {
		_, err := peerport.New(peerport.Config{Listener: &memoryListener{}, Identity: c.who, TLS: files(dir, c.pair)})
		if !errors.Is(err, transport.ErrPeerName) {
			t.Errorf("%s: %v, want ErrPeerName", name, err)
		}
	}
}

// impostor answers one hello at an address, with TLS if a configuration is given. ended is closed when the caller has gone.
func impostor(t *testing.T, secure *tls.Config, reply *wire.PeerHelloReply) (addr string, ended <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if secure != nil {
			conn = tls.Server(conn, secure)
		}
		r := transport.NewFrameReader(conn, 4096)
		_, _ = r.ReadPreface(), r.Read(&wire.PeerHello{})
		_ = transport.NewFrameWriter(conn, 4096).Write(reply)
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}()
	return l.Addr().String(), gone
}

// TestAnswersThatAreRefused checks that the caller is as strict as the callee: a process that took over a
// node's address gets nothing.
func TestAnswersThatAreRefused(t *testing.T) {
	for name, reply := range map[string]*wire.PeerHelloReply{
		"another node's":           {Version: 1, Status: wire.Status_OK, ClusterId: "c1", Id: "n3", Incarnation: "n2-1"},
		"another cluster's":        {Version: 1, Status: wire.Status_OK, ClusterId: "c2", Id: "n2", Incarnation: "n2-1"},
		"of another incarnation":   {Version: 1, Status: wire.Status_OK, ClusterId: "c1", Id: "n2", Incarnation: "n2-2"},
		"in a version not offered": {Version: 2, Status: wire.Status_OK, ClusterId: "c1", Id: "n2", Incarnation: "n2-1"},
		"a refusal":                {Version: 1, Status: wire.Status_FAILED_PRECONDITION, Message: "no"},
		"empty":                    {},
	} {
		t.Run(name, func(t *testing.T) {
			addr, ended := impostor(t, nil, reply)
			l := start(t, knows("n1", "n2"))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, got, err := l.Call(ctx, addr, "n2", &wire.PeerRequest{})
			if !errors.Is(err, peerport.ErrRefused) || !proto.Equal(got, reply) {
				t.Errorf("got %v, %v", got, err)
			}
			<-ended
			if s := l.Stats(); s.Outbound != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}
