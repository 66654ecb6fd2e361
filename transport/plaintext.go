package transport

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ErrPlaintext is returned when a port would serve the network without TLS.
var ErrPlaintext = errors.New("refused to listen without TLS")

// CheckPlaintext returns an error unless a node may listen on addr, host:port, without TLS: always on
// loopback addresses, on others only if insecure is set.
func CheckPlaintext(addr string, insecure bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: %w; write it as host:port", addr, err)
	}
	if insecure || isLoopback(host) {
		return nil
	}
	return fmt.Errorf("%w on %q, which other machines can reach: give --tls-cert, --tls-key and --tls-ca "+
		"(--peer-tls-cert, --peer-tls-key and --peer-tls-ca for the peer port; qlock tls init makes the files), "+
		"listen on 127.0.0.1, or give --insecure if the network is safe", ErrPlaintext, addr)
}

// isLoopback does not resolve names, because a name may resolve to another address after the check.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
