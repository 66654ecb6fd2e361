package handshake

import (
	"container/list"
	"net"
	"net/netip"
	"runtime"
	"sync"
)

// Config bounds a Limiter. A zero field means its default.
type Config struct {
	// Max bounds the half-open connections of all sources. Default: 2,048.
	Max int
	// PerSource bounds the half-open connections of one source address. Default: half of Max.
	PerSource int
	// Compute is the number of TLS handshakes that compute at the same time. Default: half the
	// processors, at least one.
	Compute int
}

// DefaultMax is the default of Config.Max.
const DefaultMax = 2_048

func (c Config) withDefaults() Config {
	if c.Max <= 0 {
		c.Max = DefaultMax
	}
	if c.PerSource <= 0 {
		c.PerSource = (c.Max + 1) / 2
	}
	if c.Compute <= 0 {
		c.Compute = max(1, runtime.GOMAXPROCS(0)/2)
	}
	return c
}

// Limiter bounds the half-open connections of one port. All methods are safe for concurrent use.
type Limiter struct {
	cfg Config

	mu      sync.Mutex                // guards the fields below
	all     list.List                 // of *Handshake, oldest first
	sources map[netip.Addr]*source    // of those in all
	cuts    uint64                    // connections that were closed in favour of others
	idle    int                       // free compute slots
	turns   list.List                 // of *source: those with waiters, in turn
	inTurn  map[*source]*list.Element // positions in turns
}

// source is an address with half-open connections.
type source struct {
	addr  netip.Addr
	conns list.List       // of *Handshake, oldest first
	line  []chan struct{} // waiting for a compute slot, oldest first
}

// New returns a Limiter.
func New(cfg Config) *Limiter {
	cfg = cfg.withDefaults()
	return &Limiter{cfg: cfg, sources: map[netip.Addr]*source{}, idle: cfg.Compute, inTurn: map[*source]*list.Element{}}
}

// Handshake is a connection that is not established yet.
type Handshake struct {
	limiter *Limiter
	conn    net.Conn
	gate    *gate
	cut     chan struct{} // closed when the connection was closed in favour of another

	// Guarded by the Limiter's mu.
	source       *source
	inAll, inOwn *list.Element // nil once it has ended
}

// Begin registers a connection that was just accepted. If there are too many, it closes the oldest one of
// the same source or of all. The caller must call End.
func (l *Limiter) Begin(conn net.Conn) *Handshake {
	h := &Handshake{limiter: l, conn: conn, cut: make(chan struct{})}
	l.mu.Lock()
	victim := l.admit(h, addressOf(conn))
	l.mu.Unlock()
	if victim != nil {
		close(victim.cut)
		_ = victim.conn.Close()
	}
	return h
}

// admit registers h and returns the connection to close for it, if any.
func (l *Limiter) admit(h *Handshake, addr netip.Addr) (victim *Handshake) {
	from := l.sources[addr]
	switch {
	case from != nil && addr.IsValid() && from.conns.Len() >= l.cfg.PerSource:
		victim = from.conns.Front().Value.(*Handshake)
	case l.all.Len() >= l.cfg.Max:
		victim = l.all.Front().Value.(*Handshake)
	}
	if victim != nil {
		l.remove(victim)
		l.cuts++
	}
	if from = l.sources[addr]; from == nil { // the victim may have been the last of its source
		from = &source{addr: addr}
		l.sources[addr] = from
	}
	h.source, h.inAll, h.inOwn = from, l.all.PushBack(h), from.conns.PushBack(h)
	return victim
}

func (l *Limiter) remove(h *Handshake) {
	if h.inAll == nil {
		return
	}
	l.all.Remove(h.inAll)
	h.source.conns.Remove(h.inOwn)
	h.inAll, h.inOwn = nil, nil
	if h.source.conns.Len() == 0 {
		delete(l.sources, h.source.addr)
	}
}

// End unregisters the connection: it is established, or closed. Only the first call has an effect.
func (h *Handshake) End() {
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	h.limiter.remove(h)
}

// WasCut reports whether the connection was closed in favour of another.
func (h *Handshake) WasCut() bool {
	select {
	case <-h.cut:
		return true
	default:
		return false
	}
}

// Len returns the number of half-open connections.
func (l *Limiter) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Len()
}

// Cuts returns the number of connections that were closed in favour of others.
func (l *Limiter) Cuts() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cuts
}

// addressOf returns the source of a connection; the zero Addr if it has no IP address.
func addressOf(conn net.Conn) netip.Addr {
	if conn.RemoteAddr() == nil {
		return netip.Addr{}
	}
	return Source(conn.RemoteAddr())
}

// Source returns the address that identifies a caller: an IPv4 address, the /64 of an IPv6 address, or
// the zero Addr if there is none.
func Source(remote net.Addr) netip.Addr {
	at, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := at.AddrPort().Addr().Unmap().WithZone("")
	if addr.Is6() {
		prefix, _ := addr.Prefix(64)
		return prefix.Addr()
	}
	return addr
}
