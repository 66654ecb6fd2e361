package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/fairqueue"
	"github.com/quorumlock/quorumlock/server/internal/lease"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/server/internal/read"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ClientAuth selects what the port requires of client certificates. The health paths are exempt.
type ClientAuth string

// Values of Config.ClientAuth.
const (
	// AuthRequire rejects clients without a certificate signed by the port's CA.
	AuthRequire ClientAuth = "require"
	// AuthOptional verifies a client certificate if one is presented.
	AuthOptional ClientAuth = "optional"
	// AuthNone requests no client certificate.
	AuthNone ClientAuth = "none"
)

// Replica is the part of the node that the port uses. All methods are safe for concurrent use. Callbacks must
// not block.
type Replica interface {
	read.Source

	// ProposeFrom proposes a command that came from a sender and calls done exactly once. NOT_LEADER
	// and UNAVAILABLE mean not executed; UNCERTAIN means unknown.
	ProposeFrom(from identity.Sender, cmd *wire.Command, done func(*wire.Result))
	// Heartbeat calls done with OK once leadership is verified by a proof newer than the call. idle are the session's
	// cached holds that are not in use.
	Heartbeat(session uint64, idle []*wire.IdleHold, done func(*wire.Result))
	// Await calls done with the final outcome of a request that is QUEUED or about to be. The outcome is
	// UNCERTAIN if this node loses leadership first.
	Await(session, seq uint64, done func(*wire.Result)) (cancel func())
	// View runs f on the applied state. f must be short and read-only.
	View(f func(*fsm.Machine))
	// CatchUp waits until a follower is no longer behind: see access.Source.
	CatchUp() bool
	// Leader returns the leader known to the node, empty if none.
	Leader() *wire.LeaderHint
	// OpenForward opens a connection to the leader's HTTP port that is known to be this node's. OnForward makes the
	// replica call accept with those of other nodes; accept must not block.
	OpenForward(ctx context.Context, leader *wire.LeaderHint) (net.Conn, error)
	OnForward(accept func(net.Conn)) (cancel func())
	// Access returns who may do what.
	Access() *fsm.Access
	// CheckChange refuses a change of the policy or the tokens that this cluster cannot have.
	CheckChange(*wire.Command) *wire.Result
	// Serving reports whether this node leads and may answer.
	Serving() bool
	// CaughtUp reports whether this node has applied all that was committed when it started.
	CaughtUp() bool
	// Removed says that this node was removed from its cluster; "" if it was not.
	Removed() string
	// Watch sends the events as visible returns them, at the pace of send, until a final message or the end of ctx.
	Watch(ctx context.Context, req *wire.WatchRequest, visible func(*wire.Event) *wire.Event, send func(*wire.WatchResponse) error) error
	// SaveSnapshot writes the whole state; leader only.
	SaveSnapshot(context.Context, *wire.SaveSnapshotRequest, io.Writer) error
	// SaveStaleSnapshot writes this node's own state, after describing it.
	SaveStaleSnapshot(context.Context, *wire.SaveSnapshotRequest, func(*wire.StaleSnapshot) error, io.Writer) error
	// Restore starts a new lineage; leader only.
	Restore(context.Context, *wire.RestoreRequest) (*wire.RestoreResponse, error)
	// Status describes the cluster as this node sees it.
	Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error)
	// AddMember, RemoveMember, SetDrained and TransferLeadership change the cluster; leader only.
	AddMember(context.Context, *wire.AddMemberRequest) error
	RemoveMember(context.Context, *wire.RemoveMemberRequest) error
	SetDrained(context.Context, *wire.SetDrainedRequest) error
	TransferLeadership(context.Context, *wire.TransferLeadershipRequest) error
	// AcknowledgeAlarms clears the alarms of all nodes; leader only.
	AcknowledgeAlarms(context.Context, *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error)
}

// Config configures the port. Zero fields of Limits take their defaults.
type Config struct {
	// NodeID is the node's --id.
	NodeID string
	// Replica is the node.
	Replica Replica
	// TLS holds the certificate files of the port; zero means plaintext.
	TLS transport.TLSFiles
	// CertifiedCluster is the cluster that client certificates must name; empty if they may name any.
	CertifiedCluster string
	// ClientAuth selects what the port requires of client certificates; empty means AuthNone. Without TLS,
	// only AuthNone is valid.
	ClientAuth ClientAuth
	// Denials gets the refusals of callers and of their requests; nil discards them.
	Denials access.Denials
	// NoConsole removes the console from the port.
	NoConsole bool
	// Logger receives the port's log messages; nil discards them.
	Logger hclog.Logger
	// Registry is served at /metrics and receives the port's own metrics; if nil, New creates one.
	Registry *prometheus.Registry
	// Queues are the node's queues for reads, snapshots and operator requests; if nil, New creates its own.
	Queues *fairqueue.Queues
	// Leases acquires leases for all ports of the node; if nil, New creates its own.
	Leases *lease.Service
	// Quotas counts what identities use of the node; nil counts nothing.
	Quotas *quota.Node
	// Buffers is the node's budget for transient data held for clients; nil means unbounded.
	Buffers *budget.Budget
	// Limits bounds what callers can make the node hold.
	Limits Limits
}

// Limits bounds the resources that HTTP callers use on one node.
type Limits struct {
	// MaxConnections bounds the established connections, which are those that have sent a request of a verified
	// caller. A connection beyond it gets an error response and is closed.
	MaxConnections int
	// MaxHandshakes bounds the other connections, which may ask for health. A single address may have half of
	// them. Beyond either bound the oldest is cut.
	MaxHandshakes int
	// MaxRequests bounds the requests in flight, including waiting acquires.
	MaxRequests int
	// MaxBodyBytes bounds a request's body, before and after decompression.
	MaxBodyBytes int
	// MaxHeaderBytes bounds a request's line and headers together.
	MaxHeaderBytes int
	// HeaderTimeout bounds the arrival of a request's headers, and a TLS handshake.
	HeaderTimeout time.Duration
	// BodyTimeout bounds the arrival of a request's body.
	BodyTimeout time.Duration
	// WriteTimeout bounds the time a caller takes to read one piece of an answer.
	WriteTimeout time.Duration
	// IdleTimeout is the time after which a connection without a request is closed.
	IdleTimeout time.Duration
	// MaxWatchesPerConnection bounds the watches of one connection.
	MaxWatchesPerConnection int
	// WatchTimeout bounds the time a caller takes to read one message of a watch.
	WatchTimeout time.Duration
	// LeaderWait bounds the time a request waits for a leader to be forwarded to.
	LeaderWait time.Duration
	// RetryGrace is how long an acquire whose caller has disconnected is kept for a retry before it is
	// cancelled. A negative value cancels it immediately.
	RetryGrace time.Duration
}

// DefaultLimits returns the values that zero fields take.
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
	l.MaxConnections = cmp.Or(l.MaxConnections, d.MaxConnections)
	l.MaxHandshakes = cmp.Or(l.MaxHandshakes, d.MaxHandshakes)
	l.MaxRequests = cmp.Or(l.MaxRequests, d.MaxRequests)
	l.MaxBodyBytes = cmp.Or(l.MaxBodyBytes, d.MaxBodyBytes)
	l.MaxHeaderBytes = cmp.Or(l.MaxHeaderBytes, d.MaxHeaderBytes)
	l.HeaderTimeout = cmp.Or(l.HeaderTimeout, d.HeaderTimeout)
	l.BodyTimeout = cmp.Or(l.BodyTimeout, d.BodyTimeout)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, d.WriteTimeout)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, d.IdleTimeout)
	l.MaxWatchesPerConnection = cmp.Or(l.MaxWatchesPerConnection, d.MaxWatchesPerConnection)
	l.WatchTimeout = cmp.Or(l.WatchTimeout, d.WatchTimeout)
	l.LeaderWait = cmp.Or(l.LeaderWait, d.LeaderWait)
	l.RetryGrace = cmp.Or(l.RetryGrace, d.RetryGrace)
	return l
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	c.ClientAuth = cmp.Or(c.ClientAuth, AuthNone)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

// ErrConfig is returned by [New] for an invalid Config. The message says what to change.
var ErrConfig = errors.New("httpapi: bad configuration")

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
