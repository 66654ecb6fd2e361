package httpapi

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// operatorService implements wireconnect.OperatorServiceHandler. Its changes have no sequence number, so the
// port does not retry uncertain ones by itself.
type operatorService struct{ *Server }

// ForceRelease ends a hold on behalf of its holder.
func (s operatorService) ForceRelease(ctx context.Context, req *connect.Request[wire.ForceRelease]) (*connect.Response[wire.OperatorResponse], error) {
	return s.operate(ctx, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: req.Msg}}, false)
}

// Revoke asks a holder to release its hold.
func (s operatorService) Revoke(ctx context.Context, req *connect.Request[wire.Revoke]) (*connect.Response[wire.OperatorResponse], error) {
	return s.operate(ctx, &wire.Command{Op: &wire.Command_Revoke{Revoke: req.Msg}}, false)
}

// SkipDelay ends lock-delays early.
func (s operatorService) SkipDelay(ctx context.Context, req *connect.Request[wire.SkipDelay]) (*connect.Response[wire.OperatorResponse], error) {
	return s.operate(ctx, &wire.Command{Op: &wire.Command_SkipDelay{SkipDelay: req.Msg}}, false)
}

// Resize changes the limit of a semaphore.
func (s operatorService) Resize(ctx context.Context, req *connect.Request[wire.Resize]) (*connect.Response[wire.OperatorResponse], error) {
	return s.operate(ctx, &wire.Command{Op: &wire.Command_Resize{Resize: req.Msg}}, false)
}

// ForceClose ends a session on behalf of its client.
func (s operatorService) ForceClose(ctx context.Context, req *connect.Request[wire.ForceClose]) (*connect.Response[wire.OperatorResponse], error) {
	return s.operate(ctx, &wire.Command{Op: &wire.Command_ForceClose{ForceClose: req.Msg}}, false)
}

// operate proposes an operator's command. repeatable is set if a second execution returns the outcome of the first.
func (s *Server) operate(ctx context.Context, cmd *wire.Command, repeatable bool) (*connect.Response[wire.OperatorResponse], error) {
	if !s.replica.Serving() {
		return nil, errNotLeader
	}
	if err := s.turn(ctx, s.queues.Commands, smallAnswer); err != nil {
		return nil, err
	}
	res := s.propose(ctx, cmd)
	switch res.GetStatus() {
	case wire.Status_OK, wire.Status_NOT_HELD, wire.Status_NOT_FOUND, wire.Status_FAILED_PRECONDITION:
		return connect.NewResponse(&wire.OperatorResponse{Status: res.GetStatus(), Revision: res.GetRevision(), Message: res.GetMessage()}), nil
	}
	return nil, s.refusal(res, repeatable)
}

// ListAudit returns the audit records of operators' commands, newest first.
func (s operatorService) ListAudit(ctx context.Context, req *connect.Request[wire.ListAuditRequest]) (*connect.Response[wire.ListAuditResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).ListAudit(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// SaveSnapshot streams the whole state in pieces.
func (s operatorService) SaveSnapshot(ctx context.Context, req *connect.Request[wire.SaveSnapshotRequest], stream *connect.ServerStream[wire.SaveSnapshotResponse]) error {
	return s.snapshot(ctx, req.Msg,
		func(about *wire.StaleSnapshot) error { return stream.Send(&wire.SaveSnapshotResponse{Stale: about}) },
		func(piece []byte) error { return stream.Send(&wire.SaveSnapshotResponse{Chunk: piece}) })
}

// Restore starts a new lineage from the token floor, settings and audit records of a backup.
func (s operatorService) Restore(ctx context.Context, req *connect.Request[wire.RestoreRequest]) (*connect.Response[wire.RestoreResponse], error) {
	if !s.replica.Serving() {
		return nil, errNotLeader
	}
	if err := s.turn(ctx, s.queues.Acts, smallAnswer); err != nil {
		return nil, err
	}
	resp, err := s.replica.Restore(ctx, req.Msg)
	if err != nil {
		return nil, s.refusalOf(err)
	}
	return connect.NewResponse(resp), nil
}

// accessService implements wireconnect.AccessServiceHandler.
type accessService struct{ *Server }

// WhoAmI returns the caller as the leader knows it or, if the request is stale, as this node does.
func (s accessService) WhoAmI(ctx context.Context, req *connect.Request[wire.WhoAmIRequest]) (*connect.Response[wire.WhoAmIResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), smallAnswer); err != nil {
		return nil, err
	}
	return connect.NewResponse(s.reader.As(access.Of(ctx)).WhoAmI()), nil
}

// GetPolicy returns the policy.
func (s accessService) GetPolicy(ctx context.Context, req *connect.Request[wire.GetPolicyRequest]) (*connect.Response[wire.GetPolicyResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	return connect.NewResponse(s.reader.As(access.Of(ctx)).GetPolicy()), nil
}

// SetPolicy replaces the policy.
func (s accessService) SetPolicy(ctx context.Context, req *connect.Request[wire.SetPolicy]) (*connect.Response[wire.OperatorResponse], error) {
	return s.changeAccess(ctx, req.Msg, false)
}

// TestPolicy explains what an identity may do.
func (s accessService) TestPolicy(ctx context.Context, req *connect.Request[wire.TestPolicyRequest]) (*connect.Response[wire.TestPolicyResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), smallAnswer); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).TestPolicy(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// CreateToken makes a token. Repeated, it returns the same one.
func (s accessService) CreateToken(ctx context.Context, req *connect.Request[wire.CreateTokenRequest]) (*connect.Response[wire.CreateTokenResponse], error) {
	changed, err := s.changeAccess(ctx, req.Msg, true)
	if err != nil {
		return nil, err
	}
	if changed.Msg.GetStatus() != wire.Status_OK {
		return nil, s.refusal(&wire.Result{Status: changed.Msg.GetStatus(), Message: changed.Msg.GetMessage()}, true)
	}
	return connect.NewResponse(access.Of(ctx).Created(req.Msg)), nil
}

// ListTokens returns the tokens without their secrets.
func (s accessService) ListTokens(ctx context.Context, req *connect.Request[wire.ListTokensRequest]) (*connect.Response[wire.ListTokensResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	return connect.NewResponse(s.reader.As(access.Of(ctx)).ListTokens()), nil
}

// GetQuota returns how much of its quotas an identity uses, or all.
func (s accessService) GetQuota(ctx context.Context, req *connect.Request[wire.GetQuotaRequest]) (*connect.Response[wire.GetQuotaResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).GetQuota(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// RevokeToken withdraws a token.
func (s accessService) RevokeToken(ctx context.Context, req *connect.Request[wire.RevokeToken]) (*connect.Response[wire.OperatorResponse], error) {
	return s.changeAccess(ctx, req.Msg, false)
}

func (s *Server) changeAccess(ctx context.Context, request proto.Message, repeatable bool) (*connect.Response[wire.OperatorResponse], error) {
	cmd, refused := access.Of(ctx).Command(request)
	if refused == nil {
		refused = s.replica.CheckChange(cmd)
	}
	if refused != nil {
		return nil, s.refusal(refused, false)
	}
	return s.operate(ctx, cmd, repeatable)
}
