package peerport_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/peerport"
)

// TestPeerCertificatesAreReloaded checks that new certificates need no restart.
func TestPeerCertificatesAreReloaded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir, next := certificates(t, "c1"), certificates(t, "c1")
		m, log := newMemory(), &journal{}
		a := start(t, knows("n1", "n2"), on(m), answering, with(files(dir, "nodes/n1/peer")), log.config)
		b := start(t, knows("n2", "n1"), on(m), answering, with(files(dir, "nodes/n2/peer")))
		call := func(when string) {
			t.Helper()
			if _, _, err := b.Call(t.Context(), "n1", "n1", probe); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if _, _, err := a.Call(t.Context(), "n2", "n2", probe); err != nil {
				t.Errorf("%s, the other way: %v", when, err)
			}
		}
		call("at first")
		for _, name := range []string{"ca.crt", "nodes/n1/peer.crt", "nodes/n1/peer.key", "nodes/n2/peer.crt", "nodes/n2/peer.key"} {
			if err := os.Rename(filepath.Join(next, name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		elapse(2100 * time.Millisecond) // the next change must not coincide with a check
		call("with a new authority")
		if log.count("files are in use: port=peer") != 1 {
			t.Error("the log does not say so")
		}
		if err := os.WriteFile(filepath.Join(dir, "nodes/n1/peer.crt"), []byte("?"), 0o644); err != nil {
			t.Fatal(err)
		}
		elapse(2 * time.Second)
		call("with a bad file")
		if log.count("files cannot be used") != 1 {
			t.Error("the log does not say so")
		}
	})
}

// TestCertificateOfANodeWithoutACluster checks that a node that does not know its cluster yet uses the
// one in its certificate.
func TestCertificateOfANodeWithoutACluster(t *testing.T) {
	dir := certificates(t, "c1")
	newcomer := knows("n1", "n2")
	newcomer.cluster = ""
	start(t, newcomer, with(files(dir, "nodes/n1/peer")))
}

// TestImpostorWithACertificate checks that a node with a valid certificate cannot answer for another one.
func TestImpostorWithACertificate(t *testing.T) {
	dir, strange := certificates(t, "c1"), certificates(t, "c1")
	extend(t, dir, "n3")
	for name, shows := range map[string]*transport.TLSFiles{
		"a node":            files(dir, "nodes/n3/peer"),
		"the client port":   files(dir, "nodes/n2/server"),
		"another authority": files(strange, "nodes/n2/peer"),
	} {
		t.Run(name, func(t *testing.T) {
			config, err := shows.ServerConfig(0)
			if err != nil {
				t.Fatal(err)
			}
			impostor, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if conn, err := impostor.Accept(); err == nil {
					conn = tlsServer(conn, config)
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
			}()
			l := start(t, knows("n1", "n2"), with(files(dir, "nodes/n1/peer")))
			_, err = l.Dial("n2@"+raftAddr(impostor), 10*time.Second)
			if err == nil || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("got %v", err)
			}
			<-ended
			_ = impostor.Close()
			if s := l.Stats(); s.Outbound != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// TestListenerThatFailsForAWhile checks that a layer survives an address that does not answer, and a
// listener that fails.
func TestListenerThatFailsForAWhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, log := newMemory(), &journal{}
		l := start(t, knows("n1", "n2"), on(m), answering, log.config, func(c *peerport.Config) {
			c.Network = failing{m}
		})
		elapse(time.Minute)
		if n := log.count("cannot accept"); n != 3 {
			t.Errorf("logged %d times, want 3", n)
		}
		b := start(t, knows("n2", "n1"), on(m))
		if _, _, err := b.Call(t.Context(), "n1", "n1", probe); err != nil {
			t.Error(err)
		}
		_ = l.Close()
	})
}
