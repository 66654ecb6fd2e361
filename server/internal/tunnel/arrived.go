package tunnel

import (
	"errors"
	"net"
	"net/netip"
)

// Arrived is the leader's end of a tunnel. The port serves it like a direct connection from the client:
// limits and metadata by address apply to the client, not to the relaying node.
type Arrived struct {
	net.Conn
	client net.Addr
}

// Arrive wraps the connection that another node has opened for the client at address.
func Arrive(conn net.Conn, address string) *Arrived { return &Arrived{conn, clientAddr(address)} }

// RemoteAddr returns the client's address as seen by the relaying node.
func (a *Arrived) RemoteAddr() net.Addr { return a.client }

// CloseWrite closes the sending side.
func (a *Arrived) CloseWrite() error {
	if half, ok := a.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// clientAddr parses an address, which is not an IP address on every network.
func clientAddr(address string) net.Addr {
	if ip, err := netip.ParseAddrPort(address); err == nil {
		return net.TCPAddrFromAddrPort(ip)
	}
	return named(address)
}

// named is an address that is not an IP address.
type named string

// Network implements net.Addr.
func (named) Network() string { return "tcp" }

func (a named) String() string { return string(a) }
