package framed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quorumlock/quorumlock/server/tunnel"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tunnelTimeout bounds the opening of a tunnel: the leader is near or not there.
const tunnelTimeout = time.Second

// Tunnels are the ways between nodes for clients that do not reach the leader:
// [replica.Replica], or a double in tests. Its functions are documented there.
type Tunnels interface {
	OpenTunnel(ctx context.Context, leader *wire.LeaderHint, address string) (net.Conn, error)
	OnTunnel(accept func(conn net.Conn, address string)) (cancel func())
}

// newRelay returns what opens tunnels for clients of this node; nil if they are switched off.
func newRelay(cfg Config) (*tunnel.Relay, error) {
	if cfg.Tunnels == nil {
		return nil, nil
	}
	return tunnel.New(tunnel.Config{
		NodeID:       cfg.NodeID,
		Leader:       cfg.Replica.Leader,
		Dial:         cfg.Tunnels.OpenTunnel,
		Max:          cfg.Limits.MaxTunnels,
		DialTimeout:  tunnelTimeout,
		WriteTimeout: cfg.Limits.FrameTimeout,
		Buffers:      cfg.Buffers,
		Logger:       cfg.Logger,
		Registry:     cfg.Registry,
	})
}

// admitArrived begins the handshake of a client whose connection another node has opened.
func (s *Server) admitArrived(conn net.Conn, address string) { s.admit(tunnel.Arrive(conn, address)) }

// openTunnel answers a hello that asks for a tunnel; nil if it does not.
func (s *Server) openTunnel(ctx context.Context, l *link, hello *wire.Hello) *wire.TunnelReply {
	to := hello.GetTunnelTo()
	if to == "" {
		return nil
	}
	if _, through := l.Conn.(*tunnel.Arrived); through {
		return &wire.TunnelReply{Status: wire.Status_FAILED_PRECONDITION, Message: "this connection comes through a tunnel already"}
	}
	t, err := s.relay.Open(ctx, l.RemoteAddr(), to)
	if refused, ok := errors.AsType[*tunnel.Refusal](err); ok {
		return &wire.TunnelReply{Status: refused.Status, Message: wire.CleanText(refused.Message, maxRefusal)}
	}
	l.tunnel = t
	return &wire.TunnelReply{Status: wire.Status_OK}
}

// maxRefusal bounds the reason against a tunnel, in bytes: it goes into a hello.
const maxRefusal = 1 << 10

// carry passes on what comes and goes on a connection that has a tunnel.
func (s *Server) carry(l *link, frames *transport.FrameReader) {
	early := frames.Buffered()
	frames.Free()
	if early > 0 {
		l.tunnel.Discard()
		s.handshakeFailed(l, fmt.Errorf("%w: %d bytes came before the answer about the tunnel", transport.ErrMalformed, early))
		return
	}
	l.tunnel.Run(l.Conn)
}
