package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/budget"
	"github.com/quorumlock/quorumlock/server/fairqueue"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ClientAuth says what the port asks of a caller's certificate. The health paths
// are exempt from all of it.
type ClientAuth string

// What the port asks of callers.
const (
	// AuthRequire refuses callers without a certificate of the port's CA.
	AuthRequire ClientAuth = "require"
	// AuthOptional checks a certificate where one is shown.
	AuthOptional ClientAuth = "optional"
	// AuthNone asks for none.
	AuthNone ClientAuth = "none"
)

// Replica is what the port needs of the node. All methods may be called by many
// goroutines at once, and no callback may block.
type Replica interface {
	// ProposeFrom has a command that came over a connection applied and calls done exactly
	// once. NOT_LEADER and UNAVAILABLE mean not executed, UNCERTAIN unknown.
	ProposeFrom(connection any, cmd *wire.Command, done func(*wire.Result))
	// Prove answers OK once an entry proposed after the call is applied here.
	Prove(done func(*wire.Result))
	// Heartbeat answers OK on proof of leadership newer than the call.
	Heartbeat(session uint64, done func(*wire.Result))
	// Await calls done with the final outcome of a request that is QUEUED, or about to
	// be; UNCERTAIN if this node ceases to lead before.
	Await(session, seq uint64, done func(*wire.Result)) (cancel func())
	// View runs f on the applied state; f must be short and change nothing.
	View(f func(*fsm.Machine))
	// Fork is the applied state, for longer reads.
	Fork() *fsm.Machine
	// Leader is the leader that the node knows, empty if none.
	Leader() *wire.LeaderHint
	// LeaderHTTP is the leader's advertised HTTP address, host:port.
	LeaderHTTP() string
	// Serving tells whether this node leads and may answer.
	Serving() bool
	// HeartbeatAge is the time since the session's last sign of life; leader only.
	HeartbeatAge(session uint64) (time.Duration, bool)
	// Remaining is how long the session lives unless it is heard of again; leader only.
	Remaining(session uint64) (time.Duration, bool)
	// HoldRemaining is what a hold's own deadline leaves it; leader only.
	HoldRemaining(hold uint64) (time.Duration, bool)
	// DelayRemaining is what is left of the lock-delay of an ended hold; leader only.
	DelayRemaining(hold uint64) (time.Duration, bool)
	// Watch sends events, at the pace of send, until a last word or ctx ends.
	Watch(ctx context.Context, req *wire.WatchRequest, send func(*wire.WatchResponse) error) error
	// SaveSnapshot writes the whole state; leader only.
	SaveSnapshot(context.Context, *wire.SaveSnapshotRequest, io.Writer) error
	// SaveStaleSnapshot writes what this node alone knows, and describes it before.
	SaveStaleSnapshot(context.Context, *wire.SaveSnapshotRequest, func(*wire.StaleSnapshot) error, io.Writer) error
	// Restore begins a new history; leader only.
	Restore(context.Context, *wire.RestoreRequest) (*wire.RestoreResponse, error)
	// Status describes the cluster as this node sees it.
	Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error)
	// AddMember, RemoveMember and TransferLeadership change the cluster; leader only.
	AddMember(context.Context, *wire.AddMemberRequest) error
	RemoveMember(context.Context, *wire.RemoveMemberRequest) error
	TransferLeadership(context.Context, *wire.TransferLeadershipRequest) error
	// AcknowledgeAlarms ends the alarms of all nodes; leader only.
	AcknowledgeAlarms(context.Context, *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error)
}

// Config is everything about the port. Zero fields of Limits take their defaults.
type Config struct {
	// NodeID is the node's --id.
	NodeID string
	// Replica is the node.
	Replica Replica
	// TLS protects the port, and requests sent on to the leader; zero is plaintext.
	TLS transport.TLSFiles
	// ClientAuth is what callers must show; empty is AuthNone. Without TLS only
	// AuthNone makes sense.
	ClientAuth ClientAuth
	// Network reaches the leader; nil is TCP.
	Network transport.Network
	// Logger gets what the port has to say; nil is silence.
	Logger hclog.Logger
	// Registry is shown at /metrics and gets the port's own metrics; nil makes one.
	Registry *prometheus.Registry
	// Queues are the node's, for reads and status; nil makes some.
	Queues *fairqueue.Queues
	// Buffers is the node's budget for what callers make it hold for a while; nil is no bound.
	Buffers *budget.Budget
	// Limits bound what callers can make the node hold.
	Limits Limits
}

// Limits bound one node's dealings with HTTP callers.
type Limits struct {
	// MaxConnections at once, of those that have brought a request; one more is told so and
	// closed, unless it asks for health.
	MaxConnections int
	// MaxHandshakes bounds the connections that have not brought a request yet, and half of it
	// those of one address; beyond it the oldest is cut.
	MaxHandshakes int
	// MaxRequests under way at once, waiting acquires included.
	MaxRequests int
	// MaxBodyBytes of one request, before and after decompression.
	MaxBodyBytes int
	// MaxHeaderBytes of one request's line and headers together.
	MaxHeaderBytes int
	// HeaderTimeout is how long a request's headers, and a TLS handshake, may take.
	HeaderTimeout time.Duration
	// BodyTimeout is how long a request's body may take.
	BodyTimeout time.Duration
	// WriteTimeout is how long a caller may take to read one piece of an answer.
	WriteTimeout time.Duration
	// IdleTimeout closes a connection without a request.
	IdleTimeout time.Duration
	// MaxWatchesPerConnection bounds the watches of one caller's connection.
	MaxWatchesPerConnection int
	// WatchTimeout is how long a caller may leave an answer of a watch unread.
	WatchTimeout time.Duration
	// LeaderWait is how long a request waits for a leader to send it to.
	LeaderWait time.Duration
	// RetryGrace is how long an acquire whose caller has gone is kept for a retry,
	// before it is cancelled. Negative cancels at once.
	RetryGrace time.Duration
}

// DefaultLimits are the limits that a zero field takes.
func DefaultLimits() Limits {
	return Limits{
		MaxConnections:          4_096,
		MaxHandshakes:           handshake.DefaultMax,
		MaxRequests:             16_384,
		MaxBodyBytes:            64 << 10,
		MaxHeaderBytes:          16 << 10,
		HeaderTimeout:           10 * time.Second,
		BodyTimeout:             10 * time.Second,
		WriteTimeout:            30 * time.Second,
		IdleTimeout:             2 * time.Minute,
		MaxWatchesPerConnection: 16,
		WatchTimeout:            5 * time.Minute,
		LeaderWait:              3 * time.Second,
		RetryGrace:              3 * time.Second,
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	fill(&l.MaxConnections, d.MaxConnections)
	fill(&l.MaxHandshakes, d.MaxHandshakes)
	fill(&l.MaxRequests, d.MaxRequests)
	fill(&l.MaxBodyBytes, d.MaxBodyBytes)
	fill(&l.MaxHeaderBytes, d.MaxHeaderBytes)
	fill(&l.HeaderTimeout, d.HeaderTimeout)
	fill(&l.BodyTimeout, d.BodyTimeout)
	fill(&l.WriteTimeout, d.WriteTimeout)
	fill(&l.IdleTimeout, d.IdleTimeout)
	fill(&l.MaxWatchesPerConnection, d.MaxWatchesPerConnection)
	fill(&l.WatchTimeout, d.WatchTimeout)
	fill(&l.LeaderWait, d.LeaderWait)
	fill(&l.RetryGrace, d.RetryGrace)
	return l
}

// fill gives a field its default where it was left out.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	fill(&c.ClientAuth, AuthNone)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

// ErrConfig is returned by [New] for a Config that makes no sense; the message says
// what to change.
var ErrConfig = errors.New("web: bad configuration")

func (c Config) validate() error {
	switch {
	case c.Replica == nil:
		return fmt.Errorf("%w: Replica is missing", ErrConfig)
	case c.NodeID == "":
		return fmt.Errorf("%w: NodeID is missing", ErrConfig)
	}
	switch c.ClientAuth {
	case AuthNone:
	case AuthRequire, AuthOptional:
		if c.TLS.IsZero() {
			return fmt.Errorf("%w: client auth %s needs TLS: give a certificate or set none", ErrConfig, c.ClientAuth)
		}
	default:
		return fmt.Errorf("%w: client auth %q: choose require, optional or none", ErrConfig, c.ClientAuth)
	}
	return c.Limits.validate()
}

func (l Limits) validate() error {
	for _, limit := range []struct {
		name string
		is   int64
	}{
		{"MaxConnections", int64(l.MaxConnections)},
		{"MaxHandshakes", int64(l.MaxHandshakes)},
		{"MaxRequests", int64(l.MaxRequests)},
		{"MaxBodyBytes", int64(l.MaxBodyBytes)},
		{"MaxHeaderBytes", int64(l.MaxHeaderBytes)},
		{"HeaderTimeout", int64(l.HeaderTimeout)},
		{"BodyTimeout", int64(l.BodyTimeout)},
		{"WriteTimeout", int64(l.WriteTimeout)},
		{"IdleTimeout", int64(l.IdleTimeout)},
		{"MaxWatchesPerConnection", int64(l.MaxWatchesPerConnection)},
		{"WatchTimeout", int64(l.WatchTimeout)},
		{"LeaderWait", int64(l.LeaderWait)},
	} {
		if limit.is < 0 {
			return fmt.Errorf("%w: Limits.%s is negative: give a positive one, or none for the default", ErrConfig, limit.name)
		}
	}
	return nil
}
