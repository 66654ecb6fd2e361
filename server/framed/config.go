package framed

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/budget"
	"github.com/quorumlock/quorumlock/server/fairqueue"
	"github.com/quorumlock/quorumlock/server/lease"
	"github.com/quorumlock/quorumlock/server/read"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Replica is the node behind the port: [replica.Replica], or a double in tests. Its
// functions are documented there.
type Replica interface {
	read.Source
	lease.Node

	ProposeAll([]replica.Proposal)
	Heartbeat(session uint64, done func(*wire.Result))
	Remaining(session uint64) (time.Duration, bool)
	Bind(session uint64, sink replica.Sink)
	Unbind(session uint64, sink replica.Sink)

	Leader() *wire.LeaderHint
	OnLeader(func(*wire.LeaderHint)) (cancel func())
	OnAnswered(func()) (cancel func())

	Watch(context.Context, *wire.WatchRequest, func(*wire.WatchResponse) error) error
	Restore(context.Context, *wire.RestoreRequest) (*wire.RestoreResponse, error)

	Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error)
	AddMember(context.Context, *wire.AddMemberRequest) error
	RemoveMember(context.Context, *wire.RemoveMemberRequest) error
	TransferLeadership(context.Context, *wire.TransferLeadershipRequest) error
	AcknowledgeAlarms(context.Context, *wire.AcknowledgeAlarmsRequest) (*wire.AcknowledgeAlarmsResponse, error)
}

// Config is what the port needs.
type Config struct {
	// Listener is bound already; the server closes it.
	Listener net.Listener
	// Replica answers.
	Replica Replica
	// NodeID and ClusterID are told to clients.
	NodeID    string
	ClusterID func() string
	// TLS is spoken from the first byte on; nil is plaintext.
	TLS *tls.Config
	// Tunnels connect clients through to the leader, from this node and to it; nil refuses both.
	Tunnels Tunnels
	// Queues are the node's, for reads and operators; nil makes some.
	Queues *fairqueue.Queues
	// Buffers is the node's budget for what clients make it hold for a while; nil is no bound.
	Buffers *budget.Budget
	// Limits bound what clients can make the node hold; zero fields take
	// DefaultLimits.
	Limits Limits
	// Logger gets the reason why a connection ended badly; nil is silence.
	Logger hclog.Logger
	// Registry takes the metrics; nil keeps them unregistered.
	Registry prometheus.Registerer
}

// Limits bound one node's dealings with clients. They are not replicated: they
// decide what is taken in, never how a command is applied.
type Limits struct {
	// MaxConnections at once, of those that are established.
	MaxConnections int
	// MaxHandshakes bounds the connections that have not said hello yet, and half of it those
	// of one address; beyond it the oldest is cut.
	MaxHandshakes int
	// MaxTunnels bounds the clients that this node connects through to the leader, and half of
	// it those of one address. They count among the connections, too.
	MaxTunnels int
	// MaxInFlight requests unanswered at once on one connection; the node stops
	// reading from it beyond that.
	MaxInFlight int
	// MaxFrameBytes is the largest frame in either direction.
	MaxFrameBytes int
	// MaxOutboxBytes wait at most for one client that does not read; beyond that it
	// is cut off.
	MaxOutboxBytes int
	// MaxWatchesPerConnection bounds the watches of one connection.
	MaxWatchesPerConnection int
	// MaxLeaseWaits is how many acquires of leases the node carries at once.
	MaxLeaseWaits int
	// HandshakeTimeout is how long a new connection may take for TLS and hello.
	HandshakeTimeout time.Duration
	// FrameTimeout is how long one frame may take from its first byte to its last,
	// and one write of responses.
	FrameTimeout time.Duration
	// IdleTimeout closes a connection that has no session and sends nothing for so long,
	// at the latest half as much later.
	IdleTimeout time.Duration
	// AdminTimeout bounds one administrative request.
	AdminTimeout time.Duration
}

// DefaultLimits are the limits that a zero field takes.
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

// WithDefaults fills the zero fields.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	fill(&l.MaxConnections, d.MaxConnections)
	fill(&l.MaxHandshakes, d.MaxHandshakes)
	fill(&l.MaxTunnels, min(d.MaxTunnels, l.MaxConnections))
	fill(&l.MaxInFlight, d.MaxInFlight)
	fill(&l.MaxFrameBytes, d.MaxFrameBytes)
	fill(&l.MaxOutboxBytes, max(d.MaxOutboxBytes, 4*l.MaxFrameBytes))
	fill(&l.MaxWatchesPerConnection, d.MaxWatchesPerConnection)
	fill(&l.MaxLeaseWaits, d.MaxLeaseWaits)
	fill(&l.HandshakeTimeout, d.HandshakeTimeout)
	fill(&l.FrameTimeout, d.FrameTimeout)
	fill(&l.IdleTimeout, d.IdleTimeout)
	fill(&l.AdminTimeout, d.AdminTimeout)
	return l
}

// fill gives a field its default where it was left out.
func fill[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
