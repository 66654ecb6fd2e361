package replica

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ErrLeaderMoved is returned by OpenTunnel when this node does not follow the given leader.
var ErrLeaderMoved = errors.New("the leader has moved")

// acceptTunnel takes over a client's connection that another node has opened.
type acceptTunnel func(conn net.Conn, address string)

// OpenTunnel opens a connection to the leader for the bytes of one of this node's clients. It sends the
// client's address along. It returns ErrLeaderMoved if this node follows another leader or none, and a
// *peerport.TunnelError if the leader refuses.
func (r *Replica) OpenTunnel(ctx context.Context, leader *wire.LeaderHint, address string) (net.Conn, error) {
	node := r.cluster.Raft()
	if node == nil {
		return nil, fmt.Errorf("%w: this node is starting", ErrLeaderMoved)
	}
	addr, id := node.LeaderWithID()
	if string(id) != leader.GetId() {
		return nil, fmt.Errorf("%w: this node follows %q, not %q", ErrLeaderMoved, id, leader.GetId())
	}
	return r.layer.Tunnel(ctx, string(r.cluster.Resolve(id, addr)), leader.GetId(), &wire.TunnelRequest{Address: address})
}

// OnTunnel makes the replica call accept with each client connection that another node opens to this one
// while it leads. accept owns the connection and must not block. cancel removes it.
func (r *Replica) OnTunnel(accept func(conn net.Conn, address string)) (cancel func()) {
	own := acceptTunnel(accept)
	r.tunnels.Store(&own)
	return func() { r.tunnels.CompareAndSwap(&own, nil) }
}

// tunnelAsked decides whether to accept a tunnel from another node.
func (r *Replica) tunnelAsked(_ *wire.PeerHello, req *wire.TunnelRequest) (*wire.TunnelResponse, func(net.Conn)) {
	accept, leader := r.tunnels.Load(), r.Leader()
	switch err := peerport.CheckClientAddress(req.GetAddress()); {
	case accept == nil:
		return &wire.TunnelResponse{Status: wire.Status_UNAVAILABLE, Message: "this node is starting or stopping"}, nil
	case leader.GetId() != r.cfg.ID:
		return &wire.TunnelResponse{Status: wire.Status_NOT_LEADER, Message: fmt.Sprintf("this node follows %q", leader.GetId())}, nil
	case err != nil:
		return &wire.TunnelResponse{Status: wire.Status_INVALID_ARGUMENT, Message: err.Error()}, nil
	}
	return &wire.TunnelResponse{Status: wire.Status_OK}, func(conn net.Conn) { (*accept)(conn, req.GetAddress()) }
}
