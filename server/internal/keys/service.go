package keys

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var (
	// ErrNoLeader is returned when no leader was found in time. Nothing was executed.
	ErrNoLeader = errors.New("nothing was done: the cluster has no leader that this node can reach; try again")
	// ErrUnknown is returned when a request may have been executed, and no leader that could say so was found in time.
	ErrUnknown = errors.New("the outcome is unknown: the leader was lost before it answered")
)

// RefusedError is returned when the leader, or this node, refuses to answer a read.
type RefusedError struct{ Result *wire.Result }

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%v: %s", e.Result.GetStatus(), wire.PrintableLine(e.Result.GetMessage()))
}

// Config configures a Service.
type Config struct {
	// NodeID is the node's --id.
	NodeID string
	// Replica is the node.
	Replica any
	// Buffers bounds the memory of the requests. nil means unbounded.
	Buffers *budget.Budget
	// Logger receives messages.
	Logger hclog.Logger
	// Registry receives the metrics.
	Registry prometheus.Registerer
}

// Service executes nothing yet.
type Service struct{}

// New returns a Service.
func New(Config) *Service { return &Service{} }

// Close stops it.
func (*Service) Close() {}

// Change returns ErrNoLeader.
func (*Service) Change(context.Context, identity.Sender, *wire.ChangeKeys) (*wire.Result, error) {
	return nil, ErrNoLeader
}

// AddTTL returns ErrNoLeader.
func (*Service) AddTTL(context.Context, identity.Sender, *wire.ChangeKeys) (*wire.Result, error) {
	return nil, ErrNoLeader
}

// Read returns ErrNoLeader.
func (*Service) Read(context.Context, ...string) ([]*wire.KeyState, error) { return nil, ErrNoLeader }

// Lock returns ErrNoLeader.
func (*Service) Lock(context.Context, identity.Sender, *wire.OpenLease) (*wire.Result, error) {
	return nil, ErrNoLeader
}

// Voters returns ErrNoLeader.
func (*Service) Voters(context.Context) (int, error) { return 0, ErrNoLeader }

// Leader returns nothing.
func (*Service) Leader() (id string, here bool) { return "", false }
