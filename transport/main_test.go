package transport_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request returns a typical frame of about forty bytes.
func request(id uint64) *wire.ClientFrame {
	return &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{
		Id: id, SessionId: 4711, Seq: id, AckedBelow: id - 1,
		Body: &wire.Request_Release{Release: &wire.Release{HoldId: 99, Token: 1 << 60}},
	}}}
}

// sized returns a frame of roughly n bytes.
func sized(n int) *wire.ClientFrame {
	return &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{
		Id: 1, Body: &wire.Request_Attach{Attach: &wire.AttachRequest{Secret: make([]byte, n)}},
	}}}
}

// gate is a connection whose writes can be blocked. It counts them and keeps what was written. Deadlines
// do not end a write; Close does.
type gate struct {
	net.Conn // nil: only the methods below may be used
	writes   atomic.Int64
	mu       sync.Mutex
	written  []byte
	open     chan struct{} // closed when writes may proceed
	closed   chan struct{}
	once     sync.Once
}

func newGate() *gate { return &gate{open: make(chan struct{}), closed: make(chan struct{})} }

func (g *gate) Write(b []byte) (int, error) {
	g.writes.Add(1)
	select {
	case <-g.open:
	case <-g.closed:
		return 0, net.ErrClosed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written = append(g.written, b...)
	return len(b), nil
}

func (g *gate) bytes() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.written
}

func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return nil
}

func (g *gate) SetDeadline(time.Time) error      { return nil }
func (g *gate) SetWriteDeadline(time.Time) error { return nil }
func (g *gate) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// elapse lets virtual time pass, in a synctest bubble.
func elapse(d time.Duration) { <-time.After(d) }
