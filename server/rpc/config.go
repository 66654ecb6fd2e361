package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/server/internal/fairqueue"
	"github.com/quorumlock/quorumlock/server/internal/lease"
	"github.com/quorumlock/quorumlock/server/internal/notify"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/server/internal/read"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Replica is the node behind the port: [replica.Replica], which documents the methods, or a fake in tests.
type Replica interface {
	read.Source
	lease.Node
	access.Source

	// CheckChange refuses a change of the policy or the tokens that this cluster cannot have.
	CheckChange(*wire.Command) *wire.Result

	ProposeAll([]command.Proposal)
	Heartbeat(session uint64, idle []*wire.IdleHold, done func(*wire.Result))
	Remaining(session uint64) (time.Duration, bool)
	Bind(session uint64, sink notify.Sink)
	Unbind(session uint64, sink notify.Sink)

	Leader() *wire.LeaderHint
	LatestTerm() *wire.TermStart
	Contains(*wire.Position) bool
	OnLeader(func(*wire.LeaderHint)) (cancel func())
	OnAnswered(func()) (cancel func())

	Watch(context.Context, *wire.WatchRequest, func(*wire.Event) *wire.Event, func(*wire.WatchResponse) error) error
	Restore(context.Context, *wire.RestoreRequest) (*wire.RestoreResponse, error)

	Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error)
	AddMember(context.Context, *wire.AddMemberRequest) error
	RemoveMember(context.Context, *wire.RemoveMemberRequest) error
	SetDrained(context.Context, *wire.SetDrainedRequest) error
	TransferLeadership(context.Context, *wire.TransferLeadershipRequest) error
	AcknowledgeAlarms(context.Context, *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error)
}

// Config configures the port.
type Config struct {
	// Listener must be bound. The server closes it.
	Listener net.Listener
	// Replica handles the requests.
	Replica Replica
	// NodeID and ClusterID identify the node in its hello to clients.
	NodeID    string
	ClusterID func() string
	// ClientAddrs returns the client addresses of the members, also for that hello.
	ClientAddrs func() []string
	// TLS starts with the first byte of a connection; nil means plaintext.
	TLS *tls.Config
	// Certificates know which certificates of clients are revoked; nil without TLS.
	Certificates *transport.Credentials
	// CertifiedCluster is the cluster that client certificates must name, that of the node's peer certificate; empty if
	// the node has none, and then they may name any.
	CertifiedCluster string
	// RequireIdentity refuses clients without a certificate and without a token.
	RequireIdentity bool
	// Tunnels opens and accepts tunnels to the leader for clients; nil disables both.
	Tunnels Tunnels
	// Queues are the node's queues for reads and operator requests; if nil, Serve creates its own.
	Queues *fairqueue.Queues
	// Leases acquires leases for all ports of the node; if nil, Serve creates its own.
	Leases *lease.Service
	// Quotas counts what identities use of the node; nil counts nothing.
	Quotas *quota.Node
	// Buffers is the node's budget for transient data held for clients; nil means unbounded.
	Buffers *budget.Budget
	// Limits bounds what clients can make the node hold. Zero fields take DefaultLimits.
	Limits Limits
	// Denials gets the refusals of clients and of their requests; nil discards them.
	Denials access.Denials
	// Logger receives the reasons of abnormal disconnects; nil discards them.
	Logger hclog.Logger
	// Registry receives the metrics; if nil, they stay unregistered.
	Registry prometheus.Registerer
}

// Limits bounds the resources that clients use on one node. Limits are not replicated: they decide what the
// node accepts, never how a command is applied.
type Limits struct {
	// MaxConnections bounds the established connections.
	MaxConnections int
	// MaxHandshakes bounds the connections that have not yet sent their hello. A single address may have half
	// of them. Beyond either bound the oldest is cut.
	MaxHandshakes int
	// MaxTunnels bounds the clients that this node tunnels to the leader. A single address may have half of
	// them. Tunnels also count towards MaxConnections.
	MaxTunnels int
	// MaxInFlight bounds the unanswered requests of one connection. At the bound, the node stops reading from
	// the connection.
	MaxInFlight int
	// MaxFrameBytes bounds a frame in either direction.
	MaxFrameBytes int
	// MaxOutboxBytes bounds the unsent bytes queued for one client. A client that exceeds it is disconnected.
	MaxOutboxBytes int
	// MaxWatchesPerConnection bounds the watches of one connection.
	MaxWatchesPerConnection int
	// MaxLeaseWaits bounds the acquires of leases that wait on this node.
	MaxLeaseWaits int
	// HandshakeTimeout bounds TLS and hello of a new connection.
	HandshakeTimeout time.Duration
	// FrameTimeout bounds the arrival of one frame, from its first byte to its last, and one write of
	// responses.
	FrameTimeout time.Duration
	// IdleTimeout is the time after which the node closes a connection that sends nothing and has no session,
	// no watch and no request in flight. Closing may be late by up to half of it.
	IdleTimeout time.Duration
	// AdminTimeout bounds an administrative request.
	AdminTimeout time.Duration
}

// DefaultLimits returns the values that zero fields take.
func DefaultLimits() Limits {
	return Limits{
		MaxConnections:          10_000,
		MaxHandshakes:           handshake.DefaultMax,
		MaxTunnels:              1_024,
		MaxInFlight:             1_024,
		MaxFrameBytes:           transport.DefaultMaxFrame,
		MaxOutboxBytes:          8 << 20,
		MaxWatchesPerConnection: 16,
		MaxLeaseWaits:           16_384,
		HandshakeTimeout:        5 * time.Second,
		FrameTimeout:            15 * time.Second,
		IdleTimeout:             5 * time.Minute,
		AdminTimeout:            30 * time.Second,
	}
}

// WithDefaults returns l with its zero fields filled in.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	l.MaxConnections = cmp.Or(l.MaxConnections, d.MaxConnections)
	l.MaxHandshakes = cmp.Or(l.MaxHandshakes, d.MaxHandshakes)
	l.MaxTunnels = cmp.Or(l.MaxTunnels, min(d.MaxTunnels, l.MaxConnections))
	l.MaxInFlight = cmp.Or(l.MaxInFlight, d.MaxInFlight)
	l.MaxFrameBytes = cmp.Or(l.MaxFrameBytes, d.MaxFrameBytes)
	l.MaxOutboxBytes = cmp.Or(l.MaxOutboxBytes, max(d.MaxOutboxBytes, 4*l.MaxFrameBytes))
	l.MaxWatchesPerConnection = cmp.Or(l.MaxWatchesPerConnection, d.MaxWatchesPerConnection)
	l.MaxLeaseWaits = cmp.Or(l.MaxLeaseWaits, d.MaxLeaseWaits)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, d.HandshakeTimeout)
	l.FrameTimeout = cmp.Or(l.FrameTimeout, d.FrameTimeout)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, d.IdleTimeout)
	l.AdminTimeout = cmp.Or(l.AdminTimeout, d.AdminTimeout)
	return l
}
