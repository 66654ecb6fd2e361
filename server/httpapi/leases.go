package httpapi

import (
	"context"
	"crypto/sha256"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/lease"
	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// leaseService implements wireconnect.LeaseServiceHandler.
type leaseService struct{ *Server }

// Acquire answers when the outcome is final. While it waits, this node keeps the wait alive. After the grant,
// the client has to extend the lease.
func (s leaseService) Acquire(ctx context.Context, req *connect.Request[wire.AcquireLeaseRequest]) (*connect.Response[wire.AcquireResponse], error) {
	hash, err := s.authenticateLease(req.Msg.GetSecret())
	if err != nil {
		return nil, err
	}
	client := &wire.ClientInfo{}
	if given := req.Msg.GetClient(); given != nil {
		client = proto.CloneOf(given)
	}
	client.Address = identity.FromContext(ctx).GetAddress()
	open := &wire.OpenLease{SecretHash: hash[:], TtlMs: req.Msg.GetTtlMs(), Client: client, Acquire: req.Msg.GetAcquire()}
	res, err := s.leased(ctx, open)
	if err != nil {
		return nil, contextError(err)
	}
	res = access.Of(ctx).Result(res, access.NamesOf(open.Acquire)...)
	return s.acquireResponse(pending.Key{Lease: hash}, res.GetSessionId(), res, false)
}

// leased waits for the lease until it is final or this node stops.
func (s *Server) leased(ctx context.Context, open *wire.OpenLease) (*wire.Result, error) {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(s.life, func() { stop(lease.ErrStopping) })()
	res, err := s.leases.Acquire(waiting, sender(ctx), open)
	if err != nil && ctx.Err() == nil {
		return nil, errUncertain // its place is kept: the next leader goes on with it
	}
	return res, err
}

// Extend restarts the TTL of a leased hold.
func (s leaseService) Extend(ctx context.Context, req *connect.Request[wire.ExtendLeaseRequest]) (*connect.Response[wire.ExtendLeaseResponse], error) {
	hash, err := s.authenticateLease(req.Msg.GetSecret())
	if err != nil {
		return nil, err
	}
	res := s.propose(ctx, &wire.Command{Op: &wire.Command_ExtendLease{ExtendLease: &wire.ExtendLease{
		SecretHash: hash[:], HoldId: req.Msg.GetHoldId(), TtlMs: req.Msg.GetTtlMs(),
	}}})
	resp := &wire.ExtendLeaseResponse{Status: res.GetStatus(), Revision: res.GetRevision()}
	switch res.GetStatus() {
	case wire.Status_OK:
		session, _ := s.session(res.GetSessionId())
		resp.TtlMs = session.TTL
	case wire.Status_NOT_HELD:
	default:
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// Release ends a lease, or the wait for it. A repeated release answers NOT_HELD, so the port does not retry
// an uncertain one by itself.
func (s leaseService) Release(ctx context.Context, req *connect.Request[wire.ReleaseLeaseRequest]) (*connect.Response[wire.ReleaseResponse], error) {
	hash, err := s.authenticateLease(req.Msg.GetSecret())
	if err != nil {
		return nil, err
	}
	res := s.propose(ctx, &wire.Command{Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{
		SecretHash: hash[:], HoldId: req.Msg.GetHoldId(),
	}}})
	if status := res.GetStatus(); status != wire.Status_OK && status != wire.Status_NOT_HELD {
		return nil, s.refusal(res, false)
	}
	return connect.NewResponse(&wire.ReleaseResponse{Status: res.GetStatus(), Revision: res.GetRevision(), Count: res.GetCount()}), nil
}

// authenticateLease checks the secret, which alone identifies a lease.
func (s *Server) authenticateLease(secret []byte) (hash [sha256.Size]byte, err error) {
	if hash, err = secretHash(secret); err != nil {
		return hash, err
	}
	if !s.replica.Serving() {
		return hash, errNotLeader
	}
	return hash, nil
}
