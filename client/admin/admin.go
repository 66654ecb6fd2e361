package admin

import (
	"context"
	"iter"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Client makes an operator's calls over the connection of a [client.Client].
type Client struct{ calls wirecall.Calls }

// New returns a Client that uses the connection of c.
func New(c *client.Client) *Client { return &Client{wirecall.Of(c)} }

// ReadOption configures a read.
type ReadOption func(*read)

type read struct{ stale bool }

// Stale lets any node answer, from a state that may lag behind, even without a leader.
func Stale() ReadOption { return func(r *read) { r.stale = true } }

func stale(opts []ReadOption) bool {
	var r read
	for _, opt := range opts {
		opt(&r)
	}
	return r.stale
}

// Lock returns one lock with its holders and its queue. It returns client.ErrNotFound if the lock has neither
// holders nor waiters.
func (c *Client) Lock(ctx context.Context, name string, opts ...ReadOption) (Lock, error) {
	lock, err := c.calls.GetLock(ctx, &wire.GetLockRequest{Name: name, Stale: stale(opts)})
	if err != nil {
		return Lock{}, err
	}
	return convert[Lock](lock), nil
}

// Locks returns the locks whose names start with prefix, ordered by name. Each contains at most ten of its
// waiters. The pages of the list are read one after the other and are not from a single moment.
func (c *Client) Locks(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[Lock, error] {
	return c.list(ctx, &wire.ListLocksRequest{Prefix: prefix, Stale: stale(opts)})
}

// Elections returns the locks among these that are held exclusively with a value, as by the leader of an election, like
// Locks.
func (c *Client) Elections(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[Lock, error] {
	return c.list(ctx, &wire.ListLocksRequest{Prefix: prefix, Elections: true, Stale: stale(opts)})
}

func (c *Client) list(ctx context.Context, req *wire.ListLocksRequest) iter.Seq2[Lock, error] {
	return pages(func(token string) ([]Lock, string, error) {
		page, err := c.calls.ListLocks(ctx, &wire.ListLocksRequest{
			Prefix: req.Prefix, PageToken: token, Stale: req.Stale, Elections: req.Elections,
		})
		return convertAll[Lock](page.GetLocks()), page.GetNextPageToken(), err
	})
}

// Sessions returns the live sessions, ordered by id, like Locks.
func (c *Client) Sessions(ctx context.Context, opts ...ReadOption) iter.Seq2[Session, error] {
	return pages(func(token string) ([]Session, string, error) {
		page, err := c.calls.ListSessions(ctx, &wire.ListSessionsRequest{PageToken: token, Stale: stale(opts)})
		return convertAll[Session](page.GetSessions()), page.GetNextPageToken(), err
	})
}

// Audit returns the actions of operators, newest first, like Locks.
func (c *Client) Audit(ctx context.Context, opts ...ReadOption) iter.Seq2[AuditRecord, error] {
	return pages(func(token string) ([]AuditRecord, string, error) {
		page, err := c.calls.ListAudit(ctx, &wire.ListAuditRequest{PageToken: token, Stale: stale(opts)})
		return convertAll[AuditRecord](page.GetRecords()), page.GetNextPageToken(), err
	})
}

// pages joins the pages of a list. An error ends it.
func pages[T any](read func(token string) (page []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := ""; ; {
			page, next, err := read(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}

// Deadlocks returns the cycles of owners that wait for each other. They exist because client.AllowDeadlock
// admitted them or because resizing a semaphore closed them.
func (c *Client) Deadlocks(ctx context.Context, opts ...ReadOption) ([]Deadlock, error) {
	found, err := c.calls.ListDeadlocks(ctx, &wire.ListDeadlocksRequest{Stale: stale(opts)})
	return convertAll[Deadlock](found.GetDeadlocks()), err
}

// Status returns the state of the cluster and its nodes.
func (c *Client) Status(ctx context.Context, opts ...ReadOption) (Status, error) {
	status, err := c.calls.Status(ctx, &wire.StatusRequest{Stale: stale(opts)})
	if err != nil {
		return Status{}, err
	}
	return convert[Status](status), nil
}

// By names the operator, the reason and the ticket of an action. The audit log keeps them; a reason is required.
type By struct{ Operator, Reason, Ticket string }

// ForceRelease takes a hold away from its holder. It returns client.ErrNotHeld, without changing anything,
// unless id and token match the hold. The holder is notified, but the next waiter is granted the lock
// immediately: only fencing tokens keep the old holder away from the protected resource. If the connection
// breaks in the meantime, the error matches client.ErrUncertain.
func (c *Client) ForceRelease(ctx context.Context, holdID, token uint64, by By) error {
	_, err := c.calls.ForceRelease(ctx, &wire.ForceRelease{HoldId: holdID, Token: token, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// Revoke asks the holder to release its hold. With a grace, in whole milliseconds, the hold is forced away
// when that has passed. Errors are those of ForceRelease.
func (c *Client) Revoke(ctx context.Context, holdID, token uint64, grace time.Duration, by By) error {
	_, err := c.calls.Revoke(ctx, &wire.Revoke{HoldId: holdID, Token: token, GraceMs: uint32(grace.Milliseconds()), Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// SkipDelay ends the lock-delay that a hold has caused, or all lock-delays of the lock if holdID is 0. It
// returns client.ErrNotFound if there is none. Other errors are those of ForceRelease.
func (c *Client) SkipDelay(ctx context.Context, name string, holdID uint64, by By) error {
	_, err := c.calls.SkipDelay(ctx, &wire.SkipDelay{Name: name, HoldId: holdID, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// Resize changes the limit of an existing semaphore. It returns client.ErrNotFound if there is no such
// semaphore, and client.ErrFailedPrecondition while a waiter requests more permits than the new limit. Other
// errors are those of ForceRelease.
func (c *Client) Resize(ctx context.Context, name string, limit uint64, by By) error {
	_, err := c.calls.Resize(ctx, &wire.Resize{Name: name, Limit: limit, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// ForceClose ends a session: its holds are forced away and its waits are cancelled. Its client is notified. It
// returns client.ErrNotFound if there is no such session. Other errors are those of ForceRelease.
func (c *Client) ForceClose(ctx context.Context, sessionID uint64, by By) error {
	_, err := c.calls.ForceClose(ctx, &wire.ForceClose{SessionId: sessionID, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// CloseSessions ends all sessions and leases of an identity, as ForceClose does. It is no error if there are none.
func (c *Client) CloseSessions(ctx context.Context, identity string, by By) error {
	_, err := c.calls.ForceClose(ctx, &wire.ForceClose{Identity: identity, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// AddMember adds a node, which becomes a voter once it has caught up. If the connection breaks in the
// meantime, the error matches client.ErrUncertain; check Status.
func (c *Client) AddMember(ctx context.Context, id, peerAddr string, by By) error {
	_, err := c.calls.AddMember(ctx, &wire.AddMemberRequest{Id: id, PeerAddr: peerAddr, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// RemoveMember removes a node. Errors are those of AddMember.
func (c *Client) RemoveMember(ctx context.Context, id string, by By) error {
	_, err := c.calls.RemoveMember(ctx, &wire.RemoveMemberRequest{Id: id, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// Drain drains a node: it hands leadership over if it leads, and does not lead until Undrain. It still votes and stores.
// Stop the node once NodeStatus.UnsafeToStop is empty. Drain returns client.ErrFailedPrecondition if no other voter is
// left that may lead. Other errors are those of AddMember.
func (c *Client) Drain(ctx context.Context, id string, by By) error {
	_, err := c.calls.SetDrained(ctx, &wire.SetDrainedRequest{Id: id, Drained: true, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// Undrain allows a drained node to lead again. Errors are those of AddMember.
func (c *Client) Undrain(ctx context.Context, id string, by By) error {
	_, err := c.calls.SetDrained(ctx, &wire.SetDrainedRequest{Id: id, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}

// TransferLeadership transfers leadership to the given node, or to one that the cluster chooses if id is
// empty. It returns the new leader if the old one knew it. Errors are those of AddMember.
func (c *Client) TransferLeadership(ctx context.Context, id string, by By) (leaderID string, err error) {
	resp, err := c.calls.TransferLeadership(ctx, &wire.TransferLeadershipRequest{Id: id, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return resp.GetLeaderId(), err
}

// AcknowledgeAlarms clears the alarms of all nodes shown by Status. Errors are those of AddMember.
func (c *Client) AcknowledgeAlarms(ctx context.Context, by By) error {
	_, err := c.calls.AcknowledgeAlarms(ctx, &wire.AcknowledgeAlarmsRequest{Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
	return err
}
