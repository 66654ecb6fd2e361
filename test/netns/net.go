package netns

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// toolTimeout bounds one call of ip or nft.
const toolTimeout = 10 * time.Second

// cable is the name of every host's network interface.
const cable = "eth0"

// Net is a set of hosts on one switch. Its methods are safe for concurrent use, except Close, which must be
// the last call.
type Net struct {
	hub    space
	faults atomic.Int64 // number so far

	mu     sync.RWMutex
	names  []string
	spaces []space
}

// Unable returns why this machine cannot have such networks, or nil if it can.
func Unable() error {
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("network namespaces: %w (Debian: iproute2, nftables)", err)
		}
	}
	n, err := New("probe")
	if err != nil {
		return fmt.Errorf("network namespaces: %w", err)
	}
	defer n.Close()
	f, err := n.Lose(1, "probe")
	if err != nil {
		return fmt.Errorf("network namespaces: %w", err)
	}
	return f.Heal()
}

// New creates a network of hosts that all reach each other. Close removes it.
func New(hosts ...string) (n *Net, err error) {
	n = &Net{}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	if n.hub, err = newSpace(); err != nil {
		return n, fmt.Errorf("make a namespace: %w", err)
	}
	if err := n.ip(n.hub, "link add name hub type bridge", "link set hub up"); err != nil {
		return n, err
	}
	for _, host := range hosts {
		if err := n.Join(host); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Join creates a host and connects it.
func (n *Net) Join(host string) error {
	s, err := newSpace()
	if err != nil {
		return fmt.Errorf("host %s: make a namespace: %w", host, err)
	}
	n.mu.Lock()
	n.names, n.spaces = append(n.names, host), append(n.spaces, s)
	port := fmt.Sprintf("port%d", len(n.names))
	n.mu.Unlock()
	err = n.ip(n.hub,
		fmt.Sprintf("link add name %s type veth peer name %s netns %s", port, cable, s.path()),
		fmt.Sprintf("link set %s master hub up", port))
	if err != nil {
		return fmt.Errorf("host %s: %w", host, err)
	}
	return n.ip(s, "link set lo up", fmt.Sprintf("addr add %s/16 dev %s", n.Addr(host), cable), "link set "+cable+" up")
}

// ip runs a batch of ip commands in a namespace.
func (n *Net) ip(where space, lines ...string) error {
	_, err := run(where, strings.Join(lines, "\n")+"\n", "ip", "-batch", "-")
	return err
}

// run runs a program in a namespace and returns its output.
func run(where space, input, name string, args ...string) (out string, err error) {
	err = where.in(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdin = strings.NewReader(input)
		text, err := cmd.CombinedOutput()
		if out = string(text); err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	})
	return out, err
}

// Addr returns a host's IP address.
func (n *Net) Addr(host string) string {
	at, _ := n.find(host)
	return fmt.Sprintf("10.77.%d.%d", at/250, at%250+1)
}

// Has reports whether there is such a host.
func (n *Net) Has(host string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Contains(n.names, host)
}

// find panics if the host does not exist, since the test is wrong then.
func (n *Net) find(host string) (int, space) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	i := slices.Index(n.names, host)
	if i < 0 {
		panic(fmt.Sprintf("netns: no host %q among %q", host, n.names))
	}
	return i, n.spaces[i]
}

// In calls a function on a thread that is in the host's namespace. Sockets that it opens itself, not in other
// goroutines, and programs that it starts belong to the host.
func (n *Net) In(host string, do func() error) error {
	_, s := n.find(host)
	return s.in(do)
}

// Dialer returns a function that connects from a host to an IP address and port.
func (n *Net) Dialer(host string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		_, s := n.find(host)
		return s.dial(ctx, addr)
	}
}

// Listen listens on a host.
func (n *Net) Listen(host, addr string) (l net.Listener, err error) {
	err = n.In(host, func() error {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}

// Close removes the network. Processes in it keep their namespace until they end.
func (n *Net) Close() {
	for _, s := range append(n.spaces, n.hub) {
		s.close()
	}
}
