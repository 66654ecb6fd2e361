package client

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport"
)

// tap is a TCP connection that counts writes.
type tap struct {
	*net.TCPConn
	writes *atomic.Int64
}

func (t tap) Write(b []byte) (int, error) {
	t.writes.Add(1)
	return t.TCPConn.Write(b)
}

func (t tap) Descriptor() (syscall.RawConn, error) {
	raw, err := t.TCPConn.SyscallConn()
	return tapped{raw, t.writes}, err
}

type tapped struct {
	syscall.RawConn
	writes *atomic.Int64
}

func (t tapped) Write(f func(fd uintptr) bool) error {
	t.writes.Add(1)
	return t.RawConn.Write(f)
}

// TestRequestsOfManySessionsLeaveTogether checks that requests of many sessions on one connection share
// writes, while a single request does not wait for others.
func TestRequestsOfManySessionsLeaveTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, shape := range []struct{ sessions, atLeast, atMost int }{{1, 1, 1}, {64, 8, 64}} {
		p := newPrompt(t)
		var writes atomic.Int64
		c, err := New(Config{Endpoints: []string{p.listener.Addr().String()}, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := transport.TCP{}.Dial(ctx, addr)
			if err != nil {
				return nil, err
			}
			return tap{conn.(*net.TCPConn), &writes}, nil
		}})
		ok(t, err)
		var sessions []*Session
		for range shape.sessions {
			s, err := c.NewSession(t.Context(), SessionOptions{TTL: time.Minute})
			ok(t, err)
			sessions = append(sessions, s)
		}
		const frames = 6400
		writes.Store(0)
		pairs(t, sessions, frames/2)
		if n := int(writes.Load()); n > frames/shape.atLeast || n < frames/shape.atMost {
			t.Errorf("%d sessions: %d writes for %d requests", shape.sessions, n, frames)
		}
		ok(t, c.Close())
	}
}
