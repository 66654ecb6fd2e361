package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Network opens connections. There are two: TCP, and the tests' networks in memory, which
// drop, delay and cut. Addresses are host:port in both.
type Network interface {
	Listen(ctx context.Context, addr string) (net.Listener, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// TCP is the real network. Small writes are not held back (Go's default), and a machine
// that is gone is noticed after some 30 seconds without any traffic.
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

// Dial connects to addr over network, TCP if that is nil, and makes the connection Secure
// if config is not nil.
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

// Secure speaks TLS on conn, which was dialled to addr, and returns with the handshake done,
// within HandshakeTimeout. The node's certificate has to name addr's host, unless config
// names another. With a config of TLSFiles.ClientConfig, the certificates are those in the
// files now. It closes conn if it fails.
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
