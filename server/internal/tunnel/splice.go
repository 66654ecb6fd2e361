package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// parting bounds the time in which an ending tunnel may relay the rest of a frame, and the time the
	// client has to read the goodbye.
	parting = time.Second
	// maxGoodbye bounds a goodbye, in bytes.
	maxGoodbye = 4 << 10
)

// Tunnel is a client's connection to the leader.
type Tunnel struct {
	relay  *Relay
	remote net.Addr
	source netip.Addr       // IP address of remote; invalid if it has none
	leader *wire.LeaderHint // the leader at the other end
	memory *budget.Account
	ctx    context.Context // ends when the tunnel ends or has to end
	cancel context.CancelFunc

	mu      sync.Mutex // guards the fields below
	conn    net.Conn   // to the leader; nil until it is open
	client  net.Conn   // nil before Run
	goodbye *wire.Goodbye
	until   time.Time // the deadline of the ending tunnel, once goodbye is set
}

// open connects to the leader.
func (t *Tunnel) open(ctx context.Context, caller *wire.Caller) *Refusal {
	ctx, cancel := context.WithTimeout(ctx, t.relay.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	select {
	case t.relay.opening <- struct{}{}:
		defer func() { <-t.relay.opening }()
	case <-ctx.Done():
		return t.unopened(ctx.Err())
	}
	conn, err := t.relay.cfg.Dial(ctx, t.leader, caller)
	if err != nil {
		return t.unopened(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goodbye != nil { // the tunnel was ended while the connection was being opened
		transport.Cut(conn)
		return refuse(wire.Status_UNAVAILABLE, "%s", t.goodbye.GetMessage())
	}
	t.conn = conn
	return nil
}

// unopened returns the refusal for a tunnel whose leader was not reached.
func (t *Tunnel) unopened(err error) *Refusal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goodbye != nil {
		return refuse(wire.Status_UNAVAILABLE, "%s", t.goodbye.GetMessage())
	}
	return refuse(wire.Status_UNAVAILABLE, "this node does not reach the leader %q: %v", t.leader.GetId(), err)
}

// Discard ends a tunnel that will not be used.
func (t *Tunnel) Discard() {
	transport.Cut(t.conn)
	t.leave()
}

// Run relays bytes until either side has closed or the tunnel has to end. It closes client.
func (t *Tunnel) Run(client net.Conn) {
	defer t.leave()
	t.begin(client)
	upstream := make(chan struct{})
	go func() {
		defer close(upstream)
		t.relayUp(client)
	}()
	whole := t.relayDown(client)
	code := t.say(client, whole)
	transport.Cut(t.conn)
	if half, ok := client.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	limit := time.AfterFunc(parting, func() { transport.Cut(client) })
	<-upstream
	limit.Stop()
	transport.Cut(client)
	t.relay.metrics.ended.WithLabelValues(code.String()).Inc()
	t.relay.cfg.Logger.Debug("tunnel ended", "remote", t.remote, "leader", t.leader.GetId(), "code", code.String())
}

// begin makes the client connection available to end, which may have been called already.
func (t *Tunnel) begin(client net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client = client; t.goodbye != nil {
		t.interrupt()
	}
}

// heldMost is called when the node's budget is exhausted and this tunnel holds the largest share.
func (t *Tunnel) heldMost() {
	t.End(wire.Goodbye_RESOURCE_EXHAUSTED, "the node's buffers are used up (--max-buffer-bytes), and this tunnel held most of them")
}

// End makes Run send a goodbye and return. The first reason counts. It does not wait.
func (t *Tunnel) End(code wire.Goodbye_Code, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goodbye != nil {
		return
	}
	t.goodbye = &wire.Goodbye{Code: code, Message: reason}
	t.until = time.Now().Add(parting)
	t.cancel() // cancels the opening
	t.interrupt()
}

// interrupt interrupts both directions if Run has begun. The caller holds mu.
func (t *Tunnel) interrupt() {
	if t.client != nil {
		_ = t.conn.SetDeadline(time.Unix(1, 0))
		_ = t.client.SetWriteDeadline(t.until)
	}
}

// ending reports whether the tunnel has to end, and the deadline for that.
func (t *Tunnel) ending() (until time.Time, ends bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until, t.goodbye != nil
}

// relayUp relays what the client sends. When the leader accepts no more, relayUp keeps reading and discards:
// closing a connection with unread bytes resets it, and the reset could overtake the goodbye.
func (t *Tunnel) relayUp(client net.Conn) {
	buf := make([]byte, bufferBytes)
	up := t.relay.metrics.up
	for {
		n, err := client.Read(buf)
		if n > 0 {
			if _, failed := t.conn.Write(buf[:n]); failed != nil {
				_, _ = io.CopyBuffer(io.Discard, onlyReader{client}, buf)
				return
			}
			up.Add(float64(n))
		}
		if err != nil {
			t.clientClosed(err)
			return
		}
	}
}

// onlyReader hides the other methods of a connection from io.CopyBuffer, which would bypass the given buffer.
type onlyReader struct{ io.Reader }

// clientClosed signals the leader that nothing more will come. If the client may still be reading, the leader
// gets until parting to finish.
func (t *Tunnel) clientClosed(err error) {
	half, ok := t.conn.(interface{ CloseWrite() error })
	if !errors.Is(err, io.EOF) || !ok || half.CloseWrite() != nil {
		transport.Cut(t.conn)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goodbye == nil {
		_ = t.conn.SetReadDeadline(time.Now().Add(parting))
	}
}

// relayDown relays what the leader sends. It reports whether the last frame is complete.
func (t *Tunnel) relayDown(client net.Conn) (whole bool) {
	buf := make([]byte, bufferBytes)
	var at boundary
	for {
		until, ends := t.ending()
		room := buf
		if ends {
			if room = buf[:min(at.next(), len(buf))]; len(room) == 0 {
				return true
			}
			_ = t.conn.SetReadDeadline(until)
		}
		n, err := t.conn.Read(room)
		if n > 0 {
			if t.write(client, buf[:n]) != nil {
				return false
			}
			at.record(buf[:n])
		}
		if _, interrupted := t.ending(); err != nil && (ends || !interrupted) {
			return at.next() == 0
		}
	}
}

// write sends bytes to the client.
func (t *Tunnel) write(client net.Conn, b []byte) error {
	t.mu.Lock()
	deadline := time.Now().Add(t.relay.cfg.WriteTimeout)
	if t.goodbye != nil {
		deadline = t.until
	}
	err := client.SetWriteDeadline(deadline)
	t.mu.Unlock()
	if err != nil {
		return err
	}
	n, err := client.Write(b)
	t.relay.metrics.down.Add(float64(n))
	return err
}

// say sends the goodbye of a tunnel that has to end, if the last frame is complete. It returns the goodbye's
// code, which is UNSPECIFIED if either side closed the tunnel.
func (t *Tunnel) say(client net.Conn, whole bool) wire.Goodbye_Code {
	t.mu.Lock()
	bye := t.goodbye
	t.mu.Unlock()
	if bye != nil && whole {
		_ = client.SetWriteDeadline(time.Now().Add(parting))
		_ = transport.NewFrameWriter(client, maxGoodbye).Write(transport.GoodbyeFrame(bye.GetCode(), bye.GetMessage()))
	}
	return bye.GetCode()
}
