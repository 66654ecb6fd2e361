package transport

import (
	"context"
	"errors"
	"net"
	"time"
)

const (
	// acceptPause is the time between the first failed accept and the next one. It doubles with each failure.
	acceptPause        = 5 * time.Millisecond
	longestAcceptPause = time.Second
)

// Accept calls admit with every connection that the listener accepts, until the listener is closed or ctx ends. admit
// must not block. Other errors of the listener are probably temporary, such as a lack of file descriptors until other
// connections are closed. Accept passes them to failed and tries again after a pause.
func Accept(ctx context.Context, listener net.Listener, admit func(net.Conn), failed func(error)) {
	pause := acceptPause
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			pause = acceptPause
			admit(conn)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			failed(err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, longestAcceptPause)
		}
	}
}
