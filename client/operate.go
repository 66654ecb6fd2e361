package client

import (
	"context"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// VerifyToken says whether that token holds the lock now: linearizably, as of some
// moment between the call and its return. It tells a resource which cannot compare
// tokens by itself; what is true then may be over when the answer arrives.
func (c *Client) VerifyToken(ctx context.Context, name string, token uint64) (bool, error) {
	k := c.newRead(false)
	k.request.Body = &wire.Request_VerifyToken{VerifyToken: &wire.VerifyTokenRequest{Name: name, Token: token}}
	err := c.readOnce(ctx, k)
	return err == nil && k.response.GetVerifyToken().GetHeld(), err
}

// ListDeadlocks lists the cycles of owners that wait for each other: those that
// AllowDeadlock let in, and those that a resized semaphore closed.
func (c *Client) ListDeadlocks(ctx context.Context, req *wire.ListDeadlocksRequest) (*wire.ListDeadlocksResponse, error) {
	k := c.newRead(req.GetStale())
	k.request.Body = &wire.Request_ListDeadlocks{ListDeadlocks: req}
	err := c.readOnce(ctx, k)
	return k.response.GetListDeadlocks(), err
}

// ListAudit lists what operators did, newest first, in pages.
func (c *Client) ListAudit(ctx context.Context, req *wire.ListAuditRequest) (*wire.ListAuditResponse, error) {
	k := c.newRead(req.GetStale())
	k.request.Body = &wire.Request_ListAudit{ListAudit: req}
	err := c.readOnce(ctx, k)
	return k.response.GetListAudit(), err
}

// ForceRelease takes a hold away from its holder, if id and token are its own, else it
// returns ErrNotHeld and nothing has changed. A reason must be given. The holder is told,
// but whoever waits is granted the lock at once: only tokens keep the old holder off what
// the lock protects. If the connection breaks meanwhile the error matches ErrUncertain.
func (c *Client) ForceRelease(ctx context.Context, req *wire.ForceRelease) (*wire.OperatorResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_ForceRelease{ForceRelease: req}
	return c.operate(ctx, k)
}

// Revoke asks the holder for its hold and, with a grace, forces it away once that has
// passed. Errors are ForceRelease's.
func (c *Client) Revoke(ctx context.Context, req *wire.Revoke) (*wire.OperatorResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_Revoke{Revoke: req}
	return c.operate(ctx, k)
}

// SkipDelay opens what a lock-delay keeps closed, or returns ErrNotFound if there is
// none. If the connection breaks meanwhile the error matches ErrUncertain.
func (c *Client) SkipDelay(ctx context.Context, req *wire.SkipDelay) (*wire.OperatorResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_SkipDelay{SkipDelay: req}
	return c.operate(ctx, k)
}

// Resize gives a live semaphore another limit. It returns ErrNotFound if there is no such
// semaphore, and ErrFailedPrecondition while somebody waits for more than the limit. If
// the connection breaks meanwhile the error matches ErrUncertain.
func (c *Client) Resize(ctx context.Context, req *wire.Resize) (*wire.OperatorResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_Resize{Resize: req}
	return c.operate(ctx, k)
}

// Restore begins a new history from what outlives a backup. It returns
// ErrFailedPrecondition unless no session is open and no lock exists. If the connection
// breaks meanwhile the error matches ErrUncertain.
func (c *Client) Restore(ctx context.Context, req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
	k := c.newOperation()
	k.request.Body = &wire.Request_Restore{Restore: req}
	err := c.readOnce(ctx, k)
	return k.response.GetRestore(), err
}

func (c *Client) newOperation() *call {
	return &call{kind: kindOperate, done: c.spare.done()}
}

func (c *Client) operate(ctx context.Context, k *call) (*wire.OperatorResponse, error) {
	if err := c.readOnce(ctx, k); err != nil {
		return nil, err
	}
	result := k.response.GetResult()
	return &wire.OperatorResponse{Status: result.GetStatus(), Revision: result.GetRevision(), Message: result.GetMessage()}, nil
}
