package peerport_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// elapse lets virtual time pass, in a synctest bubble.
func elapse(d time.Duration) { <-time.After(d) }

func dialMemory(t *testing.T, m *memory, addr string) net.Conn {
	t.Helper()
	conn, err := m.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestSlowHandshakesAreCut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, log := newMemory(), &journal{}
		l := start(t, knows("n1", "n2"), on(m), log.config)
		silent, dripping := dialMemory(t, m, "n1"), dialMemory(t, m, "n1")
		started := time.Now()
		go func() {
			for _, b := range append([]byte(transport.Preface), 0, 0, 0, 100) {
				if _, err := dripping.Write([]byte{b}); err != nil {
					return
				}
				elapse(time.Second)
			}
		}()
		for _, conn := range []net.Conn{silent, dripping} {
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Error(err)
			}
			_ = conn.Close()
		}
		if d := time.Since(started); d != 5*time.Second {
			t.Errorf("cut after %v, want 5s", d)
		}
		synctest.Wait()
		if s := l.Stats(); s.Refused[peerport.ReasonTimeout] != 2 || s.Handshaking != 0 {
			t.Errorf("stats %+v", s)
		}
		if n := log.count("reason=timeout"); n != 2 {
			t.Errorf("%d refusals logged, want 2", n)
		}
		elapse(time.Minute) // the writer of single bytes notices the end
	})
}

// TestManyStrangers checks that many strangers neither take memory nor keep a peer out.
func TestManyStrangers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, log := newMemory(), &journal{}
		l := start(t, knows("n1", "n2"), on(m), log.config, func(c *peerport.Config) { c.MaxHandshakes = 4 })
		var flood []net.Conn
		for range 100 {
			flood = append(flood, dialMemory(t, m, "n1"))
		}
		synctest.Wait()
		if s := l.Stats(); s.Handshaking != 4 || s.Refused[peerport.ReasonOverload] != 96 {
			t.Errorf("stats %+v", s)
		}
		if n := log.count("refused a connection"); n != ratelog.Burst {
			t.Errorf("%d lines in the log at once, want %d", n, ratelog.Burst)
		}
		conn := dialMemory(t, m, "n1")
		reply, err := greet(conn, goodHello())
		if err != nil || reply.GetStatus() != wire.Status_OK {
			t.Errorf("a peer in the crowd: %v, %v", reply, err)
		}
		elapse(time.Minute)
		flood = append(flood, conn, dialMemory(t, m, "n1"))
		elapse(time.Minute)
		if n := log.count("suppressed=77"); n != 1 {
			t.Error("the log does not say how much it left out")
		}
		for _, c := range flood {
			_ = c.Close()
		}
	})
}

func TestTooManyPeers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		l := start(t, knows("n1", "n2"), on(m), func(c *peerport.Config) { c.MaxConns = 3 })
		got := watchAccept(l)
		var conns []net.Conn
		for i := range 5 {
			conn := dialMemory(t, m, "n1")
			conns = append(conns, conn)
			reply, err := greet(conn, goodHello())
			if err != nil || (reply.GetStatus() == wire.Status_OK) != (i < 3) {
				t.Errorf("connection %d: %v, %v", i, reply, err)
			}
		}
		_ = (<-got).Close()
		elapse(time.Second)
		conn := dialMemory(t, m, "n1")
		if reply, err := greet(conn, goodHello()); err != nil || reply.GetStatus() != wire.Status_OK {
			t.Errorf("after one has left: %v, %v", reply, err)
		}
		for _, c := range append(conns, conn) {
			_ = c.Close()
		}
	})
}

func TestRaftThatDoesNotAccept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		l := start(t, knows("n1", "n2"), on(m))
		conn := dialMemory(t, m, "n1")
		if _, err := greet(conn, goodHello()); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, conn)
		synctest.Wait()
		if s := l.Stats(); s.Refused[peerport.ReasonNotReady] != 1 || s.Inbound != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestRaftConnectionsMayBeSilent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := start(t, knows("n1", "n2"), on(m)), start(t, knows("n2", "n1"), on(m))
		near, err := b.Dial("n1@n1", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		far, err := a.Accept()
		if err != nil {
			t.Fatal(err)
		}
		elapse(24 * time.Hour)
		go near.Write([]byte("x"))
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		// But answers that are not read end the connection.
		started := time.Now()
		if _, err := far.Write([]byte("x")); err == nil || time.Since(started) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(started), err)
		}
		_, _ = near.Close(), far.Close()
	})
}

func TestDialEndsInTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		l := start(t, knows("n1", "n2"), on(m))
		deaf, err := m.Listen(t.Context(), "n2")
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		if _, err := l.Dial("n2@n2", time.Second); err == nil || time.Since(started) != time.Second {
			t.Errorf("nobody accepts: %v after %v", err, time.Since(started))
		}
		go func() {
			conn, _ := deaf.Accept()
			_, _ = io.Copy(io.Discard, conn)
		}()
		started = time.Now()
		if _, err := l.Dial("n2@n2", 0); err == nil || time.Since(started) != 5*time.Second {
			t.Errorf("nobody answers: %v after %v", err, time.Since(started))
		}
		_ = deaf.Close()
		for _, addr := range []raft.ServerAddress{"n2", "@n2", ""} {
			if _, err := l.Dial(addr, time.Second); err == nil {
				t.Errorf("dialled %q, which names no node", addr)
			}
		}
	})
}

func TestDisconnect(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		ka := knows("n1", "n2", "n3")
		a, b, c := start(t, ka, on(m)), start(t, knows("n2", "n1"), on(m)), start(t, knows("n3", "n1"), on(m))
		dial := func(from *peerport.Layer, to raft.ServerAddress) net.Conn {
			conn, err := from.Dial(to, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		gone := []net.Conn{dial(b, "n1@n1"), dial(a, "n2@n2")}
		kept := dial(c, "n1@n1")
		var accepted []net.Conn
		for _, l := range []*peerport.Layer{a, a, b} {
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			accepted = append(accepted, conn)
		}
		ka.record("n2", "n2-2") // n2 was replaced
		a.Disconnect("n2")
		for i, conn := range gone {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("connection %d with the node that was replaced lives", i)
			}
		}
		if s := a.Stats(); s.Inbound != 1 || s.Outbound != 0 {
			t.Errorf("stats %+v", s)
		}
		if _, err := b.Dial("n1@n1", time.Second); !errors.Is(err, peerport.ErrRefused) {
			t.Errorf("the node that was replaced connects again: %v", err)
		}
		if _, err := a.Dial("n2@n2", time.Second); !errors.Is(err, peerport.ErrRefused) {
			t.Errorf("it is connected to again: %v", err)
		}
		for _, conn := range append(append(accepted, gone...), kept) {
			_ = conn.Close()
		}
	})
}

// TestNothingIsAcceptedBeforeStart verifies that a layer answers no caller before it is started.
func TestNothingIsAcceptedBeforeStart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		cfg := peerport.Config{Identity: knows("n1", "n2"), Network: m}
		answering(&cfg)
		var err error
		if cfg.Listener, err = m.Listen(t.Context(), "n1"); err != nil {
			t.Fatal(err)
		}
		a, err := peerport.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		b, called := start(t, knows("n2", "n1"), on(m)), make(chan error, 1)
		go func() {
			_, _, err := b.Call(t.Context(), "n1", "n1", probe)
			called <- err
		}()
		synctest.Wait()
		if len(called) > 0 || a.Stats().Handshaking > 0 {
			t.Error("a caller was accepted")
		}
		a.Start()
		if err := <-called; err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := start(t, knows("n1", "n2"), on(m)), start(t, knows("n2", "n1"), on(m), blocking)
		half := dialMemory(t, m, "n1")
		near, err := a.Dial("n2@n2", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		called := make(chan error, 1)
		go func() {
			_, _, err := a.Call(t.Context(), "n2", "n2", &wire.PeerRequest{})
			called <- err
		}()
		synctest.Wait()
		started := time.Now()
		for _, l := range []*peerport.Layer{a, b, a} {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(started); d > time.Second {
			t.Errorf("it took %v", d)
		}
		if err := <-called; err == nil {
			t.Error("the call did not fail")
		}
		if _, err := a.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v, want net.ErrClosed", err)
		}
		if _, err := a.Dial("n2@n2", time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Dial: %v, want net.ErrClosed", err)
		}
		if _, _, err := a.Call(t.Context(), "n2", "n2", nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Call: %v, want net.ErrClosed", err)
		}
		if s := fmt.Sprint(a.Stats(), b.Stats()); s != "{0 0 0 0 0 map[]} {0 0 0 0 2 map[]}" {
			t.Errorf("stats %s", s)
		}
		_, _ = half.Close(), near.Close()
	})
}
