package peerport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// WatchProcess opens a connection to a node and holds it until one of them ends. It returns nil only if the
// node has closed the open connection, which is what the kernel does for a dead process. It calls opened
// once the node has answered. In all other cases it returns an error: the connection could not be opened
// (see NobodyListens), ctx has ended, this Layer has closed it, or the network has lost it.
//
// The connection is an ordinary control connection with periodic probes, so every version of this program
// keeps it open.
func (l *Layer) WatchProcess(ctx context.Context, addr, id string, opened func()) error {
	peer, r, _, err := l.open(ctx, addr, id, wire.PeerHello_CONTROL)
	if err != nil {
		return fmt.Errorf("reach node %q at %s: %w", id, addr, err)
	}
	defer func() { _ = peer.Close() }()
	opened()
	stop := context.AfterFunc(ctx, func() { _ = peer.Close() })
	defer stop()
	var speaking sync.WaitGroup
	speaking.Go(func() { l.speak(peer) })
	r.SetMax(maxControl)
	for err == nil {
		err = r.Read(&wire.PeerResponse{})
	}
	ours := peer.closing.Load()
	_ = peer.Close()
	speaking.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case ours:
		return net.ErrClosed
	case closedByPeer(err):
		return nil
	}
	return fmt.Errorf("hold on to node %q at %s: %w", id, addr, err)
}

// speak sends probes until the connection is closed, because the other end closes silent connections. A
// late answer means nothing: the node may only be slow.
func (l *Layer) speak(peer *peerConn) {
	w := transport.NewFrameWriter(peer, maxControl)
	probe := &wire.PeerRequest{Body: &wire.PeerRequest_Probe{Probe: &wire.ProbeRequest{}}}
	tick := time.NewTicker(l.cfg.IdleTimeout / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = peer.SetWriteDeadline(time.Now().Add(l.cfg.WriteTimeout))
			if w.Write(probe) != nil {
				return // the reader will get the reason
			}
		case <-peer.done:
			return
		}
	}
}

// closedByPeer reports whether the other end has closed the connection, gracefully or not.
func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// NobodyListens reports whether err means that the other machine refused the connection: the machine is
// up, and no process listens. A firewall may cause the same error.
func NobodyListens(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// Linked reports whether a connection that a member has opened to this node is still open.
func (l *Layer) Linked(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.inbound && c.peer == id && c.incarnation != "" {
			return true
		}
	}
	return false
}
