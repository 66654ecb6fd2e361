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
	weather   Weather
	links     map[link]fault
	listeners map[string]*listener
	conns     map[*conn]struct{}
	hung      map[*stream]bool // true if it holds a segment back
	rejected  map[link]struct{}
	newest    map[link]time.Time // arrival of the latest segment
	nextPort  int
	did       Stats
	// changed is closed and replaced when a link changes.
	changed chan struct{}
}

type link struct{ from, to string }

// Weather is the quality of a link.
type Weather struct {
	// Delay is the minimum latency, Scatter the maximum random addition to a segment's latency.
	Delay, Scatter time.Duration
	// Loss is the fraction of segments that are lost and retransmitted.
	Loss float64
}

// fault is the state of one direction between two hosts.
type fault struct {
	Weather
	cut bool
}

// Stats counts the effects of faults so far, for tests that verify that their faults had any.
type Stats struct {
	// Held are segments and dials that met a cut link or a hung connection, Lost those that needed a
	// retransmission.
	Held, Lost int
	// Overtaken are segments that arrive in another order than they were sent in on two connections between the same hosts.
	Overtaken int
	// Reset are connections that were reset.
	Reset int
}

// Stats returns the effects of faults so far.
func (n *Net) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.did
}

// retransmission is the delay of a lost segment.
const retransmission = 200 * time.Millisecond

// New returns a network without faults. The seed determines what lossy links lose.
func New(seed uint64) *Net {
	return &Net{
		rand:      rand.New(rand.NewPCG(seed, 0)),
		links:     map[link]fault{},
		listeners: map[string]*listener{},
		conns:     map[*conn]struct{}{},
		hung:      map[*stream]bool{},
		rejected:  map[link]struct{}{},
		newest:    map[link]time.Time{},
		nextPort:  40000,
		changed:   make(chan struct{}),
	}
}

// Host is one machine. Listeners and connections made through it have its name as their address.
type Host struct {
	net  *Net
	name string
}

// Host returns the machine with that name. Addresses on it are name:port.
func (n *Net) Host(name string) *Host { return &Host{n, name} }

// Cut holds back what one host sends to another, in one direction. It is delivered after Heal.
func (n *Net) Cut(from, to string) { n.set(from, to, func(f *fault) { f.cut = true }) }

// Delay sets the latency from one host to another, in one direction. It does not reorder.
func (n *Net) Delay(from, to string, d time.Duration) {
	n.set(from, to, func(f *fault) { f.Delay = d })
}

// Scatter adds a random latency of up to d to each segment from one host to another, in one direction, which
// reorders segments of different connections.
func (n *Net) Scatter(from, to string, d time.Duration) {
	n.set(from, to, func(f *fault) { f.Scatter = d })
}

// Drop loses a fraction of the segments from one host to another, in one direction.
func (n *Net) Drop(from, to string, share float64) {
	n.set(from, to, func(f *fault) { f.Loss = share })
}

// Isolate cuts a host off from the others, in both directions.
func (n *Net) Isolate(host string, others ...string) {
	for _, o := range others {
		n.Cut(host, o)
		n.Cut(o, host)
	}
}

// Hang holds back what one host sends to another on existing connections, in one direction. New connections
// work. What is held back is delivered after Heal: on TCP, a segment may be late by minutes, after its
// connection was given up.
func (n *Net) Hang(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.out.link == (link{from, to}) {
			if _, already := n.hung[c.out]; !already {
				n.hung[c.out] = false
			}
		}
	}
	n.announce()
}

// Reject refuses new connections from one host to another, and resets those that it has dialled, like a
// firewall rule for that host's ports. Connections dialled by the other host continue.
func (n *Net) Reject(from, to string) {
	n.mu.Lock()
	n.rejected[link{from, to}] = struct{}{}
	var conns []*conn
	for c := range n.conns {
		if c.dialled && c.local.host == from && c.remote.host == to {
			conns = append(conns, c)
		}
	}
	n.did.Reset += len(conns)
	n.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
}

// Weather sets the quality of all links without faults of their own, and of the others after Heal.
func (n *Net) Weather(w Weather) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather = w
}

// Heal ends every fault. It keeps the weather.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links = map[link]fault{}
	clear(n.hung)
	clear(n.rejected)
	n.announce()
}

func (n *Net) set(from, to string, change func(*fault)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.faultLocked(link{from, to})
	change(&f)
	n.links[link{from, to}] = f
	n.announce()
}

func (n *Net) faultLocked(l link) fault {
	if f, ok := n.links[l]; ok {
		return f
	}
	return fault{Weather: n.weather}
}

// announce wakes all goroutines that wait for a link. The caller must hold mu.
func (n *Net) announce() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// state reports whether the link is cut, and returns a channel that is closed when any link changes.
func (n *Net) state(l link) (cut bool, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[l].cut, n.changed
}

// streamState does the same for what is in flight on one connection.
func (n *Net) streamState(s *stream) (cut bool, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, hung := n.hung[s]
	return hung || n.links[s.link].cut, n.changed
}

// arrival returns when something sent now arrives if the link stays up.
func (n *Net) arrival(l link) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.arrivalLocked(l)
}

func (n *Net) arrivalLocked(l link) time.Time {
	f := n.faultLocked(l)
	at := time.Now().Add(f.Delay)
	if f.cut {
		n.did.Held++
	}
	if f.Scatter > 0 {
		at = at.Add(time.Duration(n.rand.Int64N(int64(f.Scatter))))
	}
	for f.Loss > 0 && n.rand.Float64() < f.Loss {
		at = at.Add(retransmission)
		n.did.Lost++
	}
	return at
}

// segmentArrival returns when the next segment of a stream arrives, which is not before the previous one.
func (n *Net) segmentArrival(s *stream, last time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.arrivalLocked(s.link)
	if at.Before(last) {
		at = last
	}
	if _, hung := n.hung[s]; hung {
		n.did.Held++
		n.hung[s] = true
		return at
	}
	newest := n.newest[s.link]
	if at.Before(newest) || n.holdsBackLocked(s.link) {
		n.did.Overtaken++
	}
	if at.After(newest) {
		n.newest[s.link] = at
	}
	return at
}

// holdsBackLocked reports whether a hung connection holds a segment back.
func (n *Net) holdsBackLocked(l link) bool {
	for s, holds := range n.hung {
		if holds && s.link == l {
			return true
		}
	}
	return false
}

// Kill resets every connection of the host and closes its ports, as when a process dies.
func (h *Host) Kill() {
	h.net.mu.Lock()
	var listeners []*listener
	for _, l := range h.net.listeners {
		if l.addr.host == h.name {
			listeners = append(listeners, l)
		}
	}
	h.net.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	h.Reset() // after closing the listeners, so that no peer can reconnect in between
}

// Reset resets every connection of the host.
func (h *Host) Reset() {
	h.net.mu.Lock()
	var conns []*conn
	for c := range h.net.conns {
		if c.local.host == h.name || c.remote.host == h.name {
			conns = append(conns, c)
		}
	}
	h.net.did.Reset += len(conns) / 2
	h.net.mu.Unlock()
	for _, c := range conns {
		c.reset()
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

// Listen implements transport.Network. Port 0 selects a free port. The address must be the host's own.
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

// Dial implements transport.Network. It needs a round trip, so it hangs while either direction is cut.
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
	if _, rejected := n.rejected[link{h.name, to.host}]; l == nil || rejected {
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
			cut, changed := h.net.state(l)
			wait := time.Until(at)
			if !cut && wait <= 0 {
				break
			}
			timer := time.NewTimer(max(wait, 0))
			var due <-chan time.Time
			if !cut {
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
