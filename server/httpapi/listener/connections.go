package listener

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
)

// Config configures the connections of a port.
type Config struct {
	// Warnings receives the log messages about callers.
	Warnings *ratelog.Logger
	// Registry receives the metrics of the connections.
	Registry *prometheus.Registry
	// Buffers is the node's budget for transient data held for clients; nil means unbounded.
	Buffers *budget.Budget
	// Plain is set if the port does not use TLS.
	Plain bool
	// MaxConnections bounds the established connections.
	MaxConnections int
	// MaxHandshakes bounds the connections that have not yet sent a request of a verified caller.
	MaxHandshakes int
	// HeaderTimeout bounds a TLS handshake.
	HeaderTimeout time.Duration
	// Refused is called with the address and the error of each TLS handshake that fails because of a revoked certificate.
	Refused func(address string, err error)
	// IdleTimeout is the time after which a connection without a request is closed.
	IdleTimeout time.Duration
}

// Connections bounds the port's connections. A connection is established, and takes a place, from its first request of
// a verified caller on. Connections before that, which may ask for health, are bounded separately, so that neither kind
// has the places of the other.
type Connections struct {
	cfg        Config
	metrics    *metrics
	handshakes *handshake.Limiter

	mu          sync.Mutex
	established int // connections with a place; guarded by mu
	open        int // all connections; guarded by mu
	// idle is closed while no connection is open; guarded by mu.
	idle chan struct{}
}

// New returns the connections of a port.
func New(cfg Config) *Connections {
	l := &Connections{cfg: cfg, handshakes: handshake.New(handshake.Config{Max: cfg.MaxHandshakes}), idle: make(chan struct{})}
	l.metrics = newMetrics(cfg.Registry, l.handshakes)
	close(l.idle)
	return l
}

// Listen returns a listener on the given one. If config is not nil, connections use TLS and have completed their
// handshake when Accept returns them. The end of life cancels handshakes.
func (l *Connections) Listen(life context.Context, on net.Listener, config *tls.Config) net.Listener {
	h := &handshaker{Listener: on, connections: l, config: config, life: life, ready: make(chan net.Conn), closed: make(chan struct{})}
	h.running.Go(func() { transport.Accept(life, on, h.begin, h.failed) })
	return h
}

// Begin registers a connection that was accepted.
func (l *Connections) Begin(raw net.Conn) *Conn {
	l.enter()
	c := &Conn{Conn: raw, connections: l}
	c.idle = idleTimer(l.cfg.IdleTimeout, c)
	c.mu.Lock() // the next new connection may already cut it
	defer c.mu.Unlock()
	c.handshake = l.handshakes.Begin(c)
	return c
}

// idleTimer returns a stopped timer that closes the connection. The runtime may keep a stopped timer until it
// would have fired, so the timer must not keep the connection in memory.
func idleTimer(timeout time.Duration, c *Conn) *time.Timer {
	conn := weak.Make(c)
	t := time.AfterFunc(timeout, func() {
		if c := conn.Value(); c != nil {
			_ = c.Close()
		}
	})
	t.Stop()
	return t
}

// enter counts an open connection; leave is its counterpart.
func (l *Connections) enter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == 0 {
		l.idle = make(chan struct{})
	}
	l.open++
}

func (l *Connections) leave(established bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if established {
		l.established--
		l.metrics.established.Dec()
	}
	if l.open--; l.open == 0 {
		close(l.idle)
	}
}

// assign gives a place to a connection if there is one. A connection of another node, of which there are few, always
// gets one: it carries the requests of many callers.
func (l *Connections) assign(fromNode bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.established >= l.cfg.MaxConnections && !fromNode {
		return false
	}
	l.established++
	l.metrics.established.Inc()
	return true
}

// Len returns the number of open connections, and of established ones.
func (l *Connections) Len() (open, established int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.established
}

// Handshakes returns the number of connections that are not established.
func (l *Connections) Handshakes() int { return l.handshakes.Len() }

// Wait returns when every connection is closed.
func (l *Connections) Wait() {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	<-idle
}

// Request is called for each request on the port.
func (l *Connections) Request(r *http.Request) {
	c := Of(r.Context())
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving, c.head, c.refusal = true, nil, ""
	c.http2 = r.ProtoMajor >= 2
	c.received++
}

// Establish is called for each request of a verified caller. The first one establishes its connection. It returns false
// if there is no place or no memory for the connection.
func (l *Connections) Establish(r *http.Request) bool {
	c := Of(r.Context())
	if c == nil {
		return true
	}
	c.handshake.End()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.established && !c.closed {
		if c.established = l.assign(c.FromNode()); c.established && !c.FromNode() {
			var err error
			c.memory, err = l.cfg.Buffers.Open(ConnBytes, func() { go l.cut(c) }) // not of a node: see Charge
			c.starved = err != nil
		}
	}
	return c.established && !c.starved
}

// ConnBytes is the memory of a connection besides its requests, in bytes: goroutines, buffers, TLS.
const ConnBytes = 32 << 10

// cut closes the connection that held the largest share when the node's budget was exhausted. Its requests
// end with it.
func (l *Connections) cut(c *Conn) {
	l.cfg.Warnings.Warn("closed the connection that held most of the node's buffers (--max-buffer-bytes)", "remote", c.RemoteAddr().String())
	_ = c.Close()
}

// Refuse logs and counts a connection that got no place.
func (l *Connections) Refuse(r *http.Request) {
	l.metrics.refused.Inc()
	l.cfg.Warnings.Warn("closed a connection: too many connections", "remote", r.RemoteAddr, "max_connections", l.cfg.MaxConnections)
}

// State is net/http's ConnState callback. HTTP/2 connections become idle as well, but what arrives next on
// them may be frames of any kind.
func (l *Connections) State(conn net.Conn, state http.ConnState) {
	c := connOf(conn)
	switch {
	case c == nil:
	case state == http.StateIdle:
		c.rest(l.cfg.IdleTimeout)
	case state == http.StateActive:
		c.wake()
	case state == http.StateClosed && c.noRequest(l.cfg.Plain):
		if secured, ok := conn.(*tls.Conn); ok && !secured.ConnectionState().HandshakeComplete {
			return // net/http has already logged it
		}
		l.warn(c)
	}
}

// warn logs why a connection was closed without a request.
func (l *Connections) warn(c *Conn) {
	c.mu.Lock()
	reason, head := c.refusal, c.head
	c.mu.Unlock()
	switch {
	case reason != "":
	case len(head) == 0:
		reason = "nothing arrived in time"
	default:
		reason = "no complete request arrived in time, it was malformed, or the caller hung up"
	}
	args := []any{"remote", c.RemoteAddr().String(), "reason", reason}
	if l.cfg.Plain {
		args = append(args, "begins_with", string(head))
	}
	l.cfg.Warnings.Warn("closed a connection without a request", args...)
}
