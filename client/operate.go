package client

import (
	"context"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// VerifyToken reports whether the token holds the lock. The answer is linearizable: it was true at some
// moment between the call and its return. VerifyToken is for resources that cannot compare tokens
// themselves; the answer may be outdated when it arrives.
func (c *Client) VerifyToken(ctx context.Context, name string, token uint64) (bool, error) {
	k := c.newRead(false)
	k.request.Body = &wire.Request_VerifyToken{VerifyToken: &wire.VerifyTokenRequest{Name: name, Token: token}}
	err := c.readOnce(ctx, k)
	return err == nil && k.response.GetVerifyToken().GetHeld(), err
}

// ListDeadlocks lists the cycles of owners that wait for each other. Such cycles exist because
// AllowDeadlock admitted them or because resizing a semaphore closed them.
func (c *Client) ListDeadlocks(ctx context.Context, req *wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, error) {
	k := c.newRead(req.GetStale())
	k.request.Body = &wire.Request_ListDeadlocks{ListDeadlocks: req}
	err := c.readOnce(ctx, k)
	return k.response.GetListDeadlocks(), err
}

// ListAudit lists operator actions, newest first, in pages.
func (c *Client) ListAudit(ctx context.Context, req *wire.ListAuditRequest) (*wire.ListAuditResponse, error) {
	k := c.newRead(req.GetStale())
	k.request.Body = &wire.Request_ListAudit{ListAudit: req}
	err := c.readOnce(ctx, k)
	return k.response.GetListAudit(), err
}

// ForceRelease takes a hold away from its holder. It returns ErrNotHeld, without changing anything, unless
// id and token match the hold. A reason is required. The holder is notified, but the next waiter is granted
// the lock immediately: only fencing tokens keep the old holder away from the protected resource. If the
// connection breaks in the meantime, the error matches ErrUncertain.
func (c *Client) ForceRelease(ctx context.Context, req *wire.ForceRelease) (*wire.OperatorResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_ForceRelease{ForceRelease: req}
	return c.operate(ctx, k)
}

// Revoke asks the holder to release its hold. With a grace, the hold is forced away when that has passed.
// Errors are those of ForceRelease.
func (c *Client) Revoke(ctx context.Context, req *wire.Revoke) (*wire.OperatorResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_Revoke{Revoke: req}
	return c.operate(ctx, k)
}

// SkipDelay ends the lock-delay of a lock. It returns ErrNotFound if there is none. If the connection
// breaks in the meantime, the error matches ErrUncertain.
func (c *Client) SkipDelay(ctx context.Context, req *wire.SkipDelay) (*wire.OperatorResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_SkipDelay{SkipDelay: req}
	return c.operate(ctx, k)
}

// Resize changes the limit of an existing semaphore. It returns ErrNotFound if there is no such semaphore,
// and ErrFailedPrecondition while a waiter requests more permits than the new limit. If the connection
// breaks in the meantime, the error matches ErrUncertain.
func (c *Client) Resize(ctx context.Context, req *wire.Resize) (*wire.OperatorResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_Resize{Resize: req}
	return c.operate(ctx, k)
}

// Restore starts a new lineage from a backup, of which the settings, the audit records and the token
// counter survive. It ends all sessions and locks of the cluster. It returns ErrFailedPrecondition if
// req.ClusterId is the id of another cluster, or if it is empty and the cluster has been used before. If
// the connection breaks in the meantime, the error matches ErrUncertain.
func (c *Client) Restore(ctx context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_Restore{Restore: req}
	err := c.readOnce(ctx, k)
	return k.response.GetRestore(), err
}

func (c *Client) newOperation() *call {
	return &call{kind: kindOperate, done: c.freeLists.done()}
}

func (c *Client) operate(ctx context.Context, k *call) (*wire.OperatorResponse, error) {
	if err := c.readOnce(ctx, k); err != nil {
		return nil, err
	}
	result := k.response.GetResult()
	return &wire.OperatorResponse{Status: result.GetStatus(), Revision: result.GetRevision(), Message: result.GetMessage()}, nil
}
