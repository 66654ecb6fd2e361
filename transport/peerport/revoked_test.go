package peerport_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

func withCRL(f *transport.TLSFiles, dir string) *transport.TLSFiles {
	f.CRL = pki.CRLPath(dir)
	return f
}

func revoke(t *testing.T, dir, name string) {
	t.Helper()
	if _, err := pki.Revoke(dir, []string{name}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestRevokedNodeIsRefused checks both directions, each with the revocation list on one side only: the called node
// refuses the caller, and the caller the called node.
func TestRevokedNodeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		revoked string
		ok      bool
	}{
		"its certificate":      {"nodes/n2/peer", false},
		"none":                 {"", true},
		"that of another port": {"nodes/n2/server", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, log := certificates(t, "c1"), &journal{}
			if c.revoked != "" {
				revoke(t, dir, c.revoked)
			}
			a := start(t, knows("n1", "n2"), answering, with(withCRL(files(dir, "nodes/n1/peer"), dir)), log.config)
			b := start(t, knows("n2", "n1"), answering, with(files(dir, "nodes/n2/peer")))
			if _, _, err := b.Call(t.Context(), a.Addr().String(), "n1", probe); (err == nil) != c.ok {
				t.Errorf("it calls: %v", err)
			}
			if _, _, err := a.Call(t.Context(), b.Addr().String(), "n2", probe); (err == nil) != c.ok || c.ok == errors.Is(err, transport.ErrRevoked) {
				t.Errorf("it is called: %v", err)
			}
			if c.ok {
				return
			}
			if err := b.Close(); err != nil { // wait for its handshakes
				t.Error(err)
			}
			if n := b.Stats().Accepted; n != 0 {
				t.Errorf("%d hellos were sent to it", n)
			}
			until(t, "the refusal is counted and logged", func() bool {
				return a.Stats().Refused[peerport.ReasonTLS] == 1 && log.count("the certificate is revoked") > 0
			})
		})
	}
}

// TestConnectionsOfARevokedNodeEnd checks that within a second after a node's certificate was revoked, its connections
// end in both directions, and that those of other nodes go on.
func TestConnectionsOfARevokedNodeEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir, m, log := certificates(t, "c1"), newMemory(), &journal{}
		extend(t, dir, "n3")
		a := start(t, knows("n1", "n2", "n3"), on(m), with(withCRL(files(dir, "nodes/n1/peer"), dir)), log.config)
		b := start(t, knows("n2", "n1", "n3"), on(m), with(files(dir, "nodes/n2/peer")))
		c := start(t, knows("n3", "n1", "n2"), on(m), with(files(dir, "nodes/n3/peer")))
		dial := func(from, to *peerport.Layer, id string) (dialled, accepted net.Conn) {
			t.Helper()
			taken := make(chan net.Conn, 1)
			go func() {
				conn, err := to.Accept()
				if err != nil {
					t.Error(err)
				}
				taken <- conn
			}()
			dialled, err := from.Dial(raft.ServerAddress(id+"@"+id), 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			accepted = <-taken
			t.Cleanup(func() { _, _ = dialled.Close(), accepted.Close() })
			return dialled, accepted
		}
		toRevoked, _ := dial(a, b, "n2")
		_, fromRevoked := dial(b, a, "n1")
		toOther, _ := dial(a, c, "n3")
		_, fromOther := dial(c, a, "n1")
		revoke(t, dir, "n2")
		elapse(time.Second)
		ended := func(conn net.Conn) bool {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := conn.Read(make([]byte, 1))
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
		for what, c := range map[string]struct {
			conn net.Conn
			ends bool
		}{
			"to the revoked node": {toRevoked, true}, "from it": {fromRevoked, true}, "to another": {toOther, false}, "from another": {fromOther, false},
		} {
			if ended(c.conn) != c.ends {
				t.Errorf("%s: ended: %t", what, !c.ends)
			}
		}
		if n := log.count("closing a connection"); n != 2 {
			t.Errorf("logged %d times, want 2", n)
		}
		if s := a.Stats(); s.Inbound != 1 || s.Outbound != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestNodeThatIsRevokedDuringItsHandshake checks that a connection whose TLS handshake came before the revocation and
// whose hello came after it is not established.
func TestNodeThatIsRevokedDuringItsHandshake(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir, m, log := certificates(t, "c1"), newMemory(), &journal{}
		a := start(t, knows("n1", "n2"), on(m), with(withCRL(files(dir, "nodes/n1/peer"), dir)), log.config)
		config, err := files(dir, "nodes/n2/peer").ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := m.Dial(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		config.InsecureSkipVerify = true
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		revoke(t, dir, "n2")
		elapse(time.Second)
		if reply, err := greet(conn, goodHello()); err == nil {
			t.Errorf("answered %v", reply)
		}
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
		until(t, "the connection is forgotten", func() bool { s := a.Stats(); return s.Inbound == 0 && s.Handshaking == 0 })
		if log.count("the certificate is revoked") == 0 {
			t.Error("the log does not say why")
		}
	})
}
