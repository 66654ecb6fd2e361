package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// ErrGoodbye is returned, as a *GoodbyeError, when the node ended the connection with a
// reason.
var ErrGoodbye = errors.New("the node ended the connection")

// GoodbyeError carries the node's last words.
type GoodbyeError struct {
	Code    wire.Goodbye_Code
	Message string // for people
}

func (e *GoodbyeError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrGoodbye, e.Code, wire.PrintableLine(e.Message))
}

// Is makes errors.Is(err, ErrGoodbye) hold, and errors.Is(err, ErrVersion) for a refused
// version.
func (e *GoodbyeError) Is(target error) bool {
	return target == ErrGoodbye || (target == ErrVersion && e.Code == wire.Goodbye_VERSION)
}

// Farewell is the frame that says goodbye.
func Farewell(code wire.Goodbye_Code, message string) *wire.ServerFrame {
	return &wire.ServerFrame{Frame: &wire.ServerFrame_Goodbye{
		Goodbye: &wire.Goodbye{Code: code, Message: message},
	}}
}

// Refuse says goodbye on a connection that nobody else writes to, and hangs up. It takes
// at most wait.
func Refuse(conn net.Conn, code wire.Goodbye_Code, message string, wait time.Duration) {
	_ = conn.SetWriteDeadline(time.Now().Add(wait / 2))
	_ = NewFrameWriter(conn, maxHello).Write(Farewell(code, message))
	Hangup(conn, wait/2)
}

// Hangup closes conn so that what was written last can still be read: it closes the
// sending half and reads, within wait and a bound, what the other side has still to say.
// A plain Close with unread bytes would reset the connection, and a reset overtakes the
// goodbye. Nobody else may be reading conn.
func Hangup(conn net.Conn, wait time.Duration) {
	const readAtMost = 4 << 20
	limit := time.AfterFunc(wait, func() { Cut(conn) })
	defer limit.Stop()
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		if half.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, conn, readAtMost)
		}
	}
	_ = conn.Close()
}

// Cut closes conn at once. The Close of a TLS connection says goodbye first, for up to
// five seconds if the other side does not read; Cut does not.
func Cut(conn net.Conn) {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	_ = conn.Close()
}
