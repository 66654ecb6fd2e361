package wirecall

import (
	"context"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Kind is how a request is repeated after a connection has ended.
type Kind int

const (
	// Read requests change nothing and are repeated.
	Read Kind = iota
	// Stale requests are reads that any node may answer.
	Stale
	// Operate requests are answered soon. They are never repeated once they may have been executed.
	Operate
	// Admin requests are like Operate requests, but may take long, such as adding a member.
	Admin
	// Repeat requests change something and are repeated, because the cluster recognizes the repetition.
	Repeat
)

var (
	// Do makes the request with that body through a *client.Client and returns the response. Errors are
	// those of package client.
	Do func(ctx context.Context, client any, kind Kind, request *wire.Request) (*wire.Response, error)
	// Crash ends a *client.Client as the death of its process does: the cluster is told nothing. It is for tests.
	Crash func(client any)
	// Next waits for the next batch of a *client.Watcher.
	Next func(ctx context.Context, watcher any) (Batch, error)
	// WatchAudit starts a *client.Watcher of audit records after a position.
	WatchAudit func(ctx context.Context, client any, lineage string, revision uint64) Closer
)

// Closer is a *client.Watcher.
type Closer interface{ Close() }

// Watcher returns the batches of a *client.Watcher.
type Watcher struct{ watcher Closer }

// Next waits for the next batch.
func (w Watcher) Next(ctx context.Context) (Batch, error) { return Next(ctx, w.watcher) }

// Close ends the watch.
func (w Watcher) Close() { w.watcher.Close() }

// Batch is a client.Batch.
type Batch struct {
	Events   []*wire.Event
	Lineage  string
	Revision uint64
}

// Calls makes calls through a *client.Client.
type Calls struct{ client any }

// Of returns the calls of a *client.Client.
func Of(client any) Calls { return Calls{client} }

// WatchAudit watches the audit records after a position; revision 0 is now.
func (c Calls) WatchAudit(ctx context.Context, lineage string, revision uint64) Watcher {
	return Watcher{WatchAudit(ctx, c.client, lineage, revision)}
}

// reading returns the kind of a read.
func reading(stale bool) Kind {
	if stale {
		return Stale
	}
	return Read
}

// ListLocks lists locks by prefix, in pages. Unless req.Stale is set, it includes every lock granted before
// the call.
func (c Calls) ListLocks(ctx context.Context, req *wire.ListLocksRequest) (*wire.ListLocksResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_ListLocks{ListLocks: req}})
	return resp.GetListLocks(), err
}

// GetLock returns one lock with its holders and its queue in order. It returns client.ErrNotFound if the lock
// has neither holders nor waiters.
func (c Calls) GetLock(ctx context.Context, req *wire.GetLockRequest) (*wire.GetLockResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_GetLock{GetLock: req}})
	return resp.GetGetLock(), err
}

// ListSessions lists the live sessions, in pages.
func (c Calls) ListSessions(ctx context.Context, req *wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_ListSessions{ListSessions: req}})
	return resp.GetListSessions(), err
}

// Status returns the state of the cluster and its nodes. With req.Stale any node answers, even without a
// leader.
func (c Calls) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_Status{Status: req}})
	return resp.GetStatus(), err
}

// ListSamples returns what the answering node has measured, which is any node.
func (c Calls) ListSamples(ctx context.Context, req *wire.ListSamplesRequest) (*wire.ListSamplesResponse, error) {
	resp, err := Do(ctx, c.client, Stale, &wire.Request{Body: &wire.Request_ListSamples{ListSamples: req}})
	return resp.GetListSamples(), err
}

// ListDeadlocks lists the cycles of owners that wait for each other. Such cycles exist because allow_deadlock
// admitted them or because resizing a semaphore closed them.
func (c Calls) ListDeadlocks(ctx context.Context, req *wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_ListDeadlocks{ListDeadlocks: req}})
	return resp.GetListDeadlocks(), err
}

// ListContended lists the locks that are waited for, the most contended first.
func (c Calls) ListContended(ctx context.Context, req *wire.ListContendedRequest) (*wire.ListContendedResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_ListContended{ListContended: req}})
	return resp.GetListContended(), err
}

// GetSession returns a session with what it holds and waits for. It returns client.ErrNotFound if there is none that
// the caller may see.
func (c Calls) GetSession(ctx context.Context, req *wire.GetSessionRequest) (*wire.GetSessionResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_GetSession{GetSession: req}})
	return resp.GetGetSession(), err
}

// ListAudit lists operator actions, newest first, in pages.
func (c Calls) ListAudit(ctx context.Context, req *wire.ListAuditRequest) (*wire.ListAuditResponse, error) {
	resp, err := Do(ctx, c.client, reading(req.GetStale()), &wire.Request{Body: &wire.Request_ListAudit{ListAudit: req}})
	return resp.GetListAudit(), err
}

// AddMember adds a node, which becomes a voter once it has caught up. If the connection breaks in the
// meantime, the error matches client.ErrUncertain; check Status.
func (c Calls) AddMember(ctx context.Context, req *wire.AddMemberRequest) (*wire.AddMemberResponse, error) {
	if _, err := Do(ctx, c.client, Admin, &wire.Request{Body: &wire.Request_AddMember{AddMember: req}}); err != nil {
		return nil, err
	}
	return &wire.AddMemberResponse{}, nil
}

// RemoveMember removes a node. Errors are those of AddMember.
func (c Calls) RemoveMember(ctx context.Context, req *wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error) {
	if _, err := Do(ctx, c.client, Admin, &wire.Request{Body: &wire.Request_RemoveMember{RemoveMember: req}}); err != nil {
		return nil, err
	}
	return &wire.RemoveMemberResponse{}, nil
}

// SetDrained drains a node, which then does not lead, or ends that. Errors are those of AddMember.
func (c Calls) SetDrained(ctx context.Context, req *wire.SetDrainedRequest) (*wire.SetDrainedResponse, error) {
	if _, err := Do(ctx, c.client, Admin, &wire.Request{Body: &wire.Request_SetDrained{SetDrained: req}}); err != nil {
		return nil, err
	}
	return &wire.SetDrainedResponse{}, nil
}

// TransferLeadership transfers leadership to the given node, or to one that raft chooses. The response names
// the new leader if the old one knew it. Errors are those of AddMember.
func (c Calls) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error) {
	resp, err := Do(ctx, c.client, Admin, &wire.Request{Body: &wire.Request_TransferLeadership{TransferLeadership: req}})
	if err != nil {
		return nil, err
	}
	return &wire.TransferLeadershipResponse{LeaderId: resp.GetLeader().GetId()}, nil
}

// AcknowledgeAlarms clears the alarms of all nodes shown by Status. Errors are those of AddMember.
func (c Calls) AcknowledgeAlarms(ctx context.Context, req *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) {
	resp, err := Do(ctx, c.client, Admin, &wire.Request{Body: &wire.Request_AcknowledgeAlarms{AcknowledgeAlarms: req}})
	return resp.GetAcknowledgeAlarms(), err
}

// Restore starts a new lineage from a backup, of which the settings, the audit records and the token counter
// survive. It ends all sessions and locks of the cluster. It returns client.ErrFailedPrecondition if
// req.ClusterId is the id of another cluster, or if it is empty and the cluster has been used before. Other
// errors are those of AddMember.
func (c Calls) Restore(ctx context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	resp, err := Do(ctx, c.client, Operate, &wire.Request{Body: &wire.Request_Restore{Restore: req}})
	return resp.GetRestore(), err
}

// ForceRelease takes a hold away from its holder. It returns client.ErrNotHeld, without changing anything,
// unless id and token match the hold. A reason is required. The holder is notified, but the next waiter is
// granted the lock immediately: only fencing tokens keep the old holder away from the protected resource.
// Other errors are those of AddMember.
func (c Calls) ForceRelease(ctx context.Context, req *wire.ForceRelease) (*wire.OperatorResponse, error) {
	return c.operate(ctx, &wire.Request{Body: &wire.Request_ForceRelease{ForceRelease: req}})
}

// Revoke asks the holder to release its hold. With a grace, the hold is forced away when that has passed.
// Errors are those of ForceRelease.
func (c Calls) Revoke(ctx context.Context, req *wire.Revoke) (*wire.OperatorResponse, error) {
	return c.operate(ctx, &wire.Request{Body: &wire.Request_Revoke{Revoke: req}})
}

// SkipDelay ends the lock-delay of a lock. It returns client.ErrNotFound if there is none. Other errors are
// those of AddMember.
func (c Calls) SkipDelay(ctx context.Context, req *wire.SkipDelay) (*wire.OperatorResponse, error) {
	return c.operate(ctx, &wire.Request{Body: &wire.Request_SkipDelay{SkipDelay: req}})
}

// Resize changes the limit of an existing semaphore. It returns client.ErrNotFound if there is no such
// semaphore, and client.ErrFailedPrecondition while a waiter requests more permits than the new limit. Other
// errors are those of AddMember.
func (c Calls) Resize(ctx context.Context, req *wire.Resize) (*wire.OperatorResponse, error) {
	return c.operate(ctx, &wire.Request{Body: &wire.Request_Resize{Resize: req}})
}

// ForceClose ends a session: its holds are forced away and its waits are cancelled. It returns
// client.ErrNotFound if there is no such session. Other errors are those of AddMember.
func (c Calls) ForceClose(ctx context.Context, req *wire.ForceClose) (*wire.OperatorResponse, error) {
	return c.operate(ctx, &wire.Request{Body: &wire.Request_ForceClose{ForceClose: req}})
}

func (c Calls) operate(ctx context.Context, request *wire.Request) (*wire.OperatorResponse, error) {
	resp, err := Do(ctx, c.client, Operate, request)
	if err != nil {
		return nil, err
	}
	result := resp.GetResult()
	return &wire.OperatorResponse{Status: result.GetStatus(), Revision: result.GetRevision(), Message: result.GetMessage()}, nil
}
