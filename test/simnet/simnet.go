package simnet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Net is one network of named hosts. All methods are safe for concurrent use.
type Net struct {
	mu        sync.Mutex
	rand      *rand.Rand
	links     map[link]fault
	listeners map[string]*listener
	conns     map[*conn]struct{}
	nextPort  int
	// changed is closed and replaced when a link changes.
	changed chan struct{}
}

type link struct{ from, to string }

// fault is what is wrong with one direction between two hosts.
type fault struct {
	cut   bool
	delay time.Duration
	loss  float64
}

// retransmission is what a lost segment costs.
const retransmission = 200 * time.Millisecond

// New makes a network without faults. The seed decides what lossy links lose.
func New(seed uint64) *Net {
	return &Net{
		rand:      rand.New(rand.NewPCG(seed, 0)),
		links:     map[link]fault{},
		listeners: map[string]*listener{},
		conns:     map[*conn]struct{}{},
		nextPort:  40000,
		changed:   make(chan struct{}),
	}
}

// Host is one machine: what listens and dials through it has its name as address.
type Host struct {
	net  *Net
	name string
}

// Host names a machine. Addresses on it are name:port.
func (n *Net) Host(name string) *Host { return &Host{n, name} }

// Cut stops what goes from one host to another, one way; it is kept for later.
func (n *Net) Cut(from, to string) { n.set(from, to, func(f *fault) { f.cut = true }) }

// Delay makes everything from one host to another take d, one way. It does not reorder.
func (n *Net) Delay(from, to string, d time.Duration) {
	n.set(from, to, func(f *fault) { f.delay = d })
}

// Drop loses a share of what goes from one host to another, one way.
func (n *Net) Drop(from, to string, share float64) {
	n.set(from, to, func(f *fault) { f.loss = share })
}

// Isolate cuts a host off from the others, both ways.
func (n *Net) Isolate(host string, others ...string) {
	for _, o := range others {
		n.Cut(host, o)
		n.Cut(o, host)
	}
}

// Heal ends every fault.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links = map[link]fault{}
	n.announce()
}

func (n *Net) set(from, to string, change func(*fault)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.links[link{from, to}]
	change(&f)
	n.links[link{from, to}] = f
	n.announce()
}

// announce wakes everybody who waits for a link. Called with mu.
func (n *Net) announce() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// state is the link's condition, and what is closed when any changes.
func (n *Net) state(l link) (fault, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[l], n.changed
}

// arrival is when something sent now arrives if the link stays up.
func (n *Net) arrival(l link) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.links[l]
	at := time.Now().Add(f.delay)
	for f.loss > 0 && n.rand.Float64() < f.loss {
		at = at.Add(retransmission)
	}
	return at
}

// Kill resets every connection of the host and closes its ports, like a process that
// dies.
func (h *Host) Kill() {
	h.net.mu.Lock()
	var conns []*conn
	for c := range h.net.conns {
		if c.local.host == h.name || c.remote.host == h.name {
			conns = append(conns, c)
		}
	}
	var listeners []*listener
	for _, l := range h.net.listeners {
		if l.addr.host == h.name {
			listeners = append(listeners, l)
		}
	}
	h.net.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
	for _, l := range listeners {
		_ = l.Close()
	}
}

type address struct {
	host string
	port int
}

func (address) Network() string  { return "tcp" }
func (a address) String() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

func parse(addr string) (address, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return address{}, err
	}
	number, err := strconv.Atoi(port)
	return address{host, number}, err
}

// Listen implements transport.Network. Port 0 takes a free one; the address must be the
// host's own.
func (h *Host) Listen(_ context.Context, addr string) (net.Listener, error) {
	at, err := parse(addr)
	if err != nil {
		return nil, err
	}
	if at.host != h.name {
		return nil, fmt.Errorf("listen on %s: that is not host %s", addr, h.name)
	}
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.port == 0 {
		n.nextPort++
		at.port = n.nextPort
	}
	if n.listeners[at.String()] != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, syscall.EADDRINUSE)
	}
	l := &listener{net: n, addr: at, backlog: make(chan *conn, 128), closed: make(chan struct{})}
	n.listeners[at.String()] = l
	return l, nil
}

// Dial implements transport.Network. It takes a way there and back, so it hangs while
// either direction is cut.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := parse(addr)
	if err != nil {
		return nil, err
	}
	if err := h.reach(ctx, to.host); err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	n := h.net
	n.mu.Lock()
	l := n.listeners[to.String()]
	if l == nil {
		n.mu.Unlock()
		return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
	}
	n.nextPort++
	near, far := pair(n, address{h.name, n.nextPort}, to)
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	n.mu.Unlock()
	select {
	case l.backlog <- far:
		return near, nil
	case <-l.closed:
		err = syscall.ECONNREFUSED
	case <-ctx.Done():
		err = ctx.Err()
	}
	near.reset()
	return nil, fmt.Errorf("dial %s: %w", addr, err)
}

// reach waits until a packet could go to the host and back.
func (h *Host) reach(ctx context.Context, to string) error {
	for _, l := range []link{{h.name, to}, {to, h.name}} {
		at := h.net.arrival(l)
		for {
			f, changed := h.net.state(l)
			wait := time.Until(at)
			if !f.cut && wait <= 0 {
				break
			}
			timer := time.NewTimer(max(wait, 0))
			var due <-chan time.Time
			if !f.cut {
				due = timer.C
			}
			select {
			case <-due:
			case <-changed:
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			}
			timer.Stop()
		}
	}
	return nil
}

type listener struct {
	net     *Net
	addr    address
	backlog chan *conn
	once    sync.Once
	closed  chan struct{}
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept on %s: %w", l.addr, net.ErrClosed)
	}
}

func (l *listener) Close() error {
	err := error(errors.New("closed before"))
	l.once.Do(func() {
		err = nil
		l.net.mu.Lock()
		delete(l.net.listeners, l.addr.String())
		l.net.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.backlog:
				c.reset()
			default:
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("close %s: %w", l.addr, net.ErrClosed)
	}
	return nil
}
