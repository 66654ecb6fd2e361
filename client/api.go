package client

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

var errSoon = errors.New("quorumlock: not yet built")

// Client is one connection to the cluster.
type Client struct{ cfg Config }

// New checks cfg; it connects when it is first used.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Client{cfg: cfg}, nil
}

// Close ends the connection and every goroutine of the client.
func (c *Client) Close() error { return nil }

// NewSession opens a session.
func (c *Client) NewSession(ctx context.Context, opts SessionOptions) (*Session, error) {
	return nil, errSoon
}

// ListLocks lists locks.
func (c *Client) ListLocks(ctx context.Context, req *wire.ListLocksRequest) (*wire.ListLocksResponse, error) {
	return nil, errSoon
}

// GetLock shows one lock.
func (c *Client) GetLock(ctx context.Context, req *wire.GetLockRequest) (*wire.GetLockResponse, error) {
	return nil, errSoon
}

// ListSessions lists sessions.
func (c *Client) ListSessions(ctx context.Context, req *wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) {
	return nil, errSoon
}

// Status shows the cluster.
func (c *Client) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	return nil, errSoon
}

// AddMember adds a node.
func (c *Client) AddMember(ctx context.Context, req *wire.AddMemberRequest) (*wire.AddMemberResponse, error) {
	return nil, errSoon
}

// RemoveMember removes a node.
func (c *Client) RemoveMember(ctx context.Context, req *wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error) {
	return nil, errSoon
}

// TransferLeadership hands leadership over.
func (c *Client) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) (*wire.TransferLeadershipResponse, error) {
	return nil, errSoon
}

// Session is a life on the cluster.
type Session struct{ client *Client }

// ID names the session on the cluster.
func (s *Session) ID() uint64 { return 0 }

// TTL is the effective TTL.
func (s *Session) TTL() time.Duration { return 0 }

// State is the present state.
func (s *Session) State() State { return Lost }

// StateChanges carries the latest state; it is closed after Lost.
func (s *Session) StateChanges() <-chan State { return nil }

// Lost is closed when the session is lost.
func (s *Session) Lost() <-chan struct{} { return nil }

// Err is the reason once the session is lost, and nil before.
func (s *Session) Err() error { return nil }

// Remaining is the time to the session's deadline unless a heartbeat is acknowledged.
func (s *Session) Remaining() time.Duration { return 0 }

// Close releases everything and ends the session.
func (s *Session) Close(ctx context.Context) error { return errSoon }

// Lock waits for the lock as long as ctx allows.
func (s *Session) Lock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	return nil, errSoon
}

// TryLock takes the lock if it is free, else ErrNotAcquired.
func (s *Session) TryLock(ctx context.Context, name string, opts ...LockOption) (*Hold, error) {
	return nil, errSoon
}

// LockTimeout waits at most wait, as the leader counts it, else ErrTimeout.
func (s *Session) LockTimeout(ctx context.Context, name string, wait time.Duration, opts ...LockOption) (*Hold, error) {
	return nil, errSoon
}

// Do calls fn while holding the lock.
func (s *Session) Do(ctx context.Context, name string, fn func(ctx context.Context, token uint64) error, opts ...LockOption) error {
	return errSoon
}

// Hold is one lock held.
type Hold struct{ session *Session }

// Name is the lock's name.
func (h *Hold) Name() string { return "" }

// ID names the hold on the cluster.
func (h *Hold) ID() uint64 { return 0 }

// Token is the fencing token.
func (h *Hold) Token() uint64 { return 0 }

// Revision is the revision of the grant.
func (h *Hold) Revision() uint64 { return 0 }

// Context is cancelled, with the reason as cause, when the hold ends.
func (h *Hold) Context() context.Context { return context.Background() }

// Lost is closed when the hold ended other than by Unlock.
func (h *Hold) Lost() <-chan struct{} { return nil }

// Remaining is the time to the session's deadline.
func (h *Hold) Remaining() time.Duration { return 0 }

// Unlock releases the hold.
func (h *Hold) Unlock(ctx context.Context) error { return errSoon }

// SetValue replaces the hold's value.
func (h *Hold) SetValue(ctx context.Context, value []byte) error { return errSoon }
