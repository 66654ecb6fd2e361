package access

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Source is the node's applied state: the replica, or a fake in tests.
type Source interface {
	// Access returns who may do what. It is immutable, and another one after each change.
	Access() *fsm.Access
	// View calls f with the state, which does not change during the call.
	View(f func(*fsm.Machine))
	// CatchUp waits until a follower has applied what the leader had applied at the call, for a bounded time. It reports
	// whether it has waited: a leader need not.
	CatchUp() bool
}

// Caller is a verified caller. It is safe for concurrent use.
type Caller struct {
	origin *wire.Caller
	source Source
	// denials gets the refusals of its requests.
	denials Denials
	// node is set for another node of the cluster.
	node bool
	// until is when the caller's certificate expires; zero without one.
	until time.Time
	// known are the present rights, checked those at the last Recheck.
	known, checked atomic.Pointer[known]
	// alone is set if the caller had neither a role nor a session at the last Recheck.
	alone atomic.Bool
}

// known are the rights of the caller under one version of the policy.
type known struct {
	access *fsm.Access
	grants *rights.Grants
}

func newCaller(origin *wire.Caller, source Source) *Caller {
	return &Caller{origin: origin, source: source}
}

// Origin returns who the caller is. It is shared and must not be changed.
func (c *Caller) Origin() *wire.Caller { return c.origin }

// Identity returns the caller's identity.
func (c *Caller) Identity() string { return c.origin.GetIdentity() }

// Grants returns what the caller may do under the present policy.
func (c *Caller) Grants() *rights.Grants {
	access := c.source.Access()
	if access.Rights() == nil || c.node {
		return nil // everything, without a look at what is known
	}
	if k := c.known.Load(); k != nil && k.access == access {
		return k.grants
	}
	k := &known{access, access.Rights().Grants(c.Identity())}
	c.known.Store(k)
	return k.grants
}

// NewContext returns a context that carries the caller. The origin is available to packages below the ports as well:
// see package identity.
func NewContext(ctx context.Context, c *Caller) context.Context {
	return identity.NewContext(context.WithValue(ctx, callerKey{}, c), c.origin)
}

type callerKey struct{}

// Of returns the caller of a request. It panics for a context without one: the port has not authenticated it.
func Of(ctx context.Context) *Caller { return ctx.Value(callerKey{}).(*Caller) }
