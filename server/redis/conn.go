package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// connBytes is the base memory of a connection in bytes: a goroutine, its initial buffers, TLS.
	connBytes = 32 << 10
	// flushBytes is how many bytes of replies are collected before they are sent.
	flushBytes = 16 << 10
)

var (
	errEnded   = errors.New("this node ended it")
	errIdle    = errors.New("idle")
	errStalled = errors.New("a command did not arrive in time")
	errSilent  = errors.New("no command of a verified caller came in time (--handshake-timeout)")
	errNoRead  = errors.New("the client does not read its replies")
	errAhead   = errors.New("the client has sent too many commands behind one that waits")
)

// conn is a connection. Except where noted otherwise, only its own goroutine uses it.
type conn struct {
	net.Conn // with TLS, if the port uses it
	srv      *Server
	raw      net.Conn
	place    *handshake.Handshake
	remote   string
	id       uint64
	begun    time.Time
	in       *resp.Reader
	out      resp.Writer
	// unsent is how many bytes of out are replies to the commands before the running one.
	unsent int
	// memory is charged for what the connection holds; nil without a budget.
	memory *budget.Account

	ctx    context.Context // ends when the connection has to end; its end cancels the running command
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the connection has ended
	// finishing is set if no further command may begin. Any goroutine sets it.
	finishing atomic.Bool

	// login is the caller; nil until a command needs one.
	login *login
	// stranger is set if the connection has no caller without a token.
	stranger bool
	// established is when the connection must have a caller.
	established time.Time
	// partial is when the command of which a part has arrived must be complete; zero if there is none.
	partial time.Time
	// failures counts the failed attempts to authenticate.
	failures int

	state
}

// state is what RESET resets.
type state struct {
	db   int
	name string // from CLIENT SETNAME
	mode replyMode
	transaction
}

// replyMode is the mode of CLIENT REPLY.
type replyMode int

const (
	replyAll replyMode = iota
	skipNext           // no reply to the next command
	skipThis           // no reply to the command that is running
	replyNone
)

func newConn(srv *Server, raw net.Conn, place *handshake.Handshake) *conn {
	now := time.Now()
	c := &conn{
		Conn: raw, srv: srv, raw: raw, place: place, remote: raw.RemoteAddr().String(), id: srv.ids.Add(1), begun: now,
		done: make(chan struct{}), established: now.Add(srv.cfg.Limits.HandshakeTimeout),
	}
	c.ctx, c.cancel = context.WithCancelCause(srv.ctx)
	return c
}

// end ends the connection: it cancels the command that is running and lets no other begin. Any goroutine may call it.
func (c *conn) end(reason error) {
	c.cancel(reason)
	c.finish()
}

// finish ends the connection after the command that is running. Any goroutine may call it.
func (c *conn) finish() {
	c.finishing.Store(true)
	_ = c.raw.SetReadDeadline(time.Unix(1, 0))
}

// serve handles the connection from its handshake to its end.
func (c *conn) serve() {
	defer func() { c.place.End() }()
	defer c.cancel(nil)
	err := c.srv.secure(c)
	if err == nil {
		c.memory, err = c.srv.cfg.Buffers.Open(connBytes, func() { c.end(budget.ErrExhausted) })
	}
	if err == nil {
		defer c.memory.Close()
		c.in = resp.NewReader(c.Conn, c.srv.cfg.Limits.Command, c.memory)
		err = c.run()
	}
	established := c.login != nil
	c.logout()
	c.hangup(err)
	c.srv.noteEnd(c, established, c.reason(err))
}

// run executes commands until the connection ends.
func (c *conn) run() error {
	for {
		args, err := c.in.Next()
		if _, ok := errors.AsType[resp.ProtocolError](err); ok {
			c.out.Error("ERR " + err.Error())
		}
		switch {
		case err != nil:
			return err
		case c.finishing.Load():
			return errEnded
		case args == nil:
			err = c.await()
		default:
			c.partial = time.Time{}
			err = c.execute(args)
		}
		if err == nil && c.out.Len() >= flushBytes {
			err = c.flush()
		}
		if err != nil {
			return err
		}
	}
}

// await sends the replies and waits for more input.
func (c *conn) await() error {
	if err := c.flush(); err != nil {
		return err
	}
	deadline, silence := c.deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		return err
	}
	if c.finishing.Load() { // checked after setting the deadline, so that it cannot overwrite that of finish
		return errEnded
	}
	err := c.in.Fill()
	switch {
	case c.finishing.Load() && err != nil:
		return errEnded
	case isTimeout(err):
		return silence
	}
	return err
}

// deadline returns until when to wait for input, and the error if none comes.
func (c *conn) deadline() (time.Time, error) {
	now, limits := time.Now(), c.srv.cfg.Limits
	if c.partial.IsZero() && c.in.Buffered() > 0 {
		c.partial = now.Add(limits.FrameTimeout)
	}
	switch {
	case c.login == nil && (c.partial.IsZero() || c.established.Before(c.partial)):
		return c.established, errSilent
	case !c.partial.IsZero():
		return c.partial, errStalled
	}
	return now.Add(limits.IdleTimeout), errIdle
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// flush sends the replies that were collected.
func (c *conn) flush() error {
	if c.out.Len() == 0 {
		return nil
	}
	defer func() {
		c.out.Reset()
		c.unsent = 0
	}()
	if n := c.out.Len(); n > flushBytes {
		if err := c.memory.Reserve(n); err != nil {
			return err
		}
		defer c.memory.Release(n)
	}
	if err := c.SetWriteDeadline(time.Now().Add(c.srv.cfg.Limits.FrameTimeout)); err != nil {
		return err
	}
	_, err := c.Write(c.out.Bytes())
	if isTimeout(err) {
		return errNoRead
	}
	return err
}

// hangupTimeout bounds the delivery of the last replies.
const hangupTimeout = time.Second

// hangup sends the last replies, unless the client has gone, and closes the connection.
func (c *conn) hangup(err error) {
	if c.out.Len() == 0 || errors.Is(err, io.EOF) || errors.Is(err, errNoRead) || c.ctx.Err() != nil {
		transport.Cut(c.Conn)
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(hangupTimeout))
	if _, err := c.Write(c.out.Bytes()); err != nil {
		transport.Cut(c.Conn)
		return
	}
	transport.Hangup(c.Conn, hangupTimeout)
}

// reason returns why the connection ended.
func (c *conn) reason(err error) error {
	switch {
	case c.place.WasCut():
		return errCut
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	}
	return err
}

var errCut = errors.New("cut before its first command: too many others came after it (--max-handshakes)")

// listening runs f, and cancels its context if the client hangs up meanwhile. That is not noticed behind more commands
// than are read ahead, so these end the connection.
func (c *conn) listening(ctx context.Context, f func(context.Context)) error {
	if err := c.flush(); err != nil {
		return closing(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return closing(err)
	}
	if c.finishing.Load() {
		return closing(errEnded)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for c.in.Buffered() < c.srv.cfg.Limits.Command.MaxBytes {
			if err := c.in.Fill(); err != nil {
				cancel() // without effect if f has returned
				return
			}
		}
		c.end(errAhead)
	}()
	f(ctx)
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		_ = c.Close()
	}
	<-gone
	return nil
}

// details describes the client for those who look at its holds.
func (c *conn) details() *wire.ClientInfo {
	return &wire.ClientInfo{Name: c.name, Address: c.remote}
}
