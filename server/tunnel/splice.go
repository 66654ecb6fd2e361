package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/server/budget"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// parting is how long a tunnel that ends may take to pass on the rest of a frame, and the
	// client to read the goodbye.
	parting = time.Second
	// farewellFrame bounds a goodbye, in bytes.
	farewellFrame = 4 << 10
)

// Tunnel is one client's connection to the leader.
type Tunnel struct {
	relay  *Relay
	remote net.Addr
	source netip.Addr       // of remote; invalid if it has no IP address
	leader *wire.LeaderHint // to whom it leads
	memory *budget.Account
	ctx    context.Context // ends with the tunnel, or when it has to
	cancel context.CancelFunc

	mu      sync.Mutex // guards what follows
	conn    net.Conn   // to the leader; nil before it is open
	client  net.Conn   // nil before Run
	goodbye *wire.Goodbye
	until   time.Time // when the tunnel is over, once goodbye is set
}

// open connects to the leader.
func (t *Tunnel) open(ctx context.Context) *Refusal {
	ctx, cancel := context.WithTimeout(ctx, t.relay.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	select {
	case t.relay.opening <- struct{}{}:
		defer func() { <-t.relay.opening }()
	case <-ctx.Done():
		return t.unopened(ctx.Err())
	}
	conn, err := t.relay.cfg.Dial(ctx, t.leader, t.remote.String())
	if err != nil {
		return t.unopened(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goodbye != nil { // before it could be told
		transport.Cut(conn)
		return refuse(wire.Status_UNAVAILABLE, "%s", t.goodbye.GetMessage())
	}
	t.conn = conn
	return nil
}

// unopened is the refusal of a tunnel whose other end was not reached.
func (t *Tunnel) unopened(err error) *Refusal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goodbye != nil {
		return refuse(wire.Status_UNAVAILABLE, "%s", t.goodbye.GetMessage())
	}
	return refuse(wire.Status_UNAVAILABLE, "this node does not reach the leader %q: %v", t.leader.GetId(), err)
}

// Discard ends a tunnel that nobody will use.
func (t *Tunnel) Discard() {
	transport.Cut(t.conn)
	t.leave()
}

// Run passes on bytes until either end has closed, or the tunnel has to end. It closes client.
func (t *Tunnel) Run(client net.Conn) {
	defer t.leave()
	t.begin(client)
	upstream := make(chan struct{})
	go func() {
		defer close(upstream)
		t.passUp(client)
	}()
	whole := t.passDown(client)
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

// begin makes the client known to end, which may have been called before.
func (t *Tunnel) begin(client net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client = client; t.goodbye != nil {
		t.hurry()
	}
}

// heldMost is called when the node's buffers are used up and this tunnel holds most.
func (t *Tunnel) heldMost() {
	t.end(wire.Goodbye_RESOURCE_EXHAUSTED, "the node's buffers are used up (--max-buffer-bytes), and this tunnel held most of them")
}

// end has Run say goodbye. The first reason stays. It does not wait.
func (t *Tunnel) end(code wire.Goodbye_Code, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goodbye != nil {
		return
	}
	t.goodbye = &wire.Goodbye{Code: code, Message: reason}
	t.until = time.Now().Add(parting)
	t.cancel() // ends the opening
	t.hurry()
}

// hurry interrupts both directions, once there are two. Called with mu.
func (t *Tunnel) hurry() {
	if t.client != nil {
		_ = t.conn.SetDeadline(time.Unix(1, 0))
		_ = t.client.SetWriteDeadline(t.until)
	}
}

// ending is when the tunnel is over, if it has to end.
func (t *Tunnel) ending() (until time.Time, ends bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until, t.goodbye != nil
}

// passUp passes on what the client sends. When the leader takes no more, it reads on: a
// connection that is closed with bytes unread is reset, and the reset would overtake the
// goodbye.
func (t *Tunnel) passUp(client net.Conn) {
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
			t.clientGone(err)
			return
		}
	}
}

// onlyReader hides what else a connection can do from io.CopyBuffer, which would use another
// buffer.
type onlyReader struct{ io.Reader }

// clientGone tells the leader that nothing more comes, and gives it a moment for its last words
// if the client may still hear them.
func (t *Tunnel) clientGone(err error) {
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

// passDown passes on what the leader sends. It reports whether the last frame is whole.
func (t *Tunnel) passDown(client net.Conn) (whole bool) {
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
			at.pass(buf[:n])
		}
		if _, interrupted := t.ending(); err != nil && (ends || !interrupted) {
			return at.next() == 0
		}
	}
}

// write passes bytes on to the client.
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

// say tells the client why the tunnel ends, if it does not end by itself, and if the client can
// read it. It returns the code.
func (t *Tunnel) say(client net.Conn, whole bool) wire.Goodbye_Code {
	t.mu.Lock()
	bye := t.goodbye
	t.mu.Unlock()
	if bye != nil && whole {
		_ = client.SetWriteDeadline(time.Now().Add(parting))
		_ = transport.NewFrameWriter(client, farewellFrame).Write(transport.Farewell(bye.GetCode(), bye.GetMessage()))
	}
	return bye.GetCode()
}
