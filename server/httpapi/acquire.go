package httpapi

import (
	"context"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/retry"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Acquire answers when the outcome is final, however long that takes. The request counts as a sign of life of
// the session when it arrives, not while it waits: a client that waits longer than the TTL has to send
// heartbeats meanwhile.
func (s lockService) Acquire(ctx context.Context, req *connect.Request[wire.AcquireRequest]) (*connect.Response[wire.AcquireResponse], error) {
	if err := checkLocks(req.Msg); err != nil {
		return nil, err
	}
	return s.acquire(ctx, req.Msg.GetSession(), 0, wire.CommandOf(req.Msg))
}

// checkLocks refuses a request that names its locks in both ways.
func checkLocks(m *wire.AcquireRequest) error {
	if len(m.GetLocks()) > 0 && (m.GetName() != "" || m.GetMode() != wire.Mode_MODE_UNSPECIFIED || m.GetPermits() != 0 || m.GetLimit() != 0) {
		return apierror.New(wire.Status_INVALID_ARGUMENT, "give either locks, or name with mode, permits and limit, but not both")
	}
	return nil
}

// Upgrade makes a shared hold exclusive. It can wait like an acquire.
func (s lockService) Upgrade(ctx context.Context, req *connect.Request[wire.UpgradeRequest]) (*connect.Response[wire.AcquireResponse], error) {
	return s.acquire(ctx, req.Msg.GetSession(), req.Msg.GetToken(), wire.CommandOf(req.Msg))
}

// acquire answers a session's request that may wait. For an upgrade, from is the token the hold had before
// it.
func (s *Server) acquire(ctx context.Context, given *wire.Credentials, from uint64, cmd *wire.Command) (*connect.Response[wire.AcquireResponse], error) {
	session, err := s.authenticate(ctx, given)
	if err != nil {
		return nil, err
	}
	if err := retry.CheckSeq(cmd.GetSeq(), cmd.GetAckedBelow()); err != nil {
		return nil, err
	}
	cmd.SessionId, cmd.Acked = session.ID, s.requests.Final(session.ID, cmd.GetAckedBelow())
	key := pending.Key{Session: session.ID, Seq: cmd.GetSeq(), From: from, Digest: cmd.Digest()}
	res, known, err := s.wait(ctx, key, func() (*wire.Result, error) { return s.outcome(ctx, cmd) })
	if err != nil {
		return nil, err
	}
	return s.acquireResponse(key, session.ID, shown(ctx, cmd, res), known)
}

// shown returns the outcome as the caller may see it.
func shown(ctx context.Context, cmd *wire.Command, res *wire.Result) *wire.Result {
	if acquire := cmd.GetAcquire(); acquire != nil {
		return access.Of(ctx).Result(res, access.NamesOf(acquire)...)
	}
	return access.Of(ctx).Result(res, res.GetName()) // an upgrade
}

// wait waits for an outcome while at least one caller on this node waits for it. known is true if a caller
// may have been told of the grant before.
func (s *Server) wait(ctx context.Context, key pending.Key, outcome func() (*wire.Result, error)) (res *wire.Result, known bool, err error) {
	req, known, err := s.pending.Enter(ctx, key, func() bool { return s.requests.Granted(key) })
	if err != nil {
		return nil, false, contextError(err)
	}
	res, err = outcome()
	if err == nil && res.GetStatus() == wire.Status_GRANTED && !s.pending.Deliver(ctx, req) {
		err = ctx.Err()
	}
	s.pending.Leave(req, err != nil && ctx.Err() != nil)
	if err != nil {
		return nil, false, contextError(err)
	}
	return res, known, nil
}

// outcome proposes the request and waits for its final result. It subscribes before it proposes, because the
// grant may arrive before the QUEUED result.
func (s *Server) outcome(ctx context.Context, cmd *wire.Command) (*wire.Result, error) {
	final := make(chan *wire.Result, 1)
	cancel := s.replica.Await(cmd.GetSessionId(), cmd.GetSeq(), func(r *wire.Result) { final <- r })
	defer cancel()
	res := s.propose(ctx, cmd)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if res.GetStatus() != wire.Status_QUEUED {
		return res, nil
	}
	select {
	case res = <-final:
		return res, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.life.Done():
		return nil, errUncertain // its place is kept: the next leader goes on with it
	}
}

// acquireResponse converts the outcome to a response. known is true if the grant preceded this request, so that its
// hold may have ended since.
func (s *Server) acquireResponse(key pending.Key, session uint64, res *wire.Result, known bool) (*connect.Response[wire.AcquireResponse], error) {
	s.reader.FillHolders(res.GetHolders())
	resp := &wire.AcquireResponse{
		Status: res.GetStatus(), Revision: res.GetRevision(), Message: res.GetMessage(), Holders: res.GetHolders(), Cycle: res.GetCycle(),
		Digest: res.GetDigest(), Name: res.GetName(),
	}
	switch res.GetStatus() {
	case wire.Status_GRANTED:
		resp.HoldId, resp.Token, resp.Count = res.GetHoldId(), res.GetToken(), res.GetCount()
		if known && !key.IsLease() {
			s.recheckHold(key, resp)
		}
		if resp.Status == wire.Status_NOT_HELD {
			return nil, apierror.New(resp.Status, resp.Message)
		}
		if left, ok := s.replica.Remaining(session); ok && resp.Status == wire.Status_GRANTED {
			resp.RemainingTtlMs = uint64(max(left, 0).Milliseconds())
		}
	case wire.Status_NOT_ACQUIRED, wire.Status_TIMEOUT, wire.Status_CANCELLED, wire.Status_ALREADY_HELD, wire.Status_ALREADY_QUEUED,
		wire.Status_UPGRADE_CONFLICT, wire.Status_DEADLOCK, wire.Status_MISMATCH:
	default:
		if key.IsLease() {
			return nil, s.refusal(res, true)
		}
		return nil, s.refusalOfSeq(res)
	}
	if key.IsLease() {
		resp.SessionId = session
	}
	return connect.NewResponse(resp), nil
}

// recheckHold corrects the response if a hold that was granted before has ended or changed since.
func (s *Server) recheckHold(key pending.Key, resp *wire.AcquireResponse) {
	held := s.requests.Held(key.Session, resp.GetHoldId())
	switch {
	case held == nil && key.From != 0:
		resp.Status, resp.Message = wire.Status_NOT_HELD, "this upgrade was granted before and its hold has ended since; acquire again"
		return
	case held == nil:
		resp.HoldId, resp.Token, resp.Count = 0, 0, 0
		resp.Message = "this request was granted before and its hold has ended since; acquire again with a new seq"
	case key.From != 0 && shared(held):
		resp.Token = held.GetToken()
		resp.Message = "this upgrade was granted before and the hold is shared again, under the token given here; upgrade again with a new seq"
	default:
		return
	}
	resp.Status = wire.Status_CANCELLED
}

func shared(held *wire.HeldLock) bool {
	return len(held.GetLocks()) == 1 && held.GetLocks()[0].GetMode() == wire.Mode_SHARED
}
