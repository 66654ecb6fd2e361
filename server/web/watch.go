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
	"time"

	"github.com/hashicorp/go-hclog"
)

// watcher bounds the port's connections and says in the log why one was closed that
// brought no request: net/http itself would say nothing.
type watcher struct {
	complaints *complaints
	limits     Limits
	metrics    *metrics
	plain      bool

	mu   sync.Mutex
	open int // guarded by mu
	// idle is closed while no connection is open; guarded by mu.
	idle chan struct{}
}

func newWatcher(log hclog.Logger, limits Limits, m *metrics, plain bool) *watcher {
	w := &watcher{complaints: newComplaints(log), limits: limits, metrics: m, plain: plain, idle: make(chan struct{})}
	close(w.idle)
	return w
}

// listen bounds the connections of l.
func (w *watcher) listen(l net.Listener) net.Listener { return &doorway{l, w} }

// doorway is the listener with a count.
type doorway struct {
	net.Listener
	watcher *watcher
}

// Accept returns the next connection that there is room for.
func (d *doorway) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if d.watcher.enter() {
			return &watched{Conn: conn, watcher: d.watcher}, nil
		}
		d.watcher.turnAway(conn)
	}
}

func (w *watcher) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open >= w.limits.MaxConnections {
		return false
	}
	if w.open == 0 {
		w.idle = make(chan struct{})
	}
	w.open++
	w.metrics.open.Inc()
	return true
}

func (w *watcher) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	w.metrics.open.Dec()
	if w.open == 0 {
		close(w.idle)
	}
}

// wait returns when every connection is closed.
func (w *watcher) wait() {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	<-idle
}

const tooMany = `{"code":"resource_exhausted","message":"max_connections: too many connections to this node"}` + "\n"

// turnAway says why, where the caller can read it, and never waits for him.
func (w *watcher) turnAway(conn net.Conn) {
	w.metrics.refused.Inc()
	w.complaints.warn("closed a connection: there are too many", "peer", conn.RemoteAddr().String(), "max_connections", w.limits.MaxConnections)
	if w.plain {
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = conn.Write([]byte("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + tooMany))
	}
	_ = conn.Close()
}

// watched is one connection. Between requests it notes what arrives and what net/http
// itself answers: if it is closed then, that was no request.
type watched struct {
	net.Conn
	watcher *watcher
	closed  sync.Once

	mu sync.Mutex // guards what follows
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
	c.closed.Do(c.watcher.leave)
	return err
}

// watchedOf finds the connection beneath TLS.
func watchedOf(conn net.Conn) *watched {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	c, _ := conn.(*watched)
	return c
}

type connKey struct{}

func (w *watcher) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, watchedOf(conn))
}

// request is told of each request at the gate.
func (w *watcher) request(r *http.Request) {
	c, _ := r.Context().Value(connKey{}).(*watched)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving, c.head, c.refusal = true, nil, ""
	c.http2 = r.ProtoMajor >= 2
	c.reached++
}

// state is net/http's ConnState. HTTP/2 calls a connection idle too, but what comes
// next there are frames of all kinds.
func (w *watcher) state(conn net.Conn, state http.ConnState) {
	c := watchedOf(conn)
	switch {
	case c == nil:
	case state == http.StateIdle:
		c.mu.Lock()
		c.serving = c.serving && c.http2
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
