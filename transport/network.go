package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Network opens connections. There are two implementations: TCP, and an in-memory network for tests that
// drops, delays and cuts. Addresses are host:port in both.
type Network interface {
	Listen(ctx context.Context, addr string) (net.Listener, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// TCP is the real network. Nagle's algorithm is off (Go's default), and a peer whose machine is gone is
// detected after about 30 seconds without any traffic.
type TCP struct{}

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Listen listens on addr.
func (TCP) Listen(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	return lc.Listen(ctx, "tcp", addr)
}

// Dial connects to addr.
func (TCP) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive}
	return d.DialContext(ctx, "tcp", addr)
}

// Dial connects to addr over network, TCP if it is nil, and calls Secure on the connection if
// config is not nil.
func Dial(ctx context.Context, network Network, addr string, config *tls.Config) (net.Conn, error) {
	if network == nil {
		network = TCP{}
	}
	conn, err := network.Dial(ctx, addr)
	if err != nil || config == nil {
		return conn, err
	}
	return Secure(ctx, conn, addr, config)
}

// Secure completes a TLS handshake on conn, which was dialled to addr, within HandshakeTimeout. The node's
// certificate must be valid for addr's host, unless config has another server name. With a config from
// TLSFiles.ClientConfig, the current certificates of the files are used. Secure closes conn if it fails.
func Secure(ctx context.Context, conn net.Conn, addr string, config *tls.Config) (net.Conn, error) {
	config, err := forHost(config, addr)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("tls with %s: %w", addr, err)
	}
	return secured, nil
}

func forHost(config *tls.Config, addr string) (*tls.Config, error) {
	config = Fresh(config)
	if config.ServerName == "" && !config.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		config.ServerName = host
	}
	return config, nil
}
