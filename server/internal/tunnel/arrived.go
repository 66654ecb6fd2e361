package tunnel

import (
	"errors"
	"net"
	"net/netip"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Arrived is the leader's end of a tunnel. The port serves it like a direct connection from the client:
// limits and metadata by address apply to the client, not to the relaying node.
type Arrived struct {
	net.Conn
	client net.Addr
	caller *wire.Caller
}

// Arrive wraps the connection that another node has opened for a caller.
func Arrive(conn net.Conn, caller *wire.Caller) *Arrived {
	return &Arrived{conn, clientAddr(caller.GetAddress()), caller}
}

// Caller returns the client as the relaying node has verified it.
func (a *Arrived) Caller() *wire.Caller { return a.caller }

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
