package system

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/proxy"
)

// dialTimeout bounds the attempt to connect to one server.
const dialTimeout = time.Second

// Balancer is a TCP load balancer. It connects clients to the servers in turn, and skips those that refuse.
type Balancer struct {
	// Addr is where it listens.
	Addr    string
	dialer  func(ctx context.Context, addr string) (net.Conn, error)
	servers atomic.Pointer[[]string]
	next    atomic.Uint64
	proxy   *proxy.Proxy
}

// Balance starts a balancer in front of the servers, which ends with the test.
func Balance(t testing.TB, servers ...string) *Balancer {
	t.Helper()
	return BalanceFrom(t, func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}, servers...)
}

// BalanceFrom is Balance for servers on another network, which dial connects to.
func BalanceFrom(t testing.TB, dial func(ctx context.Context, addr string) (net.Conn, error), servers ...string) *Balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Balancer{Addr: l.Addr().String(), dialer: dial}
	b.servers.Store(&servers)
	b.proxy = proxy.New(l, b.dial)
	t.Cleanup(b.proxy.Close)
	return b
}

// Redirect connects clients to other servers from now on, and ends all connections.
func (b *Balancer) Redirect(servers ...string) {
	b.servers.Store(&servers)
	b.Interrupt()
}

// Interrupt ends all connections.
func (b *Balancer) Interrupt() { b.proxy.Break() }

// Stall stops forwarding, without closing connections.
func (b *Balancer) Stall() { b.proxy.Behave(proxy.Manners{Stall: true}) }

func (b *Balancer) dial(ctx context.Context) (conn net.Conn, err error) {
	servers := *b.servers.Load()
	for range servers {
		server := servers[b.next.Add(1)%uint64(len(servers))]
		once, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err = b.dialer(once, server)
		cancel()
		if err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("no server accepts connections: %w", err)
}
