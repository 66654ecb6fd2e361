package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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

// watched is one connection. net/http tells of each request twice: when its first
// bytes are there, and when it reached the gate. One that did the first only was not
// understood.
type watched struct {
	net.Conn
	watcher *watcher
	closed  sync.Once

	begun, reached atomic.Int64
	head           atomic.Pointer[[]byte] // the first bytes received
	refusal        atomic.Pointer[string] // net/http's own words
}

const headBytes = 16

func (c *watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.head.Load() == nil {
		head := bytes.Clone(p[:min(n, headBytes)])
		c.head.Store(&head)
	}
	return n, err
}

func (c *watched) Write(p []byte) (int, error) {
	if c.begun.Load() > c.reached.Load() && bytes.HasPrefix(p, []byte("HTTP/1.1 4")) {
		line, _, _ := bytes.Cut(p, []byte("\r\n"))
		_, body, _ := bytes.Cut(p, []byte("\r\n\r\n"))
		words := strings.TrimPrefix(string(line), "HTTP/1.1 ")
		if len(body) > 0 && len(body) < 128 {
			words = string(body)
		}
		c.refusal.Store(&words)
	}
	return c.Conn.Write(p)
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
	if c, _ := r.Context().Value(connKey{}).(*watched); c != nil {
		c.reached.Add(1)
	}
}

// state is net/http's ConnState.
func (w *watcher) state(conn net.Conn, state http.ConnState) {
	c := watchedOf(conn)
	if c == nil {
		return
	}
	switch state {
	case http.StateActive:
		c.begun.Add(1)
	case http.StateClosed:
		if c.begun.Load() > c.reached.Load() {
			w.complain(c)
		}
	}
}

func (w *watcher) complain(c *watched) {
	reason := "no complete request arrived in time, or the caller hung up"
	if words := c.refusal.Load(); words != nil {
		reason = *words
	}
	args := []any{"peer", c.RemoteAddr().String(), "reason", reason}
	if head := c.head.Load(); head != nil && w.plain {
		args = append(args, "begins_with", string(*head))
	}
	w.complaints.warn("closed a connection without a request", args...)
}
