package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/budget"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
)

// connections bounds the port's connections and logs why a connection was closed that sent no request, which
// net/http itself does not log. A connection is established, and takes a place, from its first request on.
// Connections before that are bounded separately.
type connections struct {
	warnings   *ratelog.Logger
	limits     Limits
	metrics    *metrics
	plain      bool
	handshakes *handshake.Limiter
	buffers    *budget.Budget // nil means unbounded

	mu     sync.Mutex
	placed int // established connections; guarded by mu
	aside  int // connections beyond MaxConnections that ask for health; guarded by mu
	open   int // all connections; guarded by mu
	// idle is closed while no connection is open; guarded by mu.
	idle chan struct{}
}

// maxAside bounds the connections that may ask for health when all places are taken.
const maxAside = 16

func newConnections(log hclog.Logger, limits Limits, m *metrics, plain bool, buffers *budget.Budget) *connections {
	w := &connections{
		buffers:  buffers,
		warnings: ratelog.New(log), limits: limits, metrics: m, plain: plain,
		handshakes: handshake.New(handshake.Config{Max: limits.MaxHandshakes}), idle: make(chan struct{}),
	}
	close(w.idle)
	return w
}

// listen returns a listener on l. If config is not nil, connections use TLS and have completed their
// handshake when Accept returns them. The end of life cancels handshakes.
func (w *connections) listen(life context.Context, l net.Listener, config *tls.Config) net.Listener {
	d := &doorway{Listener: l, connections: w, config: config, life: life, ready: make(chan net.Conn), closed: make(chan struct{})}
	d.running.Go(d.accept)
	return d
}

// doorway is a listener that returns connections after their TLS handshake.
type doorway struct {
	net.Listener
	connections *connections
	config      *tls.Config
	life        context.Context
	ready       chan net.Conn
	running     sync.WaitGroup

	closing sync.Once
	closed  chan struct{}
}

// Accept returns the next connection whose handshake is complete.
func (d *doorway) Accept() (net.Conn, error) {
	select {
	case conn := <-d.ready:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close stops accepting connections and waits for the handshakes in progress.
func (d *doorway) Close() error {
	err := d.Listener.Close()
	d.closing.Do(func() { close(d.closed) })
	d.running.Wait()
	return err
}

func (d *doorway) accept() {
	const first, longest = 5 * time.Millisecond, time.Second
	wait := first
	for {
		raw, err := d.Listener.Accept()
		switch {
		case err == nil:
			wait = first
			d.begin(raw)
		case errors.Is(err, net.ErrClosed) || d.life.Err() != nil:
			return
		default: // most likely out of file descriptors, until other connections close
			d.connections.warnings.Warn("cannot accept connections", "error", err)
			select {
			case <-time.After(wait):
			case <-d.closed:
				return
			}
			wait = min(2*wait, longest)
		}
	}
}

// begin registers a connection and hands it on, after a TLS handshake on its own goroutine if there is one.
func (d *doorway) begin(raw net.Conn) {
	d.connections.enter()
	c := &watched{Conn: raw, connections: d.connections}
	c.idle = time.AfterFunc(d.connections.limits.IdleTimeout, func() { _ = c.Close() })
	c.idle.Stop()
	c.mu.Lock() // the next new connection may already cut it
	c.place = d.connections.handshakes.Begin(c)
	c.mu.Unlock()
	if d.config == nil {
		d.hand(c)
		return
	}
	secured := c.place.Server(d.config)
	d.running.Go(func() {
		if err := d.secure(c, secured); err != nil {
			d.connections.insecure(c, err)
			_ = c.Close()
			return
		}
		d.hand(secured)
	})
}

func (d *doorway) hand(conn net.Conn) {
	select {
	case d.ready <- conn:
	case <-d.closed:
		transport.Cut(conn)
	}
}

// secure performs a TLS handshake within HeaderTimeout.
func (d *doorway) secure(c *watched, conn *tls.Conn) error {
	ctx, cancel := context.WithCancel(d.life)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := c.SetDeadline(time.Now().Add(d.connections.limits.HeaderTimeout)); err != nil {
		return err
	}
	if err := c.place.Secure(ctx, conn); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// insecure logs why the TLS handshake failed, and answers a caller that sent plain HTTP.
func (w *connections) insecure(c *watched, err error) {
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && looksLikeHTTP(header.RecordHeader[:]) {
		_, _ = c.Conn.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks HTTPS.\n"))
	}
	w.warnings.Warn("TLS handshake error", "peer", c.RemoteAddr().String(), "error", err)
}

func looksLikeHTTP(head []byte) bool {
	for _, begins := range []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"} {
		if string(head) == begins {
			return true
		}
	}
	return false
}

// enter counts an open connection; leave is its counterpart.
func (w *connections) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == 0 {
		w.idle = make(chan struct{})
	}
	w.open++
}

func (w *connections) leave(had seat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch had {
	case placed:
		w.placed--
		w.metrics.open.Dec()
	case aside:
		w.aside--
	}
	if w.open--; w.open == 0 {
		close(w.idle)
	}
}

// seat is the place of a connection among the established ones.
type seat int

const (
	unseated seat = iota
	placed
	aside // for one answer about health, beyond MaxConnections
)

// sit assigns a place to a connection, or a seat aside if it asks for health.
func (w *connections) sit(health bool) seat {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.placed < w.limits.MaxConnections:
		w.placed++
		w.metrics.open.Inc()
		return placed
	case health && w.aside < maxAside:
		w.aside++
		return aside
	}
	return unseated
}

// wait returns when every connection is closed.
func (w *connections) wait() {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	<-idle
}

// watched is a connection. Between requests it records what arrives and what net/http itself answers, to
// explain in the log a connection that is closed without a request.
type watched struct {
	net.Conn
	connections *connections
	closed      sync.Once

	mu    sync.Mutex // guards the fields below
	place *handshake.Handshake
	seat  seat
	// serving is set when a request reaches the gate, until the connection is idle again.
	serving bool
	// reached counts requests. http2 is set if the connection uses HTTP/2.
	reached int
	http2   bool
	// head is the start of what arrived between requests, and refusal is net/http's answer to it.
	head    []byte
	refusal string
	// late is set if the first request did not start in time.
	late bool
	// stuck is set once it was logged that the caller does not read its answers.
	stuck bool
	// watches counts the watches in progress.
	watches int
	// requests counts the requests in flight, except streams.
	requests atomic.Int64
	// left is set when the connection was closed.
	left bool
	// idle closes the connection after IdleTimeout without a request.
	idle *time.Timer
	// memory is charged for what the connection holds; nil before its first request. starved is set if the
	// budget had no room for the connection.
	memory  *budget.Account
	starved bool
}

const headBytes = 16

func (c *watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := headBytes - len(c.head); !c.serving && n > 0 && room > 0 {
		c.head = append(c.head, p[:min(n, room)]...)
	}
	if c.reached == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		c.late = true
	}
	return n, err
}

func (c *watched) Write(p []byte) (int, error) {
	c.mu.Lock()
	if !c.serving && (bytes.HasPrefix(p, []byte("HTTP/1.1 4")) || bytes.HasPrefix(p, []byte("HTTP/1.1 5"))) {
		_, body, _ := bytes.Cut(p, []byte("\r\n\r\n"))
		c.refusal = string(body[:min(len(body), 128)])
	}
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && c.stuckNow() {
		c.connections.warnings.Warn("gave up on a caller that does not read its answer", "peer", c.RemoteAddr().String())
	}
	return n, err
}

// stuckNow returns true on its first call only.
func (c *watched) stuckNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.stuck
	c.stuck = true
	return first
}

// noRequest reports whether something arrived that did not become a request, or nothing arrived in time.
// Below TLS, a close_notify alert cannot be distinguished from a request, so with TLS only the first request
// is considered.
func (c *watched) noRequest(plain bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.serving && (len(c.head) > 0 || c.late) && (plain || c.reached == 0)
}

// Close closes the connection and frees its place.
func (c *watched) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() {
		c.mu.Lock()
		place, had, memory := c.place, c.seat, c.memory
		c.seat, c.left = unseated, true
		c.idle.Stop()
		c.mu.Unlock()
		memory.Close()
		place.End()
		c.connections.leave(had)
	})
	return err
}

// watchedOf returns the watched connection below TLS.
func watchedOf(conn net.Conn) *watched {
	for {
		beneath, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = beneath.NetConn()
	}
	c, _ := conn.(*watched)
	return c
}

type connKey struct{}

func (w *connections) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, watchedOf(conn))
}

// connectionOf returns a request's connection, or nil in tests without one.
func connectionOf(ctx context.Context) *watched {
	c, _ := ctx.Value(connKey{}).(*watched)
	return c
}

// request is called for each request at the gate. The first one establishes its connection. It returns the
// connection's seat. health is true if the request asks for health.
func (w *connections) request(r *http.Request, health bool) seat {
	c := connectionOf(r.Context())
	if c == nil {
		return placed
	}
	c.place.End()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving, c.head, c.refusal = true, nil, ""
	c.http2 = r.ProtoMajor >= 2
	c.reached++
	if c.seat == unseated && !c.left {
		if c.seat = w.sit(health); c.seat == placed {
			var err error
			c.memory, err = w.buffers.Open(connBytes, func() { go w.cut(c) })
			c.starved = err != nil
		}
	}
	if (c.seat == aside || c.starved) && !health {
		return unseated
	}
	return c.seat
}

const (
	// connBytes is the memory of a connection besides its requests, in bytes: goroutines, buffers, TLS.
	connBytes = 32 << 10
	// requestBytes is the memory of a request in flight besides its body and answer, in bytes.
	requestBytes = 16 << 10
	// bodyFactor is the number of copies in memory of a body while it is decoded, and of an answer while it
	// is being sent.
	bodyFactor = 2
)

// cut closes the connection that held the largest share when the node's budget was exhausted. Its requests
// end with it.
func (w *connections) cut(c *watched) {
	w.warnings.Warn("closed the connection that held most of the node's buffers (--max-buffer-bytes)", "peer", c.RemoteAddr().String())
	_ = c.Close()
}

// memoryOf returns the account of a request's connection.
func memoryOf(ctx context.Context) *budget.Account {
	c := connectionOf(ctx)
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory
}

// addRequests adds n to the connection's requests in flight and returns the new number.
func (c *watched) addRequests(n int64) int64 {
	if c == nil {
		return 0
	}
	return c.requests.Add(n)
}

// rest starts the idle timeout of a connection.
func (c *watched) rest(timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = c.serving && c.http2
	if !c.left {
		c.idle.Reset(timeout)
	}
}

// turnAway logs and counts a connection that got no place.
func (w *connections) turnAway(r *http.Request) {
	w.metrics.refused.Inc()
	w.warnings.Warn("closed a connection: there are too many", "peer", r.RemoteAddr, "max_connections", w.limits.MaxConnections)
}

// state is net/http's ConnState callback. HTTP/2 connections become idle as well, but what arrives next on
// them may be frames of any kind.
func (w *connections) state(conn net.Conn, state http.ConnState) {
	c := watchedOf(conn)
	switch {
	case c == nil:
	case state == http.StateIdle:
		c.rest(w.limits.IdleTimeout)
	case state == http.StateActive:
		c.mu.Lock()
		c.idle.Stop()
		c.mu.Unlock()
	case state == http.StateClosed && c.noRequest(w.plain):
		if secured, ok := conn.(*tls.Conn); ok && !secured.ConnectionState().HandshakeComplete {
			return // net/http has already logged it
		}
		w.complain(c)
	}
}

func (w *connections) complain(c *watched) {
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
	args := []any{"peer", c.RemoteAddr().String(), "reason", reason}
	if w.plain {
		args = append(args, "begins_with", string(head))
	}
	w.warnings.Warn("closed a connection without a request", args...)
}
