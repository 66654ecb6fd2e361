package read

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Source is the node that answers: the replica, or a fake in tests.
type Source interface {
	// Prove calls done exactly once, with OK when the node has proved that it led after the call and has
	// applied everything up to then. done must not block.
	Prove(done func(*wire.Result))
	// Fork returns a copy of the state that may be read for any length of time.
	Fork() *fsm.Machine
	// HeartbeatAge returns the age of the session's last sign of life; false on a node that does not lead.
	HeartbeatAge(session uint64) (time.Duration, bool)
	// Remaining returns the time until the session's deadline; false on a node that does not lead.
	Remaining(session uint64) (time.Duration, bool)
	// HoldRemaining returns the time until the hold's own deadline; false if it has none, and on a node that
	// does not lead.
	HoldRemaining(hold uint64) (time.Duration, bool)
	// IdleFor returns the time since the last use of a session's cached hold; false if its last heartbeat did not report
	// the hold as idle, and on a node that does not lead.
	IdleFor(session, hold uint64) (time.Duration, bool)
	// DelayRemaining returns the remaining lock-delay of an ended hold; false if it has none, and on a node
	// that does not lead.
	DelayRemaining(hold uint64) (time.Duration, bool)
	// Samples returns what the node has measured. The samples must not be changed.
	Samples() *wire.ListSamplesResponse
}

// Reader answers reads from a Source. It is safe for concurrent use.
type Reader struct {
	source Source
	limit  int
	now    func() time.Time
	quotas *quota.Node
}

// View is what one caller may read.
type View struct {
	*Reader
	caller *access.Caller
}

// As returns what a caller may read.
func (r *Reader) As(caller *access.Caller) *View { return &View{r, caller} }

// Page sizes, as documented in read.proto. A size out of range is rejected, never clamped.
const (
	defaultPage  = 100
	maxPage      = 1_000
	defaultQueue = 1_000
	maxQueue     = 10_000
)

// New returns a Reader whose encoded answers have at most limit bytes. quotas are what identities use of this node; nil
// if nothing is counted.
func New(source Source, limit int, quotas *quota.Node) *Reader {
	return &Reader{source: source, limit: limit, now: time.Now, quotas: quotas}
}

// Prove waits for a proof of leadership newer than the call. It returns nil once reads are linearizable, and
// otherwise the result to answer with.
func (r *Reader) Prove(ctx context.Context) *wire.Result {
	proved := make(chan *wire.Result, 1)
	r.source.Prove(func(res *wire.Result) { proved <- res })
	select {
	case res := <-proved:
		if res.GetStatus() == wire.Status_OK {
			return nil
		}
		return res
	case <-ctx.Done():
		return failure(wire.Status_UNAVAILABLE, "no proof of leadership in time: "+ctx.Err().Error())
	}
}

// ListLocks returns a page of locks from the applied state.
func (r *View) ListLocks(req *wire.ListLocksRequest) (*wire.ListLocksResponse, *wire.Result) {
	last, refused := begin(locksListing, req.GetPrefix(), req.GetPageToken(), req.GetPageSize())
	if refused != nil {
		return nil, refused
	}
	machine, g := r.source.Fork(), r.caller.Grants()
	return fit(r.limit, orDefault(req.GetPageSize(), defaultPage), func(size uint32) *wire.ListLocksResponse {
		resp := machine.ListReadable(&wire.ListLocksRequest{
			Prefix: req.GetPrefix(), PageToken: last, PageSize: size, Elections: req.GetElections(),
		}, g)
		resp.NextPageToken = pageToken(locksListing, req.GetPrefix(), resp.GetNextPageToken())
		for _, lock := range resp.GetLocks() {
			lock.Holders, lock.Queue = access.Holders(g, lock.Holders), access.Waiters(g, lock.Queue)
			r.fillLock(lock)
		}
		return resp
	})
}

// GetLock returns a lock from the applied state. It returns NOT_FOUND if the lock has no holder, no waiter
// and no lock-delay, unless the request allows that.
func (r *View) GetLock(req *wire.GetLockRequest) (*wire.GetLockResponse, *wire.Result) {
	if err := wire.ValidName(req.GetName()); err != nil {
		return nil, failure(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	if refused := outOfRange("queue_limit", req.GetQueueLimit(), maxQueue); refused != nil {
		return nil, refused
	}
	machine, g := r.source.Fork(), r.caller.Grants()
	limited := func(queue uint32) *wire.GetLockRequest {
		return &wire.GetLockRequest{Name: req.GetName(), QueueLimit: queue, AllowFree: req.GetAllowFree()}
	}
	if _, found := machine.GetLock(limited(1)); !found {
		return nil, failure(wire.Status_NOT_FOUND, "nobody holds or waits for "+req.GetName()+", and no lock-delay keeps it closed")
	}
	return fit(r.limit, orDefault(req.GetQueueLimit(), defaultQueue), func(size uint32) *wire.GetLockResponse {
		resp, _ := machine.GetLock(limited(size))
		resp.Holders, resp.Queue = access.Holders(g, resp.Holders), access.Waiters(g, resp.Queue)
		r.fillLock(resp)
		return resp
	})
}

// ListSessions returns a page of sessions from the applied state: all for a caller that may read all locks, and
// otherwise the caller's own.
func (r *View) ListSessions(req *wire.ListSessionsRequest) (*wire.ListSessionsResponse, *wire.Result) {
	last, refused := begin(sessionsListing, "", req.GetPageToken(), req.GetPageSize())
	if refused != nil {
		return nil, refused
	}
	machine, all := r.source.Fork(), r.caller.Grants().OnAllLocks(wire.Verb_READ)
	visible := func(identity string) bool { return all || identity == r.caller.Identity() }
	return fit(r.limit, orDefault(req.GetPageSize(), defaultPage), func(size uint32) *wire.ListSessionsResponse {
		resp := machine.ListVisible(&wire.ListSessionsRequest{PageToken: last, PageSize: size}, visible)
		resp.NextPageToken = pageToken(sessionsListing, "", resp.GetNextPageToken())
		for _, s := range resp.GetSessions() {
			s.HeartbeatAgeMs = milliseconds(r.source.HeartbeatAge(s.GetSessionId()))
		}
		return resp
	})
}

// VerifyToken checks against the applied state whether the token holds the lock.
func (r *View) VerifyToken(req *wire.VerifyTokenRequest) (*wire.VerifyTokenResponse, *wire.Result) {
	if err := wire.ValidName(req.GetName()); err != nil {
		return nil, failure(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	resp := r.source.Fork().VerifyToken(req)
	g := r.caller.Grants()
	if h := resp.GetHolder(); h != nil && g.OnLock(req.GetName(), wire.Verb_READ) {
		resp.Holder = access.Holders(g, []*wire.HolderInfo{h})[0]
		r.FillHolders([]*wire.HolderInfo{resp.Holder})
	} else {
		resp.Holder = nil
	}
	return fit(r.limit, 1, func(uint32) *wire.VerifyTokenResponse { return resp })
}

// ListDeadlocks returns the cycles among the waiters in the applied state, as many as fit.
func (r *View) ListDeadlocks(req *wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, *wire.Result) {
	resp := r.source.Fork().ListDeadlocks(req)
	if g := r.caller.Grants(); !g.OnAllLocks(wire.Verb_READ) {
		resp.Deadlocks = access.Deadlocks(g, resp.Deadlocks)
	}
	return fit(r.limit, uint32(max(len(resp.GetDeadlocks()), 1)), func(size uint32) *wire.ListDeadlocksResponse {
		resp.Deadlocks = resp.Deadlocks[:min(int(size), len(resp.Deadlocks))]
		return resp
	})
}

// ListContended returns the locks that are waited for in the applied state, as many as fit.
func (r *View) ListContended(req *wire.ListContendedRequest) (*wire.ListContendedResponse, *wire.Result) {
	if refused := outOfRange("limit", req.GetLimit(), maxPage); refused != nil {
		return nil, refused
	}
	if _, known := wire.ListContendedRequest_Order_name[int32(req.GetOrder())]; !known {
		return nil, failure(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("order is %d: give QUEUE_LENGTH or OLDEST_WAIT", req.GetOrder()))
	}
	g := r.caller.Grants()
	resp := r.source.Fork().ListContended(req, g)
	for _, lock := range resp.GetLocks() {
		r.fillContended(g, lock)
	}
	return fit(r.limit, uint32(max(len(resp.GetLocks()), 1)), func(size uint32) *wire.ListContendedResponse {
		resp.Locks = resp.Locks[:min(int(size), len(resp.Locks))]
		return resp
	})
}

// GetSession returns a session from the applied state, with as many of its holds and waits as fit. It returns NOT_FOUND
// if there is no such session, or if the caller may not know of it.
func (r *View) GetSession(req *wire.GetSessionRequest) (*wire.GetSessionResponse, *wire.Result) {
	machine, g := r.source.Fork(), r.caller.Grants()
	resp, found := machine.GetSession(req.GetSessionId(), maxPage, g, r.caller.Identity())
	if !found {
		return nil, failure(wire.Status_NOT_FOUND, fmt.Sprintf("there is no session %d that you may see: it was closed or expired, or you may read none of its locks", req.GetSessionId()))
	}
	r.fillSession(g, resp)
	return fit(r.limit, maxPage, func(size uint32) *wire.GetSessionResponse {
		resp.Holds = resp.Holds[:min(int(size), len(resp.Holds))]
		resp.Waits = resp.Waits[:min(int(size), len(resp.Waits))]
		return resp
	})
}

// ListAudit returns a page of the audit log from the applied state.
func (r *View) ListAudit(req *wire.ListAuditRequest) (*wire.ListAuditResponse, *wire.Result) {
	last, refused := begin(auditListing, "", req.GetPageToken(), req.GetPageSize())
	if refused != nil {
		return nil, refused
	}
	machine := r.source.Fork()
	return fit(r.limit, orDefault(req.GetPageSize(), defaultPage), func(size uint32) *wire.ListAuditResponse {
		resp := machine.ListAudit(&wire.ListAuditRequest{PageToken: last, PageSize: size})
		resp.NextPageToken = pageToken(auditListing, "", resp.GetNextPageToken())
		return resp
	})
}

// fit halves the page size until the answer has at most limit bytes. The next page starts where the shortened
// one ends, so nothing is omitted.
func fit[M proto.Message](limit int, size uint32, answer func(size uint32) M) (M, *wire.Result) {
	for {
		resp := answer(size)
		if proto.Size(resp) <= limit {
			return resp, nil
		}
		if size == 1 {
			var none M
			return none, failure(wire.Status_RESOURCE_EXHAUSTED, "the answer does not fit into one frame: raise --max-frame-bytes")
		}
		size /= 2
	}
}

func failure(status wire.Status_Code, message string) *wire.Result {
	return &wire.Result{Status: status, Message: message}
}
