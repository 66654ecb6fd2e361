package proxy

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// chunkBytes is the maximum size of a chunk. Each direction of a connection buffers up to chunks of them
	// before it stops reading.
	chunkBytes = 16 << 10
	chunks     = 32
	// sip is how often bytes are forwarded under a Rate.
	sip = 20 * time.Millisecond
)

// Manners configure how a proxy forwards. The zero value forwards immediately.
type Manners struct {
	// Delay plus a random part of Jitter is added to the latency. Bytes stay in order.
	Delay, Jitter time.Duration
	// Rate limits each direction of each connection, in bytes per second; 0 means unlimited.
	Rate int
	// Stall forwards nothing and dials no targets, until the manners change.
	Stall bool
}

// Counts are the effects of a proxy since its start.
type Counts struct {
	// Connections is the number of connections, Broken the number that Break ended.
	Connections, Broken uint64
	// Bytes is the number of bytes forwarded, Late the number among them under a Delay, a Jitter or a Rate.
	Bytes, Late uint64
	// Stalled is how often a chunk or a connection had to wait for the end of a stall.
	Stalled uint64
}

// Proxy forwards connections from its listener to a target.
type Proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	stop     context.CancelFunc
	ctx      context.Context
	wg       sync.WaitGroup

	mu      sync.Mutex
	manners Manners
	changed chan struct{} // closed when the manners change
	open    map[net.Conn]bool

	connections, broken, bytes, late, stalled atomic.Uint64
}

// New starts a proxy, which owns the listener. dial opens a connection to its target. Close stops it.
func New(l net.Listener, dial func(context.Context) (net.Conn, error)) *Proxy {
	p := &Proxy{listener: l, dial: dial, changed: make(chan struct{}), open: map[net.Conn]bool{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p
}

// Behave changes the manners for bytes that arrive from now on.
func (p *Proxy) Behave(m Manners) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.manners = m
	close(p.changed)
	p.changed = make(chan struct{})
}

// Break ends every connection with a reset to both sides.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken.Add(uint64(len(p.open) / 2))
	for conn := range p.open {
		reset(conn)
	}
	clear(p.open)
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
	_ = conn.Close()
}

// Counts returns the effects so far.
func (p *Proxy) Counts() Counts {
	return Counts{p.connections.Load(), p.broken.Load(), p.bytes.Load(), p.late.Load(), p.stalled.Load()}
}

// Close ends all connections and waits until all goroutines have ended.
func (p *Proxy) Close() {
	p.stop()
	_ = p.listener.Close()
	p.Break()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(conn) })
	}
}

// serve connects a connection with one to the target until either ends.
func (p *Proxy) serve(near net.Conn) {
	defer near.Close()
	if _, ok := p.calm(); !ok {
		return
	}
	far, err := p.dial(p.ctx)
	if err != nil {
		reset(near)
		return
	}
	defer far.Close()
	if !p.enter(near, far) {
		return
	}
	defer p.leave(near, far)
	p.connections.Add(1)
	var ways sync.WaitGroup
	ways.Go(func() { p.pass(near, far) })
	ways.Go(func() { p.pass(far, near) })
	ways.Wait()
}

func (p *Proxy) enter(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.open[conn] = true
	}
	return p.ctx.Err() == nil // otherwise Close may have run already and missed these
}

func (p *Proxy) leave(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.open, conn)
	}
}

// calm waits while the proxy stalls. It returns false once the proxy is closed.
func (p *Proxy) calm() (Manners, bool) {
	for first := true; ; first = false {
		p.mu.Lock()
		manners, changed := p.manners, p.changed
		p.mu.Unlock()
		if !manners.Stall {
			return manners, p.ctx.Err() == nil
		}
		if first {
			p.stalled.Add(1)
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return manners, false
		}
	}
}

// chunk contains bytes and when to forward them.
type chunk struct {
	bytes []byte
	due   time.Time
}

// pass forwards one direction of a connection. When it ends, it closes both.
func (p *Proxy) pass(from, to net.Conn) {
	way := make(chan chunk, chunks)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.read(from, way)
	}()
	for c := range way {
		if !p.wait(time.Until(c.due)) || !p.write(to, c.bytes) {
			break
		}
	}
	_ = from.Close()
	for range way { // until the reader has noticed
	}
	<-ended
	_ = to.Close()
}

// read stamps what arrives with the time at which to forward it.
func (p *Proxy) read(from net.Conn, way chan<- chunk) {
	defer close(way)
	for {
		buf := make([]byte, chunkBytes)
		n, err := from.Read(buf)
		if n > 0 {
			way <- chunk{buf[:n], time.Now().Add(p.lateness())}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) lateness() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	late := p.manners.Delay
	if p.manners.Jitter > 0 {
		late += rand.N(p.manners.Jitter)
	}
	return late
}

// write forwards bytes, as fast as the current manners allow.
func (p *Proxy) write(to net.Conn, bytes []byte) bool {
	for len(bytes) > 0 {
		m, ok := p.calm()
		if !ok {
			return false
		}
		n := len(bytes)
		if m.Rate > 0 {
			n = min(n, max(1, int(int64(m.Rate)*int64(sip)/int64(time.Second))))
			if !p.wait(time.Duration(n) * time.Second / time.Duration(m.Rate)) {
				return false
			}
		}
		if m.Delay+m.Jitter > 0 || m.Rate > 0 {
			p.late.Add(uint64(n))
		}
		p.bytes.Add(uint64(n))
		if _, err := to.Write(bytes[:n]); err != nil {
			return false
		}
		bytes = bytes[n:]
	}
	return true
}

// wait waits for d. It returns false once the proxy is closed.
func (p *Proxy) wait(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}
