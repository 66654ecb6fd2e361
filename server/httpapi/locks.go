package httpapi

import (
	"context"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/httpapi/retry"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// lockService implements wireconnect.LockServiceHandler.
type lockService struct{ *Server }

// Release ends a hold.
func (s lockService) Release(ctx context.Context, req *connect.Request[wire.ReleaseRequest]) (*connect.Response[wire.ReleaseResponse], error) {
	res, err := s.change(ctx, req.Msg.GetSession(), wire.CommandOf(req.Msg))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.ReleaseResponse{Status: res.GetStatus(), Revision: res.GetRevision(), Count: res.GetCount()}), nil
}

// SetValue replaces the value of a hold.
func (s lockService) SetValue(ctx context.Context, req *connect.Request[wire.SetValueRequest]) (*connect.Response[wire.SetValueResponse], error) {
	res, err := s.change(ctx, req.Msg.GetSession(), wire.CommandOf(req.Msg))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.SetValueResponse{Status: res.GetStatus(), Revision: res.GetRevision()}), nil
}

// Downgrade makes an exclusive hold shared.
func (s lockService) Downgrade(ctx context.Context, req *connect.Request[wire.DowngradeRequest]) (*connect.Response[wire.DowngradeResponse], error) {
	res, err := s.change(ctx, req.Msg.GetSession(), wire.CommandOf(req.Msg))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.DowngradeResponse{Status: res.GetStatus(), Revision: res.GetRevision()}), nil
}

// Extend restarts a hold's own deadline.
func (s lockService) Extend(ctx context.Context, req *connect.Request[wire.ExtendRequest]) (*connect.Response[wire.ExtendResponse], error) {
	res, err := s.change(ctx, req.Msg.GetSession(), wire.CommandOf(req.Msg))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.ExtendResponse{Status: res.GetStatus(), Revision: res.GetRevision()}), nil
}

// change proposes a command on a hold. Its outcomes are OK and NOT_HELD.
func (s *Server) change(ctx context.Context, given *wire.Credentials, cmd *wire.Command) (*wire.Result, error) {
	session, err := s.authenticate(ctx, given)
	if err != nil {
		return nil, err
	}
	if err := retry.CheckSeq(cmd.GetSeq(), cmd.GetAckedBelow()); err != nil {
		return nil, err
	}
	cmd.SessionId, cmd.Acked = session.ID, s.requests.Final(session.ID, cmd.GetAckedBelow())
	res := s.propose(ctx, cmd)
	if status := res.GetStatus(); status != wire.Status_OK && status != wire.Status_NOT_HELD {
		return nil, s.refusalOfSeq(res)
	}
	return res, nil
}

// Get returns one lock with its holders and its queue in order.
func (s lockService) Get(ctx context.Context, req *connect.Request[wire.GetLockRequest]) (*connect.Response[wire.GetLockResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).GetLock(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// List returns the locks under a prefix, page by page.
func (s lockService) List(ctx context.Context, req *connect.Request[wire.ListLocksRequest]) (*connect.Response[wire.ListLocksResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).ListLocks(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// VerifyToken reports whether a token holds a lock.
func (s lockService) VerifyToken(ctx context.Context, req *connect.Request[wire.VerifyTokenRequest]) (*connect.Response[wire.VerifyTokenResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), smallAnswer); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).VerifyToken(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// ListDeadlocks returns the cycles among the waiters.
func (s lockService) ListDeadlocks(ctx context.Context, req *connect.Request[wire.ListDeadlocksRequest]) (*connect.Response[wire.ListDeadlocksResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).ListDeadlocks(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// ListContended returns the locks that are waited for, the most contended first.
func (s lockService) ListContended(ctx context.Context, req *connect.Request[wire.ListContendedRequest]) (*connect.Response[wire.ListContendedResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).ListContended(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// Watch streams events until either side ends the stream. Every node answers it itself.
func (s lockService) Watch(ctx context.Context, req *connect.Request[wire.WatchRequest], stream *connect.ServerStream[wire.WatchResponse]) error {
	return s.watch(ctx, req.Msg, stream.Send)
}
