package framed

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/server/tunnel"
)

var (
	// errIdle is returned when nothing came for long and nothing is expected.
	errIdle = errors.New("idle")
	// errStalled is returned when a frame began and did not end in time.
	errStalled = errors.New("a frame did not arrive in time")
	// errEnded is returned when this side ended the connection.
	errEnded = errors.New("ended")
)

// link is a connection that knows what to expect of its reads: silence between frames is
// fine for as long as somebody here has reason to wait, silence within a frame is not.
//
// Only the connection's reader uses what is not documented otherwise.
type link struct {
	net.Conn
	idle, frame time.Duration
	busy        func() bool                            // whether silence is fine for longer
	ending      chan struct{}                          // closed by cutShort
	secure      func(context.Context, *tls.Conn) error // makes the TLS handshake, if there is any
	tunnel      *tunnel.Tunnel                         // what follows is for the leader, if there is one

	heard    time.Time // when something came last
	deadline time.Time // as it is set on Conn
	within   bool      // deadline is that of the frame that has begun
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

// frameEnded is called after each frame: another one has its full time.
func (l *link) frameEnded() {
	if l.within {
		l.within, l.deadline = false, time.Time{}
	}
}

// cutShort ends the read under way and all later ones with errEnded. Any goroutine may
// call it, once.
func (l *link) cutShort() {
	close(l.ending)
	_ = l.SetReadDeadline(time.Unix(1, 0))
}

// rest sets the deadline for what comes next, which begun says is the rest of a frame.
// Something has just arrived.
func (l *link) rest(begun bool) error {
	l.heard = time.Now()
	return l.arm(begun, l.heard)
}

// arm sets the deadline, but not anew for each frame: while frames come in quick
// succession, an idle deadline that is up to half its length old will do, and silence
// looks again when it has passed.
func (l *link) arm(begun bool, now time.Time) error {
	switch {
	case begun && !l.within:
		l.within, l.deadline = true, now.Add(l.frame)
	case !begun && l.deadline.Sub(now) < l.idle/2:
		l.deadline = now.Add(l.idle)
	default:
		return l.ended()
	}
	if err := l.SetReadDeadline(l.deadline); err != nil {
		return err
	}
	return l.ended() // after the deadline was set, so that cutShort's cannot be lost
}

// silence decides what a deadline that has passed means; nil is to go on waiting.
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

// HandshakeContext ends the TLS handshake, if there is any.
func (l *link) HandshakeContext(ctx context.Context) error {
	if t, ok := l.Conn.(*tls.Conn); ok {
		return l.secure(ctx, t)
	}
	return nil
}

// CloseWrite closes the sending half.
func (l *link) CloseWrite() error {
	if half, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Descriptor is what may be read and written past the link, which adds nothing to either;
// there is none where the connection speaks TLS.
func (l *link) Descriptor() (syscall.RawConn, error) {
	if c, ok := l.Conn.(*net.TCPConn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// NetConn is the connection below TLS.
func (l *link) NetConn() net.Conn {
	if t, ok := l.Conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return l.Conn
}
