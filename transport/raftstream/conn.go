package raftstream

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport"
)

// partingTime bounds TLS's goodbye to a peer that does not read.
const partingTime = 500 * time.Millisecond

// peerConn is an established connection. The Layer knows all of them, because raft leaves
// those that it accepted open when it stops.
type peerConn struct {
	net.Conn
	layer *Layer
	peer  string // the other node
	// incarnation is the one under which the other node was admitted; empty if this end or
	// the other one takes it for a stranger.
	incarnation string
	inbound     bool
	once        sync.Once
	err         error
	done        chan struct{} // closed by Close
}

// establish registers conn. It fails with net.ErrClosed after Close, and with errFull if
// too many connections came in.
func (l *Layer) establish(conn net.Conn, peer, incarnation string, inbound bool) (*peerConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	if inbound {
		if l.inbound >= l.cfg.MaxConns {
			return nil, errFull
		}
		l.inbound++
	}
	c := &peerConn{Conn: conn, layer: l, peer: peer, incarnation: incarnation, inbound: inbound, done: make(chan struct{})}
	l.conns[c] = true
	return c, nil
}

// Close closes the connection, within partingTime.
func (c *peerConn) Close() error {
	c.once.Do(func() {
		limit := time.AfterFunc(partingTime, func() { transport.Cut(c.Conn) })
		c.err = c.Conn.Close()
		limit.Stop()
		c.layer.forget(c)
		close(c.done)
	})
	return c.err
}

func (l *Layer) forget(c *peerConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.inbound && l.conns[c] {
		l.inbound--
	}
	delete(l.conns, c)
}

// lent is a connection in raft's hands. Raft closes each that it accepted, sooner or later,
// and only then has let go of it, even if the Layer has closed it before.
type lent struct {
	*peerConn
	returned sync.Once
}

func (c *lent) Close() error {
	c.returned.Do(c.layer.lent.Done)
	return c.peerConn.Close()
}

// Read says EOF when the Layer has closed the connection: for raft that is an ordinary end,
// anything else it would log as an error.
func (c *peerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.layer.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// Write bounds the time of answers, for raft sets deadlines only on connections that it
// dialled.
func (c *peerConn) Write(b []byte) (int, error) {
	if c.layer.mute.Load() {
		return 0, net.ErrClosed
	}
	if c.inbound {
		_ = c.SetWriteDeadline(time.Now().Add(c.layer.cfg.WriteTimeout))
	}
	return c.Conn.Write(b)
}
