package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ErrLeaderMoved is returned by OpenTunnel when this node does not follow the given leader.
var ErrLeaderMoved = errors.New("the leader has moved")

// acceptTunnel takes over a connection that the node from has opened for a caller, who is known for client connections
// only.
type acceptTunnel func(from string, conn net.Conn, caller *wire.Caller)

// OpenTunnel opens a connection to the leader for the bytes of one of this node's clients. It sends along the
// client's identity as this node has verified it. It returns ErrLeaderMoved if this node follows another leader or none, and a
// *peerport.TunnelError if the leader refuses.
func (r *Replica) OpenTunnel(ctx context.Context, leader *wire.LeaderHint, caller *wire.Caller) (net.Conn, error) {
	return r.openTo(ctx, leader, &wire.TunnelRequest{
		Port: wire.TunnelRequest_CLIENT, Address: caller.GetAddress(), Identity: caller.GetIdentity(), Credential: caller.GetCredential(),
	})
}

// OpenForward opens a connection to the leader's HTTP port for requests of this node's callers. The leader believes
// what these requests say about their callers. Errors are those of OpenTunnel.
func (r *Replica) OpenForward(ctx context.Context, leader *wire.LeaderHint) (net.Conn, error) {
	return r.openTo(ctx, leader, &wire.TunnelRequest{Port: wire.TunnelRequest_HTTP})
}

// OpenKeys opens a connection to the leader for KeyRequests. Errors are those of OpenTunnel.
func (r *Replica) OpenKeys(ctx context.Context, leader *wire.LeaderHint) (net.Conn, error) {
	return r.openTo(ctx, leader, &wire.TunnelRequest{Port: wire.TunnelRequest_KEYS})
}

func (r *Replica) openTo(ctx context.Context, leader *wire.LeaderHint, req *wire.TunnelRequest) (net.Conn, error) {
	node := r.cluster.Raft()
	if node == nil {
		return nil, fmt.Errorf("%w: this node is starting", ErrLeaderMoved)
	}
	addr, id := node.LeaderWithID()
	if string(id) != leader.GetId() {
		return nil, fmt.Errorf("%w: this node follows %q, not %q", ErrLeaderMoved, id, leader.GetId())
	}
	return r.layer.Tunnel(ctx, string(r.cluster.Resolve(id, addr)), leader.GetId(), req)
}

// OnTunnel makes the replica call accept with each client connection that another node opens to this one while it
// leads. accept owns the connection and must not block. cancel removes it.
func (r *Replica) OnTunnel(accept func(conn net.Conn, caller *wire.Caller)) (cancel func()) {
	return register(&r.tunnels, func(_ string, conn net.Conn, caller *wire.Caller) { accept(conn, caller) })
}

// OnForward is OnTunnel for connections to the HTTP port, which this node accepts whether it leads or not.
func (r *Replica) OnForward(accept func(conn net.Conn)) (cancel func()) {
	return register(&r.forwards, func(_ string, conn net.Conn, _ *wire.Caller) { accept(conn) })
}

// OnKeys is OnForward for connections that carry KeyRequests. accept also gets the id of the node that has opened it.
func (r *Replica) OnKeys(accept func(from string, conn net.Conn)) (cancel func()) {
	return register(&r.keys, func(from string, conn net.Conn, _ *wire.Caller) { accept(from, conn) })
}

func register(at *atomic.Pointer[acceptTunnel], accept acceptTunnel) (cancel func()) {
	at.Store(&accept)
	return func() { at.CompareAndSwap(&accept, nil) }
}

// tunnelAsked decides whether to accept a connection from another node.
func (r *Replica) tunnelAsked(from *wire.PeerHello, req *wire.TunnelRequest) (*wire.TunnelResponse, func(net.Conn)) {
	accept, refusal := r.acceptor(req)
	if refusal != nil {
		return refusal, nil
	}
	caller := &wire.Caller{Identity: req.GetIdentity(), Credential: req.GetCredential(), Address: req.GetAddress()}
	return &wire.TunnelResponse{Status: wire.Status_OK}, func(conn net.Conn) { (*accept)(from.GetId(), conn, caller) }
}

// acceptor returns the port for a connection, or why there is none.
func (r *Replica) acceptor(req *wire.TunnelRequest) (*acceptTunnel, *wire.TunnelResponse) {
	refuse := func(status wire.Status_Code, format string, args ...any) (*acceptTunnel, *wire.TunnelResponse) {
		return nil, &wire.TunnelResponse{Status: status, Message: fmt.Sprintf(format, args...)}
	}
	ports := map[wire.TunnelRequest_Port]*atomic.Pointer[acceptTunnel]{
		wire.TunnelRequest_CLIENT: &r.tunnels, wire.TunnelRequest_HTTP: &r.forwards, wire.TunnelRequest_KEYS: &r.keys,
	}
	port, known := ports[req.GetPort()]
	switch {
	case !known:
		return refuse(wire.Status_UNSUPPORTED, "node %q does not know port %d, which a node of a later version asks for: upgrade %q",
			r.cfg.ID, req.GetPort(), r.cfg.ID)
	case req.GetPort() == wire.TunnelRequest_CLIENT && r.cfg.NoTunnels:
		return refuse(wire.Status_UNSUPPORTED, "node %q accepts no tunnels: connect to it directly, or start it without --no-tunnels", r.cfg.ID)
	}
	accept := port.Load()
	if accept == nil {
		return refuse(wire.Status_UNAVAILABLE, "this node is starting or stopping")
	}
	if req.GetPort() != wire.TunnelRequest_CLIENT {
		return accept, nil
	}
	leader := r.Leader()
	switch err := peerport.CheckClientAddress(req.GetAddress()); {
	case leader.GetId() != r.cfg.ID:
		return refuse(wire.Status_NOT_LEADER, "this node follows %q", leader.GetId())
	case err != nil:
		return refuse(wire.Status_INVALID_ARGUMENT, "%v", err)
	}
	return accept, nil
}
