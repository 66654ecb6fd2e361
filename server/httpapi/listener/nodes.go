package listener

import (
	"net"
	"sync"
)

// NodeConn is a connection that another node has opened through the peer port.
type NodeConn struct{ net.Conn }

// Nodes is a listener for connections from other nodes. It is safe for concurrent use.
type Nodes struct {
	arrived chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// NewNodes returns a listener without connections.
func NewNodes() *Nodes { return &Nodes{arrived: make(chan net.Conn), closed: make(chan struct{})} }

// Arrive hands a connection to Accept, or closes it after Close.
func (n *Nodes) Arrive(conn net.Conn) {
	select {
	case n.arrived <- &NodeConn{conn}:
	case <-n.closed:
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (n *Nodes) Accept() (net.Conn, error) {
	select {
	case conn := <-n.arrived:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *Nodes) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener. The connections have no address of their own.
func (n *Nodes) Addr() net.Addr { return &net.UnixAddr{Name: "nodes", Net: "unix"} }
