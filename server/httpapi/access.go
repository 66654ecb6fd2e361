package httpapi

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

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
	if refused := s.replica.CheckPolicy(req.Msg.GetPolicy()); refused != nil {
		return nil, s.refusal(refused, false)
	}
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

// RevokeToken withdraws a token.
func (s accessService) RevokeToken(ctx context.Context, req *connect.Request[wire.RevokeToken]) (*connect.Response[wire.OperatorResponse], error) {
	return s.changeAccess(ctx, req.Msg, false)
}

func (s *Server) changeAccess(ctx context.Context, request proto.Message, repeatable bool) (*connect.Response[wire.OperatorResponse], error) {
	cmd, refused := access.Of(ctx).Command(request)
	if refused != nil {
		return nil, s.refusal(refused, false)
	}
	return s.operate(ctx, cmd, repeatable)
}
