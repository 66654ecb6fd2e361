package process

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock/test/netns"
	"github.com/quorumlock/quorumlock/test/ports"
)

// site is where nodes and clients run: all on loopback, or each on its own host.
type site struct {
	ports *ports.Block // on loopback
	net   *netns.Net   // nil on loopback

	mu    sync.Mutex
	taken map[string]int // number of ports in use on each host
}

// firstHostPort is the first port of a node on its own host.
const firstHostPort = 7400

// unable returns why this machine has no namespaces. It checks once.
var unable = sync.OnceValue(netns.Unable)

// newSite skips the test if the machine does not allow what is wanted.
func newSite(t testing.TB, apart bool) *site {
	t.Helper()
	s := &site{taken: map[string]int{}}
	var err error
	if !apart {
		if s.ports, err = ports.Reserve(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.ports.Release)
		return s
	}
	if err := unable(); err != nil {
		t.Skip(err)
	}
	if s.net, err = netns.New(Clients, Frail); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.net.Close)
	return s
}

// join creates a node's host.
func (s *site) join(host string) error {
	if s.net == nil || s.net.Has(host) {
		return nil
	}
	return s.net.Join(host)
}

// take returns a free address on a host.
func (s *site) take(host string) (string, error) {
	if s.net == nil {
		return s.ports.Take()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	port := firstHostPort + s.taken[host]
	s.taken[host]++
	return net.JoinHostPort(s.net.Addr(host), strconv.Itoa(port)), nil
}

// in calls a function on a host; see netns.Net.In.
func (s *site) in(host string, do func() error) error {
	if s.net == nil {
		return do()
	}
	return s.net.In(host, do)
}

func (s *site) dialer(host string) func(context.Context, string) (net.Conn, error) {
	if s.net != nil {
		return s.net.Dialer(host)
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
}

func (s *site) listen(host, addr string) (l net.Listener, err error) {
	err = s.in(host, func() error {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}
