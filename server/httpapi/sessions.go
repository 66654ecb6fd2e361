package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sessionService implements wireconnect.SessionServiceHandler.
type sessionService struct{ *Server }

// Open opens a session. The secret's hash is its nonce, so a repeated Open returns the same session.
func (s sessionService) Open(ctx context.Context, req *connect.Request[wire.OpenRequest]) (*connect.Response[wire.OpenResponse], error) {
	hash, err := secretHash(req.Msg.GetSecret())
	if err != nil {
		return nil, err
	}
	client := &wire.ClientInfo{}
	if given := req.Msg.GetClient(); given != nil {
		client = proto.CloneOf(given)
	}
	client.Address = identity.FromContext(ctx).GetAddress()
	res := s.propose(ctx, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		SecretHash: hash[:], TtlMs: req.Msg.GetTtlMs(), Client: client,
	}}})
	if res.GetStatus() != wire.Status_OK {
		return nil, s.refusal(res, true)
	}
	state := res.GetSession()
	return connect.NewResponse(&wire.OpenResponse{SessionId: state.GetSessionId(), TtlMs: state.GetTtlMs()}), nil
}

// Heartbeat keeps a session alive. An OK proves that the session was alive when the request arrived.
func (s sessionService) Heartbeat(ctx context.Context, req *connect.Request[wire.HeartbeatRequest]) (*connect.Response[wire.HeartbeatResponse], error) {
	session, err := s.authenticate(ctx, req.Msg.GetSession())
	if err != nil {
		return nil, err
	}
	res := s.call(ctx, func(done func(*wire.Result)) { s.replica.Heartbeat(session.ID, nil, done) })
	if res.GetStatus() != wire.Status_OK {
		return nil, s.refusal(res, true)
	}
	resp := &wire.HeartbeatResponse{TtlMs: session.TTL}
	s.replica.View(func(m *fsm.Machine) { resp.Holds = m.HoldsOf(session.ID) })
	return connect.NewResponse(resp), nil
}

// Close ends a session with all its holds and waits. A repeated close answers SESSION_LOST, so the port does
// not retry an uncertain one by itself.
func (s sessionService) Close(ctx context.Context, req *connect.Request[wire.CloseRequest]) (*connect.Response[wire.CloseResponse], error) {
	session, err := s.authenticate(ctx, req.Msg.GetSession())
	if err != nil {
		return nil, err
	}
	res := s.propose(ctx, &wire.Command{SessionId: session.ID, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
	if res.GetStatus() != wire.Status_OK {
		return nil, s.refusal(res, false)
	}
	return connect.NewResponse(&wire.CloseResponse{}), nil
}

// List returns the live sessions, without their secrets.
func (s sessionService) List(ctx context.Context, req *connect.Request[wire.ListSessionsRequest]) (*connect.Response[wire.ListSessionsResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).ListSessions(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// Get returns one session with what it holds and waits for.
func (s sessionService) Get(ctx context.Context, req *connect.Request[wire.GetSessionRequest]) (*connect.Response[wire.GetSessionResponse], error) {
	if err := s.awaitRead(ctx, req.Msg.GetStale(), maxAnswerBytes); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).GetSession(req.Msg)
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

// secretHash returns the hash that the cluster stores for a secret.
func secretHash(secret []byte) ([sha256.Size]byte, error) {
	hash, err := wire.HashSecret(secret)
	if err != nil {
		return hash, apierror.New(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	return hash, nil
}

// authenticate finds the session and compares the secret. Only the leader knows the latest sessions. If it does
// not know this one, it may have been deposed, and "lost" is final, so authenticate returns it only after a
// proof of leadership.
func (s *Server) authenticate(ctx context.Context, given *wire.Credentials) (fsm.Session, error) {
	if given.GetSessionId() == 0 {
		return fsm.Session{}, apierror.New(wire.Status_INVALID_ARGUMENT, "session is missing: give the session.sessionId and session.secret of the opened session")
	}
	hash, err := secretHash(given.GetSecret())
	if err != nil {
		return fsm.Session{}, err
	}
	if !s.replica.Serving() {
		return fsm.Session{}, errNotLeader
	}
	session, found := s.session(given.GetSessionId())
	if !found {
		if res := s.reader.Prove(ctx); res != nil {
			return fsm.Session{}, s.refusal(res, true)
		}
		if session, found = s.session(given.GetSessionId()); !found {
			return fsm.Session{}, s.lost(given.GetSessionId())
		}
	}
	if subtle.ConstantTimeCompare(hash[:], session.SecretHash) != 1 {
		return fsm.Session{}, apierror.New(wire.Status_PERMISSION_DENIED, "wrong secret for the session")
	}
	if refused := access.Of(ctx).Owns(session.Identity); refused != nil {
		return fsm.Session{}, apierror.FromResult(refused)
	}
	if session.Leased {
		return fsm.Session{}, apierror.New(wire.Status_INVALID_ARGUMENT, "the session belongs to a lease: use LeaseService with the lease's secret")
	}
	return session, nil
}

func (s *Server) session(id uint64) (session fsm.Session, found bool) {
	s.replica.View(func(m *fsm.Machine) { session, found = m.Session(id) })
	return session, found
}

// lost returns the error for a session that does not exist.
func (s *Server) lost(session uint64) error {
	answer := &wire.Result{Status: wire.Status_SESSION_LOST}
	s.replica.View(func(m *fsm.Machine) {
		if known := m.SessionLost(session); known.Restored {
			answer = known
		}
	})
	return apierror.FromResult(answer)
}
