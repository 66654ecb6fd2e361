package top

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Source is what the screen needs of a cluster.
type Source interface {
	// Status returns the state of the cluster. If stale is set, any node answers, even without a leader.
	Status(ctx context.Context, stale bool) (*wire.StatusResponse, error)
	// Samples returns how many locks were granted in the last ten minutes, oldest first.
	Samples(ctx context.Context) (Samples, error)
	// Contended returns the locks that are waited for, in order.
	Contended(context.Context, Query) (*wire.ListContendedResponse, error)
	// Lock returns one lock, or client.ErrNotFound if nobody holds it or waits for it.
	Lock(ctx context.Context, name string) (*wire.GetLockResponse, error)
	// Sessions returns at most limit sessions, and whether there are more.
	Sessions(ctx context.Context, limit int) (sessions []*wire.SessionInfo, more bool, err error)
	// Session returns one session, or client.ErrNotFound.
	Session(ctx context.Context, id uint64) (*wire.GetSessionResponse, error)
	// Deadlocks returns the cycles of owners that wait for each other. It costs the cluster as much as there are waits.
	Deadlocks(ctx context.Context) ([]*wire.Deadlock, error)
	// Watch starts a watch of all events from now on.
	Watch() Watch
}

// Watch returns events in order. Its first batch reports that it has started.
type Watch interface {
	// Next waits for events. Its error is final unless it is that of ctx.
	Next(context.Context) (wirecall.Batch, error)
	Close()
}

// Order is an order of locks.
type Order int

// The orders of locks.
const (
	ByQueue  Order = iota // the longest queue first
	ByOldest              // the oldest wait first
)

// Query selects locks that are waited for.
type Query struct {
	Prefix string
	Order  Order
	Limit  int
}

// Samples are the numbers of grants in consecutive intervals, the last of which has just ended.
type Samples struct {
	Interval time.Duration
	Grants   []uint64
}
