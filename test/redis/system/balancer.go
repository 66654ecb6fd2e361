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
	servers atomic.Pointer[[]string]
	next    atomic.Uint64
	proxy   *proxy.Proxy
}

// Balance starts a balancer in front of the servers, which ends with the test.
func Balance(t testing.TB, servers ...string) *Balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Balancer{Addr: l.Addr().String()}
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
	d := net.Dialer{Timeout: dialTimeout}
	servers := *b.servers.Load()
	for range servers {
		server := servers[b.next.Add(1)%uint64(len(servers))]
		if conn, err = d.DialContext(ctx, "tcp", server); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("no server accepts connections: %w", err)
}
