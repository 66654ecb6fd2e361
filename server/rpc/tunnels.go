package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/server/internal/tunnel"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tunnelTimeout bounds the opening of a tunnel. It is short because the leader is either near or down.
const tunnelTimeout = time.Second

// Tunnels connects clients to a leader that they cannot reach directly: [replica.Replica], which documents
// the methods, or a fake in tests.
type Tunnels interface {
	OpenTunnel(ctx context.Context, leader *wire.LeaderHint, caller *wire.Caller) (net.Conn, error)
	OnTunnel(accept func(conn net.Conn, caller *wire.Caller)) (cancel func())
}

// newRelay returns the relay that opens tunnels for clients of this node, or nil if tunnels are disabled.
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

// admitArrived starts the handshake of a client connection that another node tunnels to this one.
func (s *Server) admitArrived(conn net.Conn, caller *wire.Caller) {
	s.admit(tunnel.Arrive(conn, caller))
}

// openTunnel answers a hello that asks for a tunnel. It returns nil if the hello does not. leave frees the place of the
// tunnel in the share of its identity.
func (s *Server) openTunnel(ctx context.Context, l *link, caller *access.Caller, account *quota.Account, hello *wire.Hello) (_ *wire.TunnelReply, leave func()) {
	refuse := func(code wire.Status_Code, why string) (*wire.TunnelReply, func()) {
		return &wire.TunnelReply{Status: code, Message: wire.CleanText(why, maxRefusal)}, func() {}
	}
	to := hello.GetTunnelTo()
	if to == "" {
		return nil, func() {}
	}
	if _, through := l.Conn.(*tunnel.Arrived); through {
		return refuse(wire.Status_FAILED_PRECONDITION, "this connection comes through a tunnel already")
	}
	leave, exhausted := account.Enter(s.shares.tunnels)
	if exhausted != nil {
		return refuse(exhausted.GetStatus(), exhausted.GetMessage())
	}
	t, err := s.relay.Open(ctx, l.RemoteAddr(), caller.Origin(), to)
	if refused, ok := errors.AsType[*tunnel.Refusal](err); ok {
		leave()
		return refuse(refused.Status, refused.Message)
	}
	l.tunnel = t
	return &wire.TunnelReply{Status: wire.Status_OK}, leave
}

// maxRefusal bounds the reason for refusing a tunnel, in bytes, because it is part of the hello reply.
const maxRefusal = 1 << 10

// carry relays the data of a connection that has a tunnel.
func (s *Server) carry(l *link, caller *access.Caller, frames *transport.FrameReader) {
	defer s.connected(caller, l, func(code wire.Goodbye_Code, reason string) { l.tunnel.End(code, reason) })()
	early := frames.Buffered()
	frames.Free()
	if early > 0 {
		l.tunnel.Discard()
		s.handshakeFailed(l, fmt.Errorf("%w: %d bytes came before the answer about the tunnel", transport.ErrMalformed, early))
		return
	}
	l.tunnel.Run(l.Conn)
}
