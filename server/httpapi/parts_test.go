package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport"
)

// TestAcceptedConnectionsAreSecure verifies that Accept returns connections after their handshake.
func TestAcceptedConnectionsAreSecure(t *testing.T) {
	dir := authority(t)
	p := start(t, newCluster(t), "n1", secured(dir, "n1", AuthNone))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(t.Context())
	secure := p.server.connections.Listen(life, l, p.server.tls)
	defer secure.Close()
	defer end()
	dialled := make(chan error, 1)
	go func() {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // of the test itself
		if err == nil {
			defer conn.Close()
			_, err = conn.Read(make([]byte, 1))
		}
		dialled <- err
	}()
	conn, err := secure.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if !conn.(*tls.Conn).ConnectionState().HandshakeComplete {
		t.Error("it was handed on before its handshake")
	}
	_ = conn.Close()
	<-dialled
}

func TestBodyBytes(t *testing.T) {
	for said, want := range map[int64]int{0: 0, 5: 5, 99: 99, 100: 100, 101: 100, -1: 100} {
		if got := bodyBytes(&http.Request{ContentLength: said}, 100); got != want {
			t.Errorf("a body of %d bytes, 100 at most: %d", said, got)
		}
	}
}

func TestCertificatesThatAreNotThere(t *testing.T) {
	node := newCluster(t).node("n1")
	if _, err := New(Config{NodeID: "n1", Replica: node, TLS: transport.TLSFiles{Cert: "no.pem", Key: "no.key", CA: "no.ca"}}); err == nil || !strings.HasPrefix(err.Error(), "http port: ") {
		t.Errorf("got %v", err)
	}
}

func TestPieceThatIsNotSent(t *testing.T) {
	broken := errors.New("broken")
	p := &chunks{send: func([]byte) error { return broken }}
	if n, err := p.Write([]byte("x")); n != 0 || !errors.Is(err, broken) || p.any {
		t.Errorf("wrote %d, %v; something was sent: %v", n, err, p.any)
	}
}
