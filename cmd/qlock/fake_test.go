package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// fakeService answers from fields. Functions that are nil fail the test.
type fakeService struct {
	t          *testing.T
	listLocks  func(*wire.ListLocksRequest) (*wire.ListLocksResponse, error)
	getLock    func(*wire.GetLockRequest) (*wire.GetLockResponse, error)
	sessions   func(*wire.ListSessionsRequest) (*wire.ListSessionsResponse, error)
	statusFunc func(*wire.StatusRequest) (*wire.StatusResponse, error)
	add        func(*wire.AddMemberRequest) (*wire.AddMemberResponse, error)
	remove     func(*wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error)
	transfer   func(*wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error)
	open       func(context.Context, client.SessionOptions) (session, error)

	mu     sync.Mutex
	closed bool
}

// dialer makes every command line use the fake.
func (f *fakeService) dialer(*cli.Context) (service, error) { return f, nil }

// answer calls one of the fake's functions.
func answer[Q, A any](ctx context.Context, f *fakeService, call func(Q) (A, error), req Q) (A, error) {
	if call == nil {
		f.t.Errorf("unexpected call with %v", req)
		var none A
		return none, errors.New("unexpected call")
	}
	if _, ok := ctx.Deadline(); !ok {
		f.t.Errorf("a call without a bound: %v", req)
	}
	return call(req)
}

func (f *fakeService) ListLocks(ctx context.Context, req *wire.ListLocksRequest) (*wire.ListLocksResponse, error) {
	return answer(ctx, f, f.listLocks, req)
}

func (f *fakeService) GetLock(ctx context.Context, req *wire.GetLockRequest) (*wire.GetLockResponse, error) {
	return answer(ctx, f, f.getLock, req)
}

func (f *fakeService) ListSessions(ctx context.Context, req *wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) {
	return answer(ctx, f, f.sessions, req)
}

func (f *fakeService) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	return answer(ctx, f, f.statusFunc, req)
}

func (f *fakeService) AddMember(ctx context.Context, req *wire.AddMemberRequest) (*wire.AddMemberResponse, error) {
	return answer(ctx, f, f.add, req)
}

func (f *fakeService) RemoveMember(ctx context.Context, req *wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error) {
	return answer(ctx, f, f.remove, req)
}

func (f *fakeService) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error) {
	return answer(ctx, f, f.transfer, req)
}

func (f *fakeService) Open(ctx context.Context, opts client.SessionOptions) (session, error) {
	return answer(ctx, f, func(o client.SessionOptions) (session, error) { return f.open(ctx, o) }, opts)
}

func (f *fakeService) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// fakeSession is a session whose lock calls a function of the test answers.
type fakeSession struct {
	id    uint64
	ttl   time.Duration
	lock  func(ctx context.Context, name string, wait time.Duration) (hold, error)
	close func()
}

func (s *fakeSession) ID() uint64         { return s.id }
func (s *fakeSession) TTL() time.Duration { return s.ttl }

func (s *fakeSession) Lock(ctx context.Context, name string, wait time.Duration) (hold, error) {
	return s.lock(ctx, name, wait)
}

func (s *fakeSession) Close(context.Context) error {
	s.close()
	return nil
}

// fakeHold is a hold whose deadline the test sets.
type fakeHold struct {
	token  uint64
	ctx    context.Context
	cancel context.CancelCauseFunc
	lost   chan struct{}
	unlock func(ctx context.Context) error

	mu       sync.Mutex
	deadline time.Duration // 0: heartbeats are answered, so it never comes nearer
	ttl      time.Duration
}

func newFakeHold(ttl time.Duration) *fakeHold {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &fakeHold{token: 1 << 62, ctx: ctx, cancel: cancel, lost: make(chan struct{}), ttl: ttl,
		unlock: func(context.Context) error { return nil }}
}

func (h *fakeHold) Token() uint64            { return h.token }
func (h *fakeHold) Context() context.Context { return h.ctx }
func (h *fakeHold) Lost() <-chan struct{}    { return h.lost }

func (h *fakeHold) Unlock(ctx context.Context) error { return h.unlock(ctx) }

func (h *fakeHold) Remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadline == 0 {
		return h.ttl
	}
	return max(0, h.deadline-bootTime())
}

// silence stops the heartbeats' answers and returns the deadline that this sets.
func (h *fakeHold) silence() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadline = bootTime() + h.ttl
	time.AfterFunc(h.ttl, func() { h.lose(client.ErrExpired) })
	return h.deadline
}

// lose ends the hold for a reason.
func (h *fakeHold) lose(reason error) {
	h.cancel(reason)
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.lost:
	default:
		close(h.lost)
	}
}
