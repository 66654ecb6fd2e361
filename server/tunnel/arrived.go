package tunnel

import (
	"errors"
	"net"
	"net/netip"
)

// Arrived is a tunnel at the leader. To the port that serves it, it is a connection of the
// client's: bounds and metadata by address are about the client, not about the node between.
type Arrived struct {
	net.Conn
	client net.Addr
}

// Arrive makes the connection that another node has opened for the client at an address.
func Arrive(conn net.Conn, address string) *Arrived { return &Arrived{conn, clientAddr(address)} }

// RemoteAddr is the client's address, as the node between sees it.
func (a *Arrived) RemoteAddr() net.Addr { return a.client }

// CloseWrite closes the sending half.
func (a *Arrived) CloseWrite() error {
	if half, ok := a.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// clientAddr parses an address, which need not be an IP's on every network.
func clientAddr(address string) net.Addr {
	if ip, err := netip.ParseAddrPort(address); err == nil {
		return net.TCPAddrFromAddrPort(ip)
	}
	return named(address)
}

// named is an address that is no IP's.
type named string

// Network implements net.Addr.
func (named) Network() string { return "tcp" }

func (a named) String() string { return string(a) }
