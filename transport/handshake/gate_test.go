package handshake

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestDefaults(t *testing.T) {
	cores := max(1, runtime.GOMAXPROCS(0)/2)
	for _, c := range []struct{ given, want Config }{
		{Config{}, Config{DefaultMax, DefaultMax / 2, cores}},
		{Config{-1, -1, -1}, Config{DefaultMax, DefaultMax / 2, cores}},
		{Config{Max: 1}, Config{1, 1, cores}},
		{Config{Max: 7}, Config{7, 4, cores}},
		{Config{7, 8, 9}, Config{7, 8, 9}},
	} {
		if got := c.given.withDefaults(); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.given, got, c.want)
		}
	}
}

// TestHandshakeWaitsForASlot checks that a handshake waits for a slot once the caller has sent something,
// and holds none when it is done.
func TestHandshakeWaitsForASlot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := New(Config{Compute: 1})
		if err := l.Begin(&half{from: "10.0.0.1"}).acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		h := l.Begin(near)
		conn := h.Server(&tls.Config{Certificates: []tls.Certificate{certificate(t)}})
		done := make(chan error, 2)
		go func() {
			client := tls.Client(far, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // its own certificate
			done <- client.HandshakeContext(context.Background())
			_, _ = client.Write([]byte("a"))
		}()
		go func() { done <- h.Secure(t.Context(), conn) }()
		synctest.Wait()
		if len(done) != 0 {
			t.Error("it computes without a slot")
		}
		l.release()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
		if l.idle != 1 || h.gate.ctx != nil || h.gate.holds {
			t.Errorf("%d slots are idle, the connection has one: %t", l.idle, h.gate.holds)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil || l.idle != 1 {
			t.Errorf("%v, %d slots are idle after a read", err, l.idle)
		}
		_, _ = near.Close(), far.Close()
	})
}

// TestHandshakeReportsThatItWasCut checks that a failed handshake reports that it was cut only if it was.
func TestHandshakeReportsThatItWasCut(t *testing.T) {
	for name, cut := range map[string]bool{"closed by the caller": false, "cut": true} {
		l := New(Config{Max: 1, Compute: 1})
		near, far := net.Pipe()
		h := l.Begin(near)
		conn := h.Server(&tls.Config{Certificates: []tls.Certificate{certificate(t)}})
		if cut {
			l.Begin(&half{from: "10.0.0.2"})
		} else {
			_ = far.Close()
		}
		if err := h.Secure(t.Context(), conn); err == nil || errors.Is(err, errCut) != cut {
			t.Errorf("%s: %v", name, err)
		}
		if l.idle != 1 || h.gate.ctx != nil {
			t.Errorf("%s: %d slots are idle", name, l.idle)
		}
		_, _ = near.Close(), far.Close()
	}
}

// TestReadThatFailsTakesNoSlot checks that a failed read takes no slot.
func TestReadThatFailsTakesNoSlot(t *testing.T) {
	l := New(Config{Compute: 1})
	near, far := net.Pipe()
	_ = far.Close()
	g := &gate{Conn: near, handshake: l.Begin(near), ctx: t.Context()}
	if n, err := g.Read(make([]byte, 1)); n != 0 || err == nil || g.holds || l.idle != 1 {
		t.Errorf("%d bytes, %v, holds a slot: %t", n, err, g.holds)
	}
	_ = near.Close()
}
