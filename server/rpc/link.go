package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/tunnel"
)

var (
	// errIdle is returned when nothing arrived for the idle timeout and nothing is expected.
	errIdle = errors.New("idle")
	// errStalled is returned when a frame did not arrive completely within its timeout.
	errStalled = errors.New("a frame did not arrive in time")
	// errEnded is returned after this side has ended the connection.
	errEnded = errors.New("ended")
)

// link is a connection with read deadlines that depend on its state: silence between frames is allowed while
// the connection is busy, silence within a frame is not.
//
// Only the connection's reader uses it, except where noted otherwise.
type link struct {
	net.Conn
	idle, frame time.Duration
	busy        func() bool                            // reports whether silence may last longer than idle
	ending      chan struct{}                          // closed by cutShort
	secure      func(context.Context, *tls.Conn) error // performs the TLS handshake, if there is one
	tunnel      *tunnel.Tunnel                         // carries everything after the hello to the leader; nil without a tunnel

	heard    time.Time // when data last arrived
	deadline time.Time // the deadline set on Conn
	within   bool      // whether deadline is that of a frame in progress
}

func newLink(conn net.Conn, limits Limits) *link {
	return &link{
		Conn:   conn,
		idle:   limits.IdleTimeout,
		frame:  limits.FrameTimeout,
		busy:   func() bool { return false },
		ending: make(chan struct{}),
	}
}

// frameEnded is called after each frame, so that the next one gets its full timeout.
func (l *link) frameEnded() {
	if l.within {
		l.within, l.deadline = false, time.Time{}
	}
}

// cutShort makes the current read and all later ones fail with errEnded. Any goroutine may call it, but only
// once.
func (l *link) cutShort() {
	close(l.ending)
	_ = l.SetReadDeadline(time.Unix(1, 0))
}

// rest sets the deadline for the next read after data has arrived. begun is true if a frame has arrived in
// part.
func (l *link) rest(started bool) error {
	l.heard = time.Now()
	return l.arm(started, l.heard)
}

// arm sets the deadline, but not for every frame: while frames arrive in quick succession it keeps an idle
// deadline that is up to half the idle timeout old, and silence checks again when that has passed.
func (l *link) arm(started bool, now time.Time) error {
	switch {
	case started && !l.within:
		l.within, l.deadline = true, now.Add(l.frame)
	case !started && l.deadline.Sub(now) < l.idle/2:
		l.deadline = now.Add(l.idle)
	default:
		return l.ended()
	}
	if err := l.SetReadDeadline(l.deadline); err != nil {
		return err
	}
	return l.ended() // checked after setting the deadline, so that it cannot overwrite cutShort's
}

// silence decides what an expired deadline means. It returns nil if the reader should keep waiting.
func (l *link) silence() error {
	now := time.Now()
	switch {
	case l.ended() != nil:
		return errEnded
	case l.within:
		return errStalled
	case !l.busy() && now.Sub(l.heard) >= l.idle:
		return errIdle
	}
	l.deadline = time.Time{}
	return l.arm(false, now)
}

func (l *link) ended() error {
	select {
	case <-l.ending:
		return errEnded
	default:
		return nil
	}
}

// HandshakeContext completes the TLS handshake, if there is one.
func (l *link) HandshakeContext(ctx context.Context) error {
	if t, ok := l.Conn.(*tls.Conn); ok {
		return l.secure(ctx, t)
	}
	return nil
}

// CloseWrite closes the sending side.
func (l *link) CloseWrite() error {
	if half, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Descriptor returns the raw connection for direct reads and writes, which is safe because the link
// transforms nothing. It returns an error if the connection uses TLS.
func (l *link) Descriptor() (syscall.RawConn, error) {
	if c, ok := l.Conn.(*net.TCPConn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// NetConn returns the connection below TLS.
func (l *link) NetConn() net.Conn {
	if t, ok := l.Conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return l.Conn
}
