package client

import (
	"context"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// ListLocks lists locks by prefix, in pages. Unless req.Stale is set, it includes every lock granted before
// the call. With req.Stale it returns what one node knows.
func (c *Client) ListLocks(ctx context.Context, req *wire.ListLocksRequest) (*wire.ListLocksResponse, error) {
	k := c.newRead(req.GetStale())
	k.request.Body = &wire.Request_ListLocks{ListLocks: req}
	err := c.readOnce(ctx, k)
	return k.response.GetListLocks(), err
}

// GetLock returns one lock with its holders and its queue in order. It returns ErrNotFound if the lock has
// neither holders nor waiters.
func (c *Client) GetLock(ctx context.Context, req *wire.GetLockRequest) (*wire.GetLockResponse, error) {
	k := c.newRead(req.GetStale())
	k.request.Body = &wire.Request_GetLock{GetLock: req}
	err := c.readOnce(ctx, k)
	return k.response.GetGetLock(), err
}

// ListSessions lists the live sessions, in pages.
func (c *Client) ListSessions(ctx context.Context, req *wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) {
	k := c.newRead(req.GetStale())
	k.request.Body = &wire.Request_ListSessions{ListSessions: req}
	err := c.readOnce(ctx, k)
	return k.response.GetListSessions(), err
}

// Status returns the state of the cluster and its nodes. With req.Stale any node answers, even without a
// leader.
func (c *Client) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	k := c.newRead(req.GetStale())
	k.request.Body = &wire.Request_Status{Status: req}
	err := c.readOnce(ctx, k)
	return k.response.GetStatus(), err
}

// AddMember adds a node, which becomes a voter once it has caught up. If the connection breaks in the
// meantime, the error matches ErrUncertain; check Status.
func (c *Client) AddMember(ctx context.Context, req *wire.AddMemberRequest) (*wire.AddMemberResponse, error) {
	k := &call{kind: kindAdmin, done: c.freeLists.done()}
	k.request.Body = &wire.Request_AddMember{AddMember: req}
	if err := c.readOnce(ctx, k); err != nil {
		return nil, err
	}
	return &wire.AddMemberResponse{}, nil
}

// RemoveMember removes a node. Errors are those of AddMember.
func (c *Client) RemoveMember(ctx context.Context, req *wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error) {
	k := &call{kind: kindAdmin, done: c.freeLists.done()}
	k.request.Body = &wire.Request_RemoveMember{RemoveMember: req}
	if err := c.readOnce(ctx, k); err != nil {
		return nil, err
	}
	return &wire.RemoveMemberResponse{}, nil
}

// TransferLeadership transfers leadership to the given node, or to one that raft chooses. The response
// names the new leader if the old one knew it. Errors are those of AddMember.
func (c *Client) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error) {
	k := &call{kind: kindAdmin, done: c.freeLists.done()}
	k.request.Body = &wire.Request_TransferLeadership{TransferLeadership: req}
	if err := c.readOnce(ctx, k); err != nil {
		return nil, err
	}
	return &wire.TransferLeadershipResponse{LeaderId: k.response.GetLeader().GetId()}, nil
}

// AcknowledgeAlarms clears the alarms of all nodes shown by Status. Errors are those of AddMember.
func (c *Client) AcknowledgeAlarms(ctx context.Context, req *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error) {
	k := &call{kind: kindAdmin, done: c.freeLists.done()}
	k.request.Body = &wire.Request_AcknowledgeAlarms{AcknowledgeAlarms: req}
	if err := c.readOnce(ctx, k); err != nil {
		return nil, err
	}
	return k.response.GetAcknowledgeAlarms(), nil
}

func (c *Client) newRead(stale bool) *call {
	return &call{kind: kindRead, stale: stale, done: c.freeLists.done()}
}

// readOnce makes a call that does not belong to a session.
func (c *Client) readOnce(ctx context.Context, k *call) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.call(ctx, k)
}

// bounded applies the client's RequestTimeout to a ctx without a deadline.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || c.cfg.RequestTimeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.RequestTimeout)
}

// call sends a request and waits for its answer.
func (c *Client) call(ctx context.Context, k *call) error {
	if err := checkTexts(&k.request); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return stopped(ctx, nil)
	}
	c.mu.Lock()
	if c.closed {
		c.unlock()
		return ErrClientClosed
	}
	c.submit(k)
	c.unlock()
	return c.await(ctx, k)
}

// await waits for an answer as long as ctx allows.
func (c *Client) await(ctx context.Context, k *call) error {
	done := k.done
	select {
	case <-done:
		c.freeLists.dones.Put(done)
		return k.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.unlock()
	if k.finished {
		<-done
		c.freeLists.dones.Put(done)
		return k.err
	}
	k.abandoned, k.done = true, nil
	return stopped(ctx, c.abandon(k))
}

// abandon handles a call whose caller has left. It returns the error that the caller gets in addition to
// its ctx's error.
func (c *Client) abandon(k *call) error {
	switch {
	case !k.uncertain():
		known := c.unreached()
		c.finish(k)
		return known
	case k.kind == kindRead:
		c.finish(k)
		return &StatusError{wire.Status_UNAVAILABLE, "no answer from the leader"}
	case k.kind == kindAdmin, k.kind == kindOperate, k.kind == kindLease, k.kind == kindLeased:
		c.finish(k)
	}
	return ErrUncertain
}

// unreached returns why a request was never executed, or nil if that was not for lack of a leader.
func (c *Client) unreached() error {
	switch {
	case c.conn != nil && c.conn.leads:
		return nil
	case c.conn != nil:
		return &StatusError{wire.Status_UNAVAILABLE, "the cluster has no leader"}
	case c.lastErr != nil:
		return &StatusError{wire.Status_UNAVAILABLE, c.lastErr.Error()}
	}
	return &StatusError{wire.Status_UNAVAILABLE, "no node reached yet"}
}

// awaitOver waits for a call that may have several waiters and continues after they leave.
func (c *Client) awaitOver(ctx context.Context, k *call) error {
	select {
	case <-k.over:
		return k.err
	default:
	}
	select {
	case <-k.over:
		return k.err
	case <-ctx.Done():
		return stopped(ctx, ErrUncertain)
	}
}
