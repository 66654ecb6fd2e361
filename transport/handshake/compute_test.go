package handshake

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// inLine makes a connection of a source request a slot. What happens is sent to got.
func inLine(ctx context.Context, l *Limiter, from string, got chan<- string, name string) *Handshake {
	h := l.Begin(&half{from: from})
	go func() {
		if err := h.acquire(ctx); err != nil {
			name += ": " + err.Error()
		}
		got <- name
	}()
	synctest.Wait()
	return h
}

func TestSourcesComputeInTurnAndTheNewestFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := New(Config{Compute: 1})
		got := make(chan string, 10)
		inLine(t.Context(), l, "10.0.0.1", got, "computing")
		<-got
		for _, name := range []string{"a1", "a2", "a3"} {
			inLine(t.Context(), l, "10.0.0.1", got, name)
		}
		inLine(t.Context(), l, "10.0.0.2", got, "b1")
		for _, want := range []string{"a3", "b1", "a2", "a1"} {
			l.release()
			if next := <-got; next != want {
				t.Errorf("%s computes, want %s", next, want)
			}
		}
		l.release()
		if l.idle != 1 || l.turns.Len() != 0 || len(l.inTurn) != 0 {
			t.Errorf("%d slots are idle, %d sources have a turn", l.idle, l.turns.Len())
		}
	})
}

func TestCancelledCallerKeepsNoSlot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := New(Config{Max: 3, PerSource: 3, Compute: 1})
		got := make(chan string, 10)
		inLine(t.Context(), l, "10.0.0.1", got, "computing")
		<-got
		ctx, cancel := context.WithCancel(t.Context())
		inLine(ctx, l, "10.0.0.2", got, "impatient")
		cancel()
		if who := <-got; who != "impatient: context canceled" {
			t.Error(who)
		}
		inLine(t.Context(), l, "10.0.0.3", got, "cut")
		startHandshakes(l, 3, "10.0.0.4")
		if who := <-got; who != "cut: "+errCut.Error() {
			t.Error(who)
		}
		l.release()
		if l.idle != 1 || l.turns.Len() != 0 {
			t.Errorf("%d slots are idle, %d sources have a turn", l.idle, l.turns.Len())
		}
	})
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "n"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestUnfinishedTLSTakesNoSlot checks that a caller that sends nothing, or stops half-way, holds no slot.
func TestUnfinishedTLSTakesNoSlot(t *testing.T) {
	l := New(Config{Compute: 1})
	config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	secure := func(client func(net.Conn)) (*Handshake, chan error) {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		h := l.Begin(near)
		conn := h.Server(config)
		done := make(chan error, 1)
		go func() { done <- h.Secure(t.Context(), conn) }()
		go client(far)
		return h, done
	}
	silent, silentDone := secure(func(net.Conn) {})
	hello := make(chan struct{})
	half, halfDone := secure(func(far net.Conn) {
		far = &silenced{Conn: far, after: 1, said: hello}
		_ = tls.Client(far, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(context.Background()) //nolint:gosec // its own certificate
	})
	<-hello
	for range 3 {
		_, done := secure(func(far net.Conn) {
			_ = tls.Client(far, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(context.Background()) //nolint:gosec // its own certificate
		})
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("an honest handshake waits for a half-made one")
		}
	}
	_, _ = silent.conn.Close(), half.conn.Close()
	if err := errors.Join(<-silentDone, <-halfDone); err == nil {
		t.Error("half a handshake is done")
	}
	if l.idle != 1 {
		t.Errorf("%d slots are idle", l.idle)
	}
}

// silenced is a caller that stops sending after so many writes.
type silenced struct {
	net.Conn
	after int
	said  chan struct{}
}

func (m *silenced) Write(p []byte) (int, error) {
	if m.after--; m.after < 0 {
		return len(p), nil
	}
	n, err := m.Conn.Write(p)
	close(m.said)
	return n, err
}

// TestSlotsRestInAFlood verifies that a slot rests as long as it was used while others wait, and not otherwise.
func TestSlotsRestInAFlood(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := New(Config{Compute: 1})
		got := make(chan string, 10)
		inLine(t.Context(), l, "10.0.0.1", got, "first")
		<-got
		if l.rest(10 * time.Millisecond); l.idle != 1 {
			t.Error("a slot rests that nobody waits for")
		}
		inLine(t.Context(), l, "10.0.0.1", got, "second")
		<-got
		inLine(t.Context(), l, "10.0.0.2", got, "third")
		for _, took := range []time.Duration{10 * time.Millisecond, time.Hour} {
			begun := time.Now()
			l.rest(took)
			<-got
			if rested := time.Since(begun); rested != min(took, longestRest) {
				t.Errorf("after %v the slot rested for %v", took, rested)
			}
			inLine(t.Context(), l, "10.0.0.3", got, "next")
		}
		l.release()
		<-got
	})
}
