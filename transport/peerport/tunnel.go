package peerport

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxTunnelRequest bounds the frames that open a tunnel, in bytes.
const maxTunnelRequest = 4 << 10

// TunnelHandler decides about a tunnel that a member wants to open to this node. A nil accept refuses it
// with the answer. Otherwise accept is called with the connection, which it then owns, after the caller
// has been answered. All bytes read from the connection are the client's.
type TunnelHandler func(from *wire.PeerHello, req *wire.TunnelRequest) (answer *wire.TunnelResponse, accept func(net.Conn))

// TunnelError is returned by Tunnel when the other node refuses.
type TunnelError struct {
	Status  wire.Status_Code
	Message string // for people
}

func (e *TunnelError) Error() string {
	return fmt.Sprintf("no tunnel: %s: %s", e.Status, wire.PrintableLine(e.Message))
}

// Tunnel opens a connection to a node for the bytes of the client that req describes. It returns a
// *TunnelError if the node refuses.
func (l *Layer) Tunnel(ctx context.Context, addr, id string, req *wire.TunnelRequest) (net.Conn, error) {
	peer, r, _, err := l.open(ctx, addr, id, wire.PeerHello_TUNNEL)
	if err != nil {
		return nil, fmt.Errorf("open a tunnel to node %q at %s: %w", id, addr, err)
	}
	var resp wire.TunnelResponse
	err = transport.Within(ctx, peer, l.cfg.HandshakeTimeout, func(context.Context) error {
		if err := transport.NewFrameWriter(peer, maxTunnelRequest).Write(req); err != nil {
			return err
		}
		return r.Read(&resp)
	})
	switch {
	case err != nil:
	case resp.GetStatus() != wire.Status_OK:
		err = &TunnelError{resp.GetStatus(), resp.GetMessage()}
	case r.Buffered() > 0:
		err = fmt.Errorf("%w: %d bytes came unasked", transport.ErrMalformed, r.Buffered())
	}
	if err != nil {
		transport.Cut(peer.Conn)
		_ = peer.Close()
		return nil, fmt.Errorf("open a tunnel to node %q at %s: %w", id, addr, err)
	}
	return &tunnel{peer}, nil
}

// serveTunnel answers the request for a tunnel and waits until the tunnel is closed.
func (l *Layer) serveTunnel(peer *peerConn, h *handshake) {
	accept, err := l.admitTunnel(peer, h)
	if err != nil {
		l.log.Debug("a tunnel was not opened", "node", peer.peer, "error", err)
		return
	}
	accept(&tunnel{peer})
	<-peer.done
}

func (l *Layer) admitTunnel(peer *peerConn, h *handshake) (accept func(net.Conn), err error) {
	err = transport.Within(l.ctx, peer, l.cfg.HandshakeTimeout, func(context.Context) error {
		var req wire.TunnelRequest
		h.reader.SetMax(maxTunnelRequest)
		if err := h.reader.Read(&req); err != nil {
			return err
		}
		if h.reader.Buffered() > 0 {
			return fmt.Errorf("%w: bytes of the client came before the answer", transport.ErrMalformed)
		}
		var answer *wire.TunnelResponse
		answer, accept = l.cfg.Tunnels(h.hello, &req)
		if accept == nil && answer.GetStatus() == wire.Status_OK {
			return errors.New("a tunnel was granted that nobody accepts")
		}
		if err := transport.NewFrameWriter(peer, maxTunnelRequest).Write(answer); err != nil {
			return err
		}
		if accept == nil {
			return &TunnelError{answer.GetStatus(), answer.GetMessage()}
		}
		return nil
	})
	h.reader.Free()
	return accept, err
}

// noTunnels refuses all tunnels.
func noTunnels(*wire.PeerHello, *wire.TunnelRequest) (*wire.TunnelResponse, func(net.Conn)) {
	return &wire.TunnelResponse{Status: wire.Status_UNSUPPORTED, Message: "tunnels are switched off at this node (--no-tunnels)"}, nil
}

// tunnel is either end of a tunnel. Its user sets the deadlines: unlike a connection of raft, it does not
// bound writes by itself.
type tunnel struct{ *peerConn }

// Write implements net.Conn.
func (t *tunnel) Write(b []byte) (int, error) {
	if t.layer.silenced.Load() {
		return 0, net.ErrClosed
	}
	return t.Conn.Write(b)
}

// CloseWrite closes the sending half.
func (t *tunnel) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection immediately, without a TLS alert: see CloseWrite.
func (t *tunnel) Close() error {
	transport.Cut(t.Conn)
	return t.peerConn.Close()
}

// maxClientAddress bounds the address of a client, in bytes, because it is shown to operators.
const maxClientAddress = 128

// CheckClientAddress returns an error unless the address of a client, as another node reports it, is a short
// host:port.
func CheckClientAddress(address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("the client's address %q is not host:port: %w", address, err)
	}
	if wire.CleanText(address, maxClientAddress) != address {
		return fmt.Errorf("the client's address %q is no text of up to %d bytes", address, maxClientAddress)
	}
	return nil
}
