package web

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// lockService implements wireconnect.LockServiceHandler.
type lockService struct {
	*Server
	wireconnect.UnimplementedLockServiceHandler
}

// Acquire answers once the outcome is final, however long that takes. It counts as a
// sign of life of the session when it arrives and not while it waits: who waits longer
// than the TTL sends heartbeats beside it.
func (s lockService) Acquire(ctx context.Context, req *connect.Request[wire.AcquireRequest]) (*connect.Response[wire.AcquireResponse], error) {
	m := req.Msg
	session, err := s.admit(ctx, m.GetSession())
	if err != nil {
		return nil, err
	}
	if err := checkSeq(m.GetSeq(), m.GetAckedBelow()); err != nil {
		return nil, err
	}
	key := visitKey{session.ID, m.GetSeq()}
	here, known, err := s.visits.enter(ctx, key, func() bool { return s.granted(key) })
	if err != nil {
		return nil, gaveUp(err)
	}
	res, err := s.outcome(ctx, m)
	if err == nil && res.GetStatus() == wire.Status_GRANTED && !s.visits.tell(ctx, here) {
		err = ctx.Err()
	}
	s.visits.leave(key, here, err != nil && ctx.Err() != nil && !s.isClosing())
	if err != nil {
		return nil, gaveUp(err)
	}
	return s.acquired(m, res, known)
}

// outcome proposes the acquire and waits for its end. It listens before it proposes:
// the grant may come before the answer that there is something to wait for.
func (s *Server) outcome(ctx context.Context, m *wire.AcquireRequest) (*wire.Result, error) {
	final := make(chan *wire.Result, 1)
	cancel := s.replica.Await(m.GetSession().GetSessionId(), m.GetSeq(), func(r *wire.Result) { final <- r })
	defer cancel()
	res := s.propose(ctx, &wire.Command{
		SessionId: m.GetSession().GetSessionId(), Seq: m.GetSeq(),
		AckedBelow: m.GetAckedBelow(), Acked: s.answered(m.GetSession().GetSessionId(), m.GetAckedBelow()),
		Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: m.GetName(), Mode: m.GetMode()}},
			Owner: m.GetOwner(), WaitMs: m.GetWaitMs(), WaitForever: m.GetWaitForever(), Value: m.GetValue(),
		}},
	})
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
		return nil, failure(wire.Status_UNCERTAIN, "this node is stopping and the request still waits: send it again with the same seq to another node")
	}
}

// acquired words the outcome. known says that the grant had been given before this
// request came.
func (s *Server) acquired(m *wire.AcquireRequest, res *wire.Result, known bool) (*connect.Response[wire.AcquireResponse], error) {
	s.aged(res.GetHolders())
	resp := &wire.AcquireResponse{
		Status: res.GetStatus(), Revision: res.GetRevision(), Message: res.GetMessage(), Holders: res.GetHolders(),
	}
	switch res.GetStatus() {
	case wire.Status_GRANTED:
		if known && !s.holds(m.GetName(), res.GetHoldId()) {
			resp.Status = wire.Status_CANCELLED
			resp.Message = "this request was granted before and its hold has ended since; acquire again with a fresh seq"
			break
		}
		resp.HoldId, resp.Token = res.GetHoldId(), res.GetToken()
		if left, ok := s.replica.Remaining(m.GetSession().GetSessionId()); ok {
			resp.RemainingTtlMs = uint64(max(left, 0).Milliseconds())
		}
	case wire.Status_NOT_ACQUIRED, wire.Status_TIMEOUT, wire.Status_CANCELLED:
	default:
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// aged fills in what the state machine cannot know of holders: how long ago things are.
func (s *Server) aged(holders []*wire.HolderInfo) {
	now := time.Now().UnixMilli()
	for _, h := range holders {
		h.HeldForMs = uint64(max(now-h.GetGrantedUnixMs(), 0))
		if age, known := s.replica.HeartbeatAge(h.GetSessionId()); known {
			h.HeartbeatAgeMs = proto.Uint64(uint64(max(age, 0).Milliseconds()))
		}
	}
}

// Release ends a hold.
func (s lockService) Release(ctx context.Context, req *connect.Request[wire.ReleaseRequest]) (*connect.Response[wire.ReleaseResponse], error) {
	m := req.Msg
	res, err := s.change(ctx, m.GetSession(), &wire.Command{
		Seq: m.GetSeq(), AckedBelow: m.GetAckedBelow(),
		Op: &wire.Command_Release{Release: &wire.Release{HoldId: m.GetHoldId(), Token: m.GetToken()}},
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.ReleaseResponse{Status: res.GetStatus(), Revision: res.GetRevision()}), nil
}

// SetValue replaces the value of a hold.
func (s lockService) SetValue(ctx context.Context, req *connect.Request[wire.SetValueRequest]) (*connect.Response[wire.SetValueResponse], error) {
	m := req.Msg
	res, err := s.change(ctx, m.GetSession(), &wire.Command{
		Seq: m.GetSeq(), AckedBelow: m.GetAckedBelow(),
		Op: &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: m.GetHoldId(), Token: m.GetToken(), Value: m.GetValue()}},
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.SetValueResponse{Status: res.GetStatus(), Revision: res.GetRevision()}), nil
}

// change proposes a command on a hold; OK and NOT_HELD are its outcomes.
func (s *Server) change(ctx context.Context, given *wire.Credentials, cmd *wire.Command) (*wire.Result, error) {
	session, err := s.admit(ctx, given)
	if err != nil {
		return nil, err
	}
	if err := checkSeq(cmd.GetSeq(), cmd.GetAckedBelow()); err != nil {
		return nil, err
	}
	cmd.SessionId, cmd.Acked = session.ID, s.answered(session.ID, cmd.GetAckedBelow())
	res := s.propose(ctx, cmd)
	if status := res.GetStatus(); status != wire.Status_OK && status != wire.Status_NOT_HELD {
		return nil, s.refusal(res, true)
	}
	return res, nil
}

// Get shows one lock with its holder and its queue in order.
func (s lockService) Get(ctx context.Context, req *connect.Request[wire.GetLockRequest]) (*connect.Response[wire.GetLockResponse], error) {
	if err := s.settle(ctx, req.Msg.GetStale()); err != nil {
		return nil, err
	}
	resp, res := s.reader.GetLock(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// List shows the locks under a prefix, page by page.
func (s lockService) List(ctx context.Context, req *connect.Request[wire.ListLocksRequest]) (*connect.Response[wire.ListLocksResponse], error) {
	if err := s.settle(ctx, req.Msg.GetStale()); err != nil {
		return nil, err
	}
	resp, res := s.reader.ListLocks(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}
