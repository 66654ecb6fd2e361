package admin

import (
	"context"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// ContentionOrder says which of two contended locks is listed first.
type ContentionOrder int32

// The orders.
const (
	// ByQueueLength lists the lock with the most waiters first.
	ByQueueLength ContentionOrder = 0
	// ByOldestWait lists the lock with the longest wait first.
	ByOldestWait ContentionOrder = 1
)

// Contention describes the locks that are waited for.
type Contention struct {
	// Locks are the most contended ones. Locks that are equally contended are sorted by name.
	Locks []ContendedLock
	// Total is the number of locks with the prefix that are waited for, as far as the caller may read them.
	Total    uint64 `field:"contended"`
	Revision uint64
}

// ContendedLock is a lock that is waited for.
type ContendedLock struct {
	Name        string
	QueueLength uint64
	// HolderCount is 0 if a lock-delay keeps the lock closed.
	HolderCount uint64
	// Holder is the one with the lowest token; nil if there is none.
	Holder *Holder
	// Oldest is the wait that began first.
	Oldest Waiter
}

// Contended returns the most contended locks whose names start with prefix, at most limit, which may be 1 to 1,000, or 0
// for 100. There may be fewer than that, to stay within the size of an answer.
func (c *Client) Contended(ctx context.Context, prefix string, order ContentionOrder, limit uint32, opts ...ReadOption) (Contention, error) {
	found, err := c.calls.ListContended(ctx, &wire.ListContendedRequest{
		Prefix: prefix, Order: wire.ListContendedRequest_Order(order), Limit: limit, Stale: stale(opts),
	})
	if err != nil {
		return Contention{}, err
	}
	return convert[Contention](found), nil
}

// SessionClaims is a session with what it holds and waits for.
type SessionClaims struct {
	// Session counts all its holds and waits, if the session is the caller's own or the caller may read all locks. For
	// other callers, it counts those that the caller may read.
	Session Session
	// Holds and Waits may contain fewer than the session has: at most 1,000 of each, and only of locks that the caller may
	// read.
	Holds    []SessionHold
	Waits    []SessionWait
	Revision uint64
}

// SessionHold is a hold of a session.
type SessionHold struct {
	Hold Holder
	// Name is the first of its locks that the caller may read.
	Name string
}

// SessionWait is a request of a session that waits.
type SessionWait struct {
	// Wait has the position in the queue of the lock called Name.
	Wait Waiter
	// Name is the first of its locks that the caller may read.
	Name string
}

// Session returns one session with what it holds and waits for. It returns client.ErrNotFound if there is no such session,
// or if the caller may not see it: it is not the caller's own, and the caller may read none of its locks.
func (c *Client) Session(ctx context.Context, id uint64, opts ...ReadOption) (SessionClaims, error) {
	found, err := c.calls.GetSession(ctx, &wire.GetSessionRequest{SessionId: id, Stale: stale(opts)})
	if err != nil {
		return SessionClaims{}, err
	}
	return convert[SessionClaims](found), nil
}
