//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/bench"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// fakeService answers from its fields. A call of a nil function fails the test.
type fakeService struct {
	t          *testing.T
	listLocks  func(*wire.ListLocksRequest) (*wire.ListLocksResponse, error)
	samples    func(*wire.ListSamplesRequest) (*wire.ListSamplesResponse, error)
	examine    func(addr string) (*wire.StatusResponse, error)
	getLock    func(*wire.GetLockRequest) (*wire.GetLockResponse, error)
	sessions   func(*wire.ListSessionsRequest) (*wire.ListSessionsResponse, error)
	statusFunc func(*wire.StatusRequest) (*wire.StatusResponse, error)
	add        func(*wire.AddMemberRequest) (*wire.AddMemberResponse, error)
	remove     func(*wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error)
	drain      func(*wire.SetDrainedRequest) (*wire.SetDrainedResponse, error)
	transfer   func(*wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error)
	alarms     func(*wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error)
	verify     func(*wire.VerifyTokenRequest) (*wire.VerifyTokenResponse, error)
	deadlocks  func(*wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, error)
	contended  func(*wire.ListContendedRequest) (*wire.ListContendedResponse, error)
	session    func(*wire.GetSessionRequest) (*wire.GetSessionResponse, error)
	audit      func(*wire.ListAuditRequest) (*wire.ListAuditResponse, error)
	watch      func(client.WatchOptions) watcher
	watchAudit func() watcher
	force      func(*wire.ForceRelease) (*wire.OperatorResponse, error)
	revoke     func(*wire.Revoke) (*wire.OperatorResponse, error)
	skipDelay  func(*wire.SkipDelay) (*wire.OperatorResponse, error)
	resize     func(*wire.Resize) (*wire.OperatorResponse, error)
	forceClose func(*wire.ForceClose) (*wire.OperatorResponse, error)
	restore    func(*wire.RestoreRequest) (*wire.RestoreResponse, error)
	save       func(addr string, to io.Writer) error
	metrics    func(addr string, to io.Writer) error
	connect    func(client.SessionOptions, ...client.LockOption) (bench.Connection, error)
	acquire    func(context.Context, leaseRequest) (leased, error)
	extend     func(l lease, ttl time.Duration) error
	release    func(l lease) error
	open       func(context.Context, client.SessionOptions) (session, error)
	access     fakeAccess

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

func (f *fakeService) ListSamples(ctx context.Context, req *wire.ListSamplesRequest) (*wire.ListSamplesResponse, error) {
	return answer(ctx, f, f.samples, req)
}

func (f *fakeService) ExamineAt(ctx context.Context, addr string) (*wire.StatusResponse, *wire.ListSamplesResponse, error) {
	status, err := answer(ctx, f, f.examine, addr)
	return status, &wire.ListSamplesResponse{}, err
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

func (f *fakeService) SetDrained(ctx context.Context, req *wire.SetDrainedRequest) (*wire.SetDrainedResponse, error) {
	return answer(ctx, f, f.drain, req)
}

func (f *fakeService) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error) {
	return answer(ctx, f, f.transfer, req)
}

func (f *fakeService) AcknowledgeAlarms(ctx context.Context, req *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) {
	return answer(ctx, f, f.alarms, req)
}

func (f *fakeService) VerifyToken(ctx context.Context, req *wire.VerifyTokenRequest) (*wire.VerifyTokenResponse, error) {
	return answer(ctx, f, f.verify, req)
}

func (f *fakeService) ListDeadlocks(ctx context.Context, req *wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, error) {
	return answer(ctx, f, f.deadlocks, req)
}

func (f *fakeService) ListContended(ctx context.Context, req *wire.ListContendedRequest) (*wire.ListContendedResponse, error) {
	return answer(ctx, f, f.contended, req)
}

func (f *fakeService) GetSession(ctx context.Context, req *wire.GetSessionRequest) (*wire.GetSessionResponse, error) {
	return answer(ctx, f, f.session, req)
}

func (f *fakeService) ListAudit(ctx context.Context, req *wire.ListAuditRequest) (*wire.ListAuditResponse, error) {
	return answer(ctx, f, f.audit, req)
}

func (f *fakeService) Watch(what client.WatchOptions) watcher { return f.watch(what) }
func (f *fakeService) WatchAudit() watcher                    { return f.watchAudit() }

func (f *fakeService) ForceRelease(ctx context.Context, req *wire.ForceRelease) (*wire.OperatorResponse, error) {
	return answer(ctx, f, f.force, req)
}

func (f *fakeService) Revoke(ctx context.Context, req *wire.Revoke) (*wire.OperatorResponse, error) {
	return answer(ctx, f, f.revoke, req)
}

func (f *fakeService) SkipDelay(ctx context.Context, req *wire.SkipDelay) (*wire.OperatorResponse, error) {
	return answer(ctx, f, f.skipDelay, req)
}

func (f *fakeService) Resize(ctx context.Context, req *wire.Resize) (*wire.OperatorResponse, error) {
	return answer(ctx, f, f.resize, req)
}

func (f *fakeService) ForceClose(ctx context.Context, req *wire.ForceClose) (*wire.OperatorResponse, error) {
	return answer(ctx, f, f.forceClose, req)
}

func (f *fakeService) Restore(ctx context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	return answer(ctx, f, f.restore, req)
}

func (f *fakeService) SaveSnapshot(ctx context.Context, addr string, req *wire.SaveSnapshotRequest, to io.Writer) (about *wire.StaleSnapshot, err error) {
	if err := wire.ValidReason(req); err != nil {
		f.t.Error(err)
	}
	if req.GetStale() {
		about = &wire.StaleSnapshot{NodeId: "n1", Revision: 7, Index: 57, CommittedIndex: 50, LastChangeUnixMs: time.Now().Add(-90 * time.Second).UnixMilli()}
	}
	_, err = answer(ctx, f, func(addr string) (any, error) { return nil, f.save(addr, to) }, addr)
	return about, err
}

func (f *fakeService) Metrics(ctx context.Context, addr string, to io.Writer) error {
	_, err := answer(ctx, f, func(addr string) (any, error) { return nil, f.metrics(addr, to) }, addr)
	return err
}

func (f *fakeService) Connector(opts client.SessionOptions, exclusive ...client.LockOption) func() (bench.Connection, error) {
	return func() (bench.Connection, error) { return f.connect(opts, exclusive...) }
}

// AcquireLease may wait without a bound.
func (f *fakeService) AcquireLease(ctx context.Context, req leaseRequest) (leased, error) {
	if _, ok := ctx.Deadline(); ok == (req.claim.wait < 0) {
		f.t.Errorf("a bound on an acquire: %v, of %+v", ok, req)
	}
	return f.acquire(ctx, req)
}

func (f *fakeService) ExtendLease(ctx context.Context, secret []byte, hold uint64, ttl time.Duration) error {
	_, err := answer(ctx, f, func(l lease) (any, error) { return nil, f.extend(l, ttl) }, lease{hold, secret})
	return err
}

func (f *fakeService) ReleaseLease(ctx context.Context, secret []byte, hold uint64) error {
	_, err := answer(ctx, f, func(l lease) (any, error) { return nil, f.release(l) }, lease{hold, secret})
	return err
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

// fakeSession is a session whose acquires are answered by a function of the test.
type fakeSession struct {
	id    uint64
	ttl   time.Duration
	lock  func(ctx context.Context, name string, wait time.Duration) (hold, error)
	close func()
	left  time.Duration
	asked claim // by the last Lock
	begin func(name string, keep time.Duration) (onceRun, error)
}

func (s *fakeSession) ID() uint64         { return s.id }
func (s *fakeSession) TTL() time.Duration { return s.ttl }

// Remaining returns 0, which is no more than that of any hold, unless the test sets it.
func (s *fakeSession) Remaining() time.Duration { return s.left }

func (s *fakeSession) Lock(ctx context.Context, k claim) (hold, error) {
	s.asked = k
	return s.lock(ctx, k.what(), k.wait)
}

func (s *fakeSession) Begin(_ context.Context, _ hold, name string, keep time.Duration) (onceRun, error) {
	return s.begin(name, keep)
}

func (s *fakeSession) Close(context.Context) error {
	s.close()
	return nil
}

// fakeHold is a hold whose deadline the test sets.
type fakeHold struct {
	token       uint64
	ctx         context.Context
	cancel      context.CancelCauseFunc
	lost        chan struct{}
	revocations chan client.Revocation
	unlock      func(ctx context.Context) error

	mu       sync.Mutex
	deadline time.Duration // 0 means that heartbeats are answered, so the deadline keeps moving
	ttl      time.Duration
}

func newFakeHold(ttl time.Duration) *fakeHold {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &fakeHold{token: 1 << 62, ctx: ctx, cancel: cancel, lost: make(chan struct{}), revocations: make(chan client.Revocation, 1), ttl: ttl,
		unlock: func(context.Context) error { return nil }}
}

func (h *fakeHold) Token() uint64                     { return h.token }
func (h *fakeHold) Context() context.Context          { return h.ctx }
func (h *fakeHold) Lost() <-chan struct{}             { return h.lost }
func (h *fakeHold) Revoked() <-chan client.Revocation { return h.revocations }

func (h *fakeHold) Unlock(ctx context.Context) error { return h.unlock(ctx) }

func (h *fakeHold) Remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadline == 0 {
		return h.ttl
	}
	return max(0, h.deadline-bootTime())
}

// silence stops answering heartbeats and returns the resulting deadline. Of a long TTL, three seconds are left.
func (h *fakeHold) silence() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := min(h.ttl, 3*time.Second)
	h.deadline = bootTime() + left
	time.AfterFunc(left, func() { h.lose(client.ErrExpired) })
	return h.deadline
}

// lose ends the hold with a reason.
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
