package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// ErrGoodbye is returned, as a *GoodbyeError, when the node ended the connection and gave a reason.
var ErrGoodbye = errors.New("the node ended the connection")

// GoodbyeError contains the node's reason.
type GoodbyeError struct {
	Code    wire.Goodbye_Code
	Message string // for people
}

func (e *GoodbyeError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrGoodbye, e.Code, wire.PrintableLine(e.Message))
}

// Is makes errors.Is(err, ErrGoodbye) true, and errors.Is(err, ErrVersion) for a refused version.
func (e *GoodbyeError) Is(target error) bool {
	return target == ErrGoodbye || (target == ErrVersion && e.Code == wire.Goodbye_VERSION)
}

// GoodbyeFrame returns the goodbye frame.
func GoodbyeFrame(code wire.Goodbye_Code, message string) *wire.ServerFrame {
	return &wire.ServerFrame{Frame: &wire.ServerFrame_Goodbye{
		Goodbye: &wire.Goodbye{Code: code, Message: message},
	}}
}

// Refuse sends a goodbye on a connection that nothing else writes to, and closes it. It takes at most wait.
func Refuse(conn net.Conn, code wire.Goodbye_Code, message string, wait time.Duration) {
	_ = conn.SetWriteDeadline(time.Now().Add(wait / 2))
	_ = NewFrameWriter(conn, maxHello).Write(GoodbyeFrame(code, message))
	Hangup(conn, wait/2)
}

// Hangup closes conn in a way that lets the peer read what was written last: it closes the sending half and
// then reads, within wait and a limit in bytes, what the peer still sends. A plain Close with unread bytes
// would reset the connection, and the reset would overtake the goodbye. Nothing else may be reading from conn.
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

// Cut closes conn immediately. The Close of a TLS connection sends an alert first, which takes up to five
// seconds if the peer does not read; Cut does not.
func Cut(conn net.Conn) {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	_ = conn.Close()
}
