package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/lease"
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

// Replica is the node: [replica.Replica], which documents the methods, or a fake in tests.
type Replica interface {
	lease.Node
	ProposeAll(all []groupcommit.Proposal)
	Prove(done func(*wire.Result))
	Remaining(session uint64) (time.Duration, bool)
	Serving() bool
	Leader() *wire.LeaderHint
	OnLeader(f func(*wire.LeaderHint)) (cancel func())
	OpenKeys(ctx context.Context, leader *wire.LeaderHint) (net.Conn, error)
	OnKeys(accept func(from string, conn net.Conn)) (cancel func())
	VotersInContact(ctx context.Context) int
	Boot() uint64
}

// Config configures a Service. A field that has a default takes it if it is zero.
type Config struct {
	// NodeID is the node's --id.
	NodeID  string
	Replica Replica
	// Leases acquires leases for all ports of the node; if nil, New creates its own.
	Leases *lease.Service
	// Wait bounds how long a request waits for a leader. Default: 3 s.
	Wait time.Duration
	// MaxInFlight bounds the requests in flight; acquires that wait may be half of them. Default: 4,096.
	MaxInFlight int
	// Buffers bounds the memory of the connections between nodes and of the requests on them. nil means unbounded.
	Buffers  *budget.Budget
	Logger   hclog.Logger
	Registry prometheus.Registerer
}

func (c Config) withDefaults() Config {
	c.Wait = cmp.Or(c.Wait, 3*time.Second)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 4_096)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// retryInterval is the pause before a request is repeated that a leader did not execute.
const retryInterval = 20 * time.Millisecond

// Service executes the requests of the Redis port. It is safe for concurrent use.
type Service struct {
	cfg      Config
	executor *executor
	router   *router
	window   *window
	metrics  *metrics

	// requests are those in flight, waits the acquires among them that may wait.
	requests, waits atomic.Int64

	// life ends when the service stops.
	life   context.Context
	cancel context.CancelFunc
	leave  func() // ends OnKeys

	mu       sync.Mutex // guards closed, inbounds, and running against its Wait
	closed   bool
	inbounds map[string]*inbound // the latest link of each node
	running  sync.WaitGroup
	releases sync.WaitGroup
}

// New starts a Service. The caller must call Close.
func New(cfg Config) *Service {
	cfg = cfg.withDefaults()
	s := &Service{cfg: cfg, inbounds: map[string]*inbound{}, window: newWindow(cfg.Replica.Boot())}
	s.life, s.cancel = context.WithCancel(context.Background())
	s.metrics = newMetrics(cfg.Registry, &s.requests)
	s.executor = newExecutor(cfg)
	s.router = newRouter(cfg, s.metrics)
	s.running.Go(func() { s.executor.warnOfQuorums(s.life) })
	s.running.Go(func() { s.router.run(s.life) })
	s.leave = cfg.Replica.OnKeys(s.accept)
	return s
}

// Close ends all connections between nodes and waits for what runs. Requests that are still in flight get an error.
// Call it after the port has closed.
func (s *Service) Close() {
	s.leave()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.releases.Wait() // each takes at most as long as a request
	s.executor.leases.Close()
	s.cancel()
	s.running.Wait()
}

// spawn runs f unless the service is closing, and reports whether it does.
func (s *Service) spawn(group *sync.WaitGroup, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	group.Go(f)
	return true
}

// Leader returns the id of the leader, empty if none is known, and whether that is this node.
func (s *Service) Leader() (id string, here bool) {
	if s.cfg.Replica.Serving() {
		return s.cfg.NodeID, true
	}
	return s.cfg.Replica.Leader().GetId(), false
}

func refusal(status wire.Status_Code, message string) *wire.Result {
	return &wire.Result{Status: status, Message: message}
}

// enter takes a place among requests in flight. The result is a refusal if there is none.
func enter(taken *atomic.Int64, most int, what string) (leave func(), refused *wire.Result) {
	if taken.Add(1) > int64(most) {
		taken.Add(-1)
		return nil, refusal(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("%d %s of the Redis port are in flight at this node, which is the limit: try again later", most, what))
	}
	return func() { taken.Add(-1) }, nil
}
