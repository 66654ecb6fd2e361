package simnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/simnet"
)

// connected returns both ends of a connection from a to b.
func connected(t *testing.T, n *simnet.Net) (near, far net.Conn) {
	t.Helper()
	l, err := n.Host("b").Listen(t.Context(), "b:1")
	if err != nil {
		t.Fatal(err)
	}
	if near, err = n.Host("a").Dial(t.Context(), "b:1"); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
		_ = l.Close()
	})
	return near, far
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("received %q, %v, want %q", b, err, want)
	}
}

func TestDelayAndOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		near, far := connected(t, n)
		n.Delay("a", "b", time.Second)
		begin := time.Now()
		send(t, near, "one")
		n.Delay("a", "b", 0)
		send(t, near, "two")
		receive(t, far, "onetwo")
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v", took)
		}
		send(t, far, "back")
		receive(t, near, "back")
		if took := time.Since(begin); took != time.Second {
			t.Errorf("the way back took %v", took-time.Second)
		}
	})
}

func TestCutKeepsAndHealDelivers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		near, far := connected(t, n)
		n.Cut("a", "b")
		send(t, near, "lost?")
		_ = far.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("through a cut link: %v", err)
		}
		send(t, far, "the other way")
		receive(t, near, "the other way")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Host("b").Dial(ctx, "a:9"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialled through half a link: %v", err)
		}
		_ = far.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Hour, n.Heal)
		receive(t, far, "lost?")
	})
}

func TestLossDelays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := simnet.New(7)
		near, far := connected(t, n)
		n.Drop("a", "b", 0.5)
		begin := time.Now()
		for range 20 {
			send(t, near, "x")
			receive(t, far, "x")
		}
		if took := time.Since(begin); took < time.Second || took > time.Minute {
			t.Errorf("twenty segments took %v at half lost", took)
		}
	})
}

func TestCloseResetAndRefusal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		near, far := connected(t, n)
		send(t, near, "last")
		_ = near.Close()
		receive(t, far, "last")
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after a close: %v", err)
		}
		if _, err := n.Host("a").Dial(t.Context(), "b:2"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens: %v", err)
		}
		near, err := n.Host("a").Dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		n.Host("b").Kill()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("from a killed host: %v", err)
		}
	})
}

func TestWriteBlocksWithoutAReader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		near, far := connected(t, simnet.New(1))
		_ = near.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := near.Write(make([]byte, 1<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 1<<20 {
			t.Errorf("wrote %d, %v", n, err)
		}
		_ = near.SetWriteDeadline(time.Time{})
		go func() { _, _ = io.CopyN(io.Discard, far, int64(n)+1<<20) }()
		if _, err := near.Write(make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
	})
}

func TestScatterReordersConnectionsButNotWithinOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := simnet.New(3)
		near, far := connected(t, n)
		other, err := n.Host("a").Dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Close() })
		n.Scatter("a", "b", time.Second)
		for range 20 {
			send(t, near, "ab")
			send(t, other, "x")
		}
		for range 20 {
			receive(t, far, "ab")
		}
		if s := n.Stats(); s.Overtaken < 5 {
			t.Errorf("%+v: too little was overtaken", s)
		}
	})
}

func TestHungConnectionDeliversAfterItWasGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		near, far := connected(t, n)
		n.Hang("a", "b")
		send(t, near, "late")
		_ = near.Close()
		next, err := n.Host("a").Dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		send(t, next, "first")
		_ = far.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("on a connection that hangs: %v", err)
		}
		_ = far.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Hour, n.Heal)
		receive(t, far, "late")
		if s := n.Stats(); s.Held != 1 {
			t.Errorf("%+v: one segment was held", s)
		}
		n.Host("a").Reset()
		if _, err := next.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) || n.Stats().Reset == 0 {
			t.Errorf("after a reset: %v, %+v", err, n.Stats())
		}
	})
}

func TestRejectIsOneWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		near, far := connected(t, n)
		n.Reject("b", "a")
		send(t, near, "on")
		receive(t, far, "on")
		n.Reject("a", "b")
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("dialled before: %v", err)
		}
		if _, err := n.Host("a").Dial(t.Context(), "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialled after: %v", err)
		}
		n.Heal()
		again, err := n.Host("a").Dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal("healed:", err)
		}
		_ = again.Close()
	})
}
