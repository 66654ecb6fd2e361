package listener

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/transport/handshake"
)

// Conn is a connection. Between requests it records what arrives and what net/http itself answers, to explain
// in the log a connection that is closed without a request. Its exported methods accept nil.
type Conn struct {
	net.Conn
	connections *Connections
	closing     sync.Once
	// requests counts the requests in flight, except streams.
	requests atomic.Int64

	mu        sync.Mutex // guards the fields below
	handshake *handshake.Handshake
	// established is set while the connection has a place.
	established bool
	// serving is set from when a request is received until the connection is idle again.
	serving bool
	// received counts requests. http2 is set if the connection uses HTTP/2.
	received int
	http2    bool
	// head is the start of what arrived between requests, and refusal is net/http's answer to it.
	head    []byte
	refusal string
	// late is set if the first request did not start in time.
	late bool
	// stalled is set once it was logged that the caller does not read its answers.
	stalled bool
	// watches counts the watches in progress.
	watches int
	// closed is set when the connection was closed.
	closed bool
	// resting is set while no request is in flight, after the first. leaving closes the connection then.
	resting, leaving bool
	// idle closes the connection after IdleTimeout without a request.
	idle *time.Timer
	// memory is charged for what the connection holds; nil before it is established. starved is set if the budget
	// had no room for the connection.
	memory  *budget.Account
	starved bool
	// forwarded are what the requests of a connection of another node hold, by their identities.
	forwarded map[string]*forwarded
	// counts end the counting of the connection, by the identities that have used it.
	counts map[string]func()
}

const headBytes = 16

// Read reads from the connection and records what arrives between requests.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := headBytes - len(c.head); !c.serving && n > 0 && room > 0 {
		c.head = append(c.head, p[:min(n, room)]...)
	}
	if c.received == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		c.late = true
	}
	return n, err
}

// Write writes to the connection and records what is written between requests.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if !c.serving && (bytes.HasPrefix(p, []byte("HTTP/1.1 4")) || bytes.HasPrefix(p, []byte("HTTP/1.1 5"))) {
		_, body, _ := bytes.Cut(p, []byte("\r\n\r\n"))
		c.refusal = string(body[:min(len(body), 128)])
	}
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && c.firstStall() {
		c.connections.cfg.Warnings.Warn("closed a connection whose caller does not read its response", "remote", c.RemoteAddr().String())
	}
	return n, err
}

// firstStall returns true on its first call only.
func (c *Conn) firstStall() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.stalled
	c.stalled = true
	return first
}

// noRequest reports whether something arrived that did not become a request, or nothing arrived in time.
// Below TLS, a close_notify alert cannot be distinguished from a request, so with TLS only the first request
// is considered.
func (c *Conn) noRequest(plain bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.serving && (len(c.head) > 0 || c.late) && (plain || c.received == 0)
}

// rest starts the idle timeout.
func (c *Conn) rest(timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = c.serving && c.http2
	c.resting = true
	if c.leaving {
		timeout = flushTime
	}
	if !c.closed {
		c.idle.Reset(timeout)
	}
}

// wake ends the rest: a request arrives.
func (c *Conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resting = false
	c.idle.Stop()
}

// flushTime is how long a connection that is to be closed stays open after its last request: HTTP/2 reports a
// connection as idle before it has sent the end of the response.
const flushTime = 100 * time.Millisecond

// CloseWhenIdle closes the connection as soon as no request is in flight.
func (c *Conn) CloseWhenIdle() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	if c.resting && !c.closed {
		c.idle.Reset(flushTime)
	}
}

// Closed reports whether the connection was closed.
func (c *Conn) Closed() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Close closes the connection and frees its place.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.closing.Do(func() {
		c.mu.Lock()
		handshake, established, memory, counts := c.handshake, c.established, c.memory, c.counts
		c.established, c.closed, c.counts = false, true, nil
		c.idle.Stop()
		c.mu.Unlock()
		for _, uncount := range counts {
			uncount()
		}
		memory.Close()
		handshake.End()
		c.connections.leave(established)
	})
	return err
}

// connOf returns the connection below TLS.
func connOf(conn net.Conn) *Conn {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	c, _ := conn.(*Conn)
	return c
}

type key struct{}

// Context returns a context that carries the connection. It is net/http's ConnContext callback.
func Context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, key{}, connOf(conn))
}

// Of returns the connection in a request's context, or nil if there is none.
func Of(ctx context.Context) *Conn {
	c, _ := ctx.Value(key{}).(*Conn)
	return c
}

// FromNode reports whether another node of the cluster has opened the connection, to forward requests.
func (c *Conn) FromNode() bool {
	if c == nil {
		return false
	}
	_, fromNode := c.Conn.(*NodeConn)
	return fromNode
}

// Memory returns the account that is charged for what the connection holds; nil means unbounded. A connection of another
// node has none: see Charge.
func (c *Conn) Memory() *budget.Account {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory
}

// Count counts the connection for an identity that uses it, until it is closed. count is called unless it is counted
// already, with first set if no other identity counts it. It returns what ends the counting, or nil to refuse it.
func (c *Conn) Count(identity string, count func(first bool) (uncount func())) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[identity] != nil || c.closed {
		return
	}
	if c.counts == nil {
		c.counts = map[string]func(){}
	}
	if uncount := count(len(c.counts) == 0); uncount != nil {
		c.counts[identity] = uncount
	}
}

// AddRequests adds n to the connection's requests in flight and returns the new number.
func (c *Conn) AddRequests(n int64) int64 {
	if c == nil {
		return 0
	}
	return c.requests.Add(n)
}

// BeginWatch counts a watch, unless there are most of them already. EndWatch is its counterpart.
func (c *Conn) BeginWatch(most int) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches >= most {
		return false
	}
	c.watches++
	return true
}

// EndWatch uncounts a watch.
func (c *Conn) EndWatch() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches--
}
