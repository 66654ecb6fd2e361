package peerport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	limiter "github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxHello bounds hellos and their answers, in bytes.
	maxHello = 4 << 10
	// maxControl bounds control requests and answers, in bytes.
	maxControl = 256 << 10
	// lingering is the time that a refused caller has to read the reason.
	lingering = time.Second
)

func (l *Layer) acceptFailed(err error) {
	l.log.Error("the peer port cannot accept connections", "error", err)
}

// begin starts a handshake. If there are too many, the oldest is cut: a peer needs milliseconds, and the
// handshake that has taken longest is the least likely to be a peer's.
func (l *Layer) begin(conn net.Conn) {
	h := &handshake{layer: l, raw: conn, conn: conn, place: l.handshakes.Begin(conn)}
	l.running.Go(func() { l.handle(h) })
}

// handle serves a connection from the handshake until it is closed.
func (l *Layer) handle(h *handshake) {
	peer, err := h.run()
	if err != nil {
		if h.place.WasCut() {
			err = errFull
		}
		l.refused(h.raw.RemoteAddr(), h.hello.GetId(), err)
		l.part(h.conn, err)
		h.place.End() // not earlier: a caller that is being refused counts as well
		return
	}
	defer func() { _ = peer.Close() }()
	l.refusals.accept()
	if h.stranger == nil {
		l.cfg.Identity.Observe(h.hello)
	}
	switch h.hello.GetPurpose() {
	case wire.PeerHello_CONTROL:
		l.serveControl(peer, h)
	case wire.PeerHello_TUNNEL:
		l.serveTunnel(peer, h)
	default:
		l.giveToRaft(peer)
	}
}

// part closes a refused connection. A caller that was sent a reason gets time to read it, unless the
// Layer is closed meanwhile.
func (l *Layer) part(conn net.Conn, err error) {
	var r *refusal
	if !errors.As(err, &r) {
		transport.Cut(conn)
		return
	}
	stop := context.AfterFunc(l.ctx, func() { transport.Cut(conn) })
	defer stop()
	transport.Hangup(conn, lingering)
}

// giveToRaft waits until raft accepts the connection, and then until it is closed.
func (l *Layer) giveToRaft(peer *peerConn) {
	limit := time.NewTimer(l.cfg.HandshakeTimeout)
	defer limit.Stop()
	l.raftConns.Add(1)
	select {
	case l.accepted <- &raftConn{peerConn: peer}:
		<-peer.done
		return
	case <-limit.C:
		l.refused(peer.RemoteAddr(), peer.peer, refuse(ReasonNotReady, "raft does not run yet"))
	case <-peer.done:
	case <-l.ctx.Done():
	}
	l.raftConns.Done()
}

// handshake is the state of one incoming connection's handshake.
type handshake struct {
	layer *Layer
	raw   net.Conn // as accepted
	conn  net.Conn // TLS over raw, if there is TLS
	hello *wire.PeerHello
	// stranger is set if the caller is not a member, with the reason. A stranger may only probe and
	// report itself.
	stranger *refusal
	admitted bool // as a member
	reader   *transport.FrameReader
	place    *limiter.Handshake // place among the connections that are not established yet
}

func (h *handshake) run() (*peerConn, error) {
	l := h.layer
	if l.serverTLS != nil {
		h.conn = h.place.Server(l.serverTLS)
	}
	var peer *peerConn
	err := transport.Within(l.ctx, h.conn, l.cfg.HandshakeTimeout, func(ctx context.Context) (err error) {
		if err := h.readHello(ctx); err != nil {
			return h.answer(err)
		}
		if err := h.check(ctx); err != nil {
			return h.answer(err)
		}
		if err := h.compareStates(); err != nil {
			return err
		}
		if peer, err = l.establish(h.conn, h.hello.GetId(), h.admittedAs(), true, h.hello.GetPurpose() == wire.PeerHello_TUNNEL); err == nil {
			// Check again: a Recheck in the meantime has missed this connection.
			err = l.stillAdmits(peer)
		}
		if err == nil {
			h.place.End() // before the peer hears that it is established
		}
		return h.answer(err)
	})
	if err != nil && peer != nil {
		l.forget(peer)
	}
	return peer, err
}

func (h *handshake) readHello(ctx context.Context) error {
	if t, ok := h.conn.(*tls.Conn); ok {
		if err := h.place.Secure(ctx, t); err != nil {
			return fmt.Errorf("%w: %w", errTLS, err)
		}
	}
	h.reader = transport.NewFrameReader(h.conn, maxHello)
	if err := h.reader.ReadPreface(); err != nil {
		return err
	}
	var hello wire.PeerHello
	if err := h.reader.Read(&hello); err != nil {
		return err
	}
	h.hello = &hello
	if n := h.reader.Buffered(); n > 0 {
		return refuse(ReasonProtocol, "%d bytes came before the hello was answered", n)
	}
	return nil
}

// answer sends the caller the result, if the reason is meant for it, and returns err.
func (h *handshake) answer(err error) error {
	l := h.layer
	id, incarnation := l.cfg.Identity.Self()
	if err != nil || h.stranger != nil {
		incarnation = "" // without TLS, the incarnation is a member's only credential
	}
	reply := &wire.PeerHelloReply{
		Version:     min(h.hello.GetVersion(), Version),
		Status:      wire.Status_OK,
		ClusterId:   l.cfg.Identity.ClusterID(),
		Id:          id,
		Incarnation: incarnation,
	}
	if h.admitted {
		reply.State = l.cfg.Identity.State(h.hello.GetIncarnation())
	}
	if err != nil {
		var r *refusal
		if !errors.As(err, &r) {
			return err
		}
		reply.Status, reply.Message = wire.Status_FAILED_PRECONDITION, r.text
	}
	return errors.Join(err, transport.NewFrameWriter(h.conn, maxHello).Write(reply))
}
