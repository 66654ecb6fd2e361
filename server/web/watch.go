package web

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

	"github.com/quorumlock/quorumlock/server/budget"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
)

// watcher bounds the port's connections and says in the log why one was closed that
// brought no request: net/http itself would say nothing. A connection is established, and
// has a place, from its first request on; those before that are bounded apart.
type watcher struct {
	complaints *complaints
	limits     Limits
	metrics    *metrics
	plain      bool
	handshakes *handshake.Limiter
	buffers    *budget.Budget // nil: no bound

	mu     sync.Mutex
	placed int // established connections; guarded by mu
	aside  int // connections beyond the places that ask for health; guarded by mu
	open   int // all connections; guarded by mu
	// idle is closed while no connection is open; guarded by mu.
	idle chan struct{}
}

// maxAside is how many connections may ask for health when there is no place left.
const maxAside = 16

func newWatcher(log hclog.Logger, limits Limits, m *metrics, plain bool, buffers *budget.Budget) *watcher {
	w := &watcher{
		buffers:    buffers,
		complaints: newComplaints(log), limits: limits, metrics: m, plain: plain,
		handshakes: handshake.New(handshake.Config{Max: limits.MaxHandshakes}), idle: make(chan struct{}),
	}
	close(w.idle)
	return w
}

// listen returns l with TLS, if config is not nil, whose handshake is done when a connection
// is accepted. life ends the handshakes.
func (w *watcher) listen(life context.Context, l net.Listener, config *tls.Config) net.Listener {
	d := &doorway{Listener: l, watcher: w, config: config, life: life, ready: make(chan net.Conn), closed: make(chan struct{})}
	d.running.Go(d.accept)
	return d
}

// doorway is the listener of connections that have finished TLS.
type doorway struct {
	net.Listener
	watcher *watcher
	config  *tls.Config
	life    context.Context
	ready   chan net.Conn
	running sync.WaitGroup

	closing sync.Once
	closed  chan struct{}
}

// Accept returns the next connection.
func (d *doorway) Accept() (net.Conn, error) {
	select {
	case conn := <-d.ready:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close accepts no more connections and waits for those in their handshake.
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
		default: // out of descriptors, most likely: others will close theirs
			d.watcher.complaints.warn("cannot accept connections", "error", err)
			select {
			case <-time.After(wait):
			case <-d.closed:
				return
			}
			wait = min(2*wait, longest)
		}
	}
}

// begin takes a connection in and hands it on, with TLS by a goroutine.
func (d *doorway) begin(raw net.Conn) {
	d.watcher.enter()
	c := &watched{Conn: raw, watcher: d.watcher}
	c.idle = time.AfterFunc(d.watcher.limits.IdleTimeout, func() { _ = c.Close() })
	c.idle.Stop()
	c.mu.Lock() // the next newcomer may cut it at once
	c.place = d.watcher.handshakes.Begin(c)
	c.mu.Unlock()
	if d.config == nil {
		d.hand(c)
		return
	}
	secured := c.place.Server(d.config)
	d.running.Go(func() {
		if err := d.secure(c, secured); err != nil {
			d.watcher.insecure(c, err)
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

// secure completes a TLS handshake within its time.
func (d *doorway) secure(c *watched, conn *tls.Conn) error {
	ctx, cancel := context.WithCancel(d.life)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := c.SetDeadline(time.Now().Add(d.watcher.limits.HeaderTimeout)); err != nil {
		return err
	}
	if err := c.place.Secure(ctx, conn); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// insecure says why there is no TLS, also to a caller who speaks HTTP without it.
func (w *watcher) insecure(c *watched, err error) {
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && looksLikeHTTP(header.RecordHeader[:]) {
		_, _ = c.Conn.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks HTTPS.\n"))
	}
	w.complaints.warn("TLS handshake error", "peer", c.RemoteAddr().String(), "error", err)
}

func looksLikeHTTP(head []byte) bool {
	for _, begins := range []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"} {
		if string(head) == begins {
			return true
		}
	}
	return false
}

// enter counts a connection in, leave out.
func (w *watcher) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == 0 {
		w.idle = make(chan struct{})
	}
	w.open++
}

func (w *watcher) leave(had seat) {
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

// seat is what a connection has among the established ones.
type seat int

const (
	unseated seat = iota
	placed
	aside // for one answer about health, beyond the places
)

// sit gives a connection a place, or one aside if it asks for health.
func (w *watcher) sit(health bool) seat {
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
func (w *watcher) wait() {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	<-idle
}

// watched is one connection. Between requests it notes what arrives and what net/http
// itself answers: if it is closed then, that was no request.
type watched struct {
	net.Conn
	watcher *watcher
	closed  sync.Once

	mu    sync.Mutex // guards what follows
	place *handshake.Handshake
	seat  seat
	// serving: a request reached the gate, and its connection is not idle again.
	serving bool
	// reached counts requests; http2 says that they come as frames.
	reached int
	http2   bool
	// head is the beginning of what arrived between requests, refusal the answer to it.
	head    []byte
	refusal string
	// late: no first request was begun in time.
	late bool
	// stuck: the caller does not read its answers, and that was said.
	stuck bool
	// watches are those that are being answered.
	watches int
	// requests are those under way, but for streams.
	requests atomic.Int64
	// left: it was closed.
	left bool
	// idle closes it when it has had no request for long.
	idle *time.Timer
	// memory is what the connection holds; nil before its first request. starved: there was
	// none left for it.
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
		c.watcher.complaints.warn("gave up on a caller that does not read its answer", "peer", c.RemoteAddr().String())
	}
	return n, err
}

// stuckNow is true once.
func (c *watched) stuckNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.stuck
	c.stuck = true
	return first
}

// noRequest tells whether something arrived that never became a request, or nothing in
// time. Beneath TLS nobody can tell a farewell from a request, so only the first one is
// looked at.
func (c *watched) noRequest(plain bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.serving && (len(c.head) > 0 || c.late) && (plain || c.reached == 0)
}

// Close closes the connection and lets the next one in.
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
		c.watcher.leave(had)
	})
	return err
}

// watchedOf finds the connection beneath TLS.
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

func (w *watcher) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, watchedOf(conn))
}

// connectionOf returns the connection of a request; nil in tests without one.
func connectionOf(ctx context.Context) *watched {
	c, _ := ctx.Value(connKey{}).(*watched)
	return c
}

// request is told of each request at the gate, with the first of which a connection is
// established. It returns the place that the connection has; health says that the request
// asks for that.
func (w *watcher) request(r *http.Request, health bool) seat {
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
	// connBytes is what a connection takes beside its requests: goroutines, buffers, TLS.
	connBytes = 32 << 10
	// requestBytes is what a request takes while it is under way, beside its body and answer.
	requestBytes = 16 << 10
	// bodyFactor is how many times a body is in memory while it is read and decoded, and
	// an answer while it waits to be taken.
	bodyFactor = 2
)

// cut ends a connection that held most when the node's buffers were used up. Its requests
// end with it.
func (w *watcher) cut(c *watched) {
	w.complaints.warn("closed the connection that held most of the node's buffers (--max-buffer-bytes)", "peer", c.RemoteAddr().String())
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

// addRequests changes how many requests are under way on the connection, and returns that.
func (c *watched) addRequests(n int64) int64 {
	if c == nil {
		return 0
	}
	return c.requests.Add(n)
}

// rest begins the time without a request that a connection may have.
func (c *watched) rest(timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = c.serving && c.http2
	if !c.left {
		c.idle.Reset(timeout)
	}
}

// turnAway says that there was no place.
func (w *watcher) turnAway(r *http.Request) {
	w.metrics.refused.Inc()
	w.complaints.warn("closed a connection: there are too many", "peer", r.RemoteAddr, "max_connections", w.limits.MaxConnections)
}

// state is net/http's ConnState. HTTP/2 calls a connection idle too, but what comes
// next there are frames of all kinds.
func (w *watcher) state(conn net.Conn, state http.ConnState) {
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
			return // net/http has said so
		}
		w.complain(c)
	}
}

func (w *watcher) complain(c *watched) {
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
	w.complaints.warn("closed a connection without a request", args...)
}
