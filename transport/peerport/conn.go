package peerport

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/transport"
)

// closeTimeout bounds the TLS alert to a peer that does not read.
const closeTimeout = 500 * time.Millisecond

// peerConn is an established connection. The Layer tracks all of them, because raft leaves connections
// that it accepted open when it stops.
type peerConn struct {
	net.Conn
	layer *Layer
	peer  string // id of the other node
	// incarnation is the one that the other node was admitted under; empty if either side treats the
	// other as a stranger.
	incarnation string
	inbound     bool
	tunnel      bool // carries the bytes of a client
	once        sync.Once
	closing     atomic.Bool // set by Close, before the other end can answer by closing its side
	err         error
	done        chan struct{} // closed by Close
}

// establish registers conn. It returns net.ErrClosed after Close, and errFull if there are too many
// incoming connections. Tunnels are counted separately, so that clients take no places of nodes.
func (l *Layer) establish(conn net.Conn, peer, incarnation string, inbound, tunnel bool) (*peerConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	c := &peerConn{Conn: conn, layer: l, peer: peer, incarnation: incarnation, inbound: inbound, tunnel: tunnel, done: make(chan struct{})}
	if n, most := l.places(c); inbound {
		if *n >= most {
			return nil, errFull
		}
		*n++
	}
	l.conns[c] = true
	if err := c.checkRevoked(); err != nil { // a recheck since the TLS handshake has missed this connection
		l.remove(c)
		return nil, err
	}
	return c, nil
}

// places returns the count of incoming connections of the same kind as c, and its limit. The
// caller must hold mu.
func (l *Layer) places(c *peerConn) (n *int, most int) {
	if c.tunnel {
		return &l.tunnels, l.cfg.MaxTunnels
	}
	return &l.inbound, l.cfg.MaxConns
}

// Close closes the connection, within closeTimeout.
func (c *peerConn) Close() error {
	c.once.Do(func() {
		c.closing.Store(true)
		limit := time.AfterFunc(closeTimeout, func() { transport.Cut(c.Conn) })
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
	l.remove(c)
}

// remove is forget for callers that hold mu.
func (l *Layer) remove(c *peerConn) {
	if c.inbound && l.conns[c] {
		n, _ := l.places(c)
		*n--
	}
	delete(l.conns, c)
}

// raftConn is a connection that raft has accepted. Raft closes each of them at some point and uses it until
// then, even if the Layer has closed it earlier.
type raftConn struct {
	*peerConn
	returned sync.Once
}

func (c *raftConn) Close() error {
	c.returned.Do(c.layer.raftConns.Done)
	return c.peerConn.Close()
}

// Read returns io.EOF if the Layer has closed the connection. For raft that is a normal end; it would log
// anything else as an error.
func (c *peerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.layer.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// Write sets a deadline for answers, because raft sets deadlines only on connections that it dialled.
func (c *peerConn) Write(b []byte) (int, error) {
	if c.layer.silenced.Load() {
		return 0, net.ErrClosed
	}
	if c.inbound {
		_ = c.SetWriteDeadline(time.Now().Add(c.layer.cfg.WriteTimeout))
	}
	return c.Conn.Write(b)
}
