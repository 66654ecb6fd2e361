package redis

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
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/server/redis/resp"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Service executes the requests of the port: keys.Service, or a fake in tests. The context of a request carries its
// caller. Its methods return keys.ErrNoLeader or keys.ErrUnknown if there is no result.
type Service interface {
	// Change changes keys.
	Change(ctx context.Context, from identity.Sender, op *wire.ChangeKeys) (*wire.Result, error)
	// AddTTL is Change for an EXTEND that adds the TTL to what remains of the only key's.
	AddTTL(ctx context.Context, from identity.Sender, op *wire.ChangeKeys) (*wire.Result, error)
	// Read returns the state of each key, linearizably.
	Read(ctx context.Context, names ...string) ([]*wire.KeyState, error)
	// Lock acquires a key and waits for it. It ends with ctx.
	Lock(ctx context.Context, from identity.Sender, open *wire.OpenLease) (*wire.Result, error)
	// Voters returns the number of other voters in contact with the leader.
	Voters(ctx context.Context) (int, error)
	// Leader returns the id of the leader, empty if there is none, and whether it is this node.
	Leader() (id string, here bool)
}

// Config configures the port.
type Config struct {
	// Listener must be bound. The server closes it.
	Listener net.Listener
	// Service executes the requests.
	Service Service
	// Source is the applied state of the node, for who may do what.
	Source access.Source
	// NodeID, ClusterID and Version describe the node in INFO.
	NodeID    string
	ClusterID func() string
	Version   string
	// TLS starts with the first byte of a connection; nil means plaintext.
	TLS *tls.Config
	// Certificates know which certificates of clients are revoked; nil without TLS.
	Certificates *transport.Credentials
	// CertifiedCluster is the cluster that client certificates must name; empty if they may name any.
	CertifiedCluster string
	// RequireIdentity refuses the commands of clients without a certificate and without a token.
	RequireIdentity bool
	// Quotas counts what identities use of the node; nil counts nothing.
	Quotas *quota.Node
	// Turn waits for a sender's turn to use the processor for long, which lasts until leave is called; nil does not wait.
	Turn func(context.Context, identity.Sender) (leave func(), err error)
	// Buffers is the node's budget for transient data held for clients; nil means unbounded.
	Buffers *budget.Budget
	// Denials gets the refusals of clients and of their requests; nil discards them.
	Denials access.Denials
	// Logger receives the reasons of abnormal disconnects; nil discards them.
	Logger hclog.Logger
	// Registry receives the metrics; if nil, they stay unregistered.
	Registry prometheus.Registerer

	// Options are the choices of the operator.
	Options
	// Limits bounds what clients can make the node hold. Zero fields take DefaultLimits.
	Limits Limits
}

// Options are the choices of the operator.
type Options struct {
	// DefaultTTL is the TTL of an acquire that gives none; 0 refuses it.
	DefaultTTL time.Duration
	// AllowForce lets DEL end the holds of others while there is no policy.
	AllowForce bool
	// Prefix begins the lock names of all keys.
	Prefix string
}

// Limits bounds the resources that clients use on one node.
type Limits struct {
	// MaxConnections bounds the connections of verified callers.
	MaxConnections int
	// MaxHandshakes bounds the others. A single address may have half of them. Beyond either bound the oldest is cut.
	MaxHandshakes int
	// HandshakeTimeout bounds the time until the first command of a verified caller.
	HandshakeTimeout time.Duration
	// FrameTimeout bounds the arrival of one command, from its first byte to its last, and one write of replies.
	FrameTimeout time.Duration
	// IdleTimeout is the time after which a connection that sends nothing is closed.
	IdleTimeout time.Duration
	// RequestTimeout bounds a request, except for the wait of QL.LOCK. While there is no leader, requests wait that long.
	RequestTimeout time.Duration
	// MaxWaits is what identities share of the waits of QL.LOCK, which the service bounds.
	MaxWaits int
	// Command bounds a command.
	Command resp.Limits
}

// DefaultLimits returns the values that zero fields take.
func DefaultLimits() Limits {
	return Limits{
		MaxConnections:   10_000,
		MaxHandshakes:    handshake.DefaultMax,
		HandshakeTimeout: 5 * time.Second,
		FrameTimeout:     15 * time.Second,
		IdleTimeout:      5 * time.Minute,
		RequestTimeout:   5 * time.Second,
		MaxWaits:         2_048,
		Command:          resp.DefaultLimits(),
	}
}

// WithDefaults returns l with its zero fields filled in.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	l.MaxConnections = cmp.Or(l.MaxConnections, d.MaxConnections)
	l.MaxHandshakes = cmp.Or(l.MaxHandshakes, d.MaxHandshakes)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, d.HandshakeTimeout)
	l.FrameTimeout = cmp.Or(l.FrameTimeout, d.FrameTimeout)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, d.IdleTimeout)
	l.RequestTimeout = cmp.Or(l.RequestTimeout, d.RequestTimeout)
	l.MaxWaits = cmp.Or(l.MaxWaits, d.MaxWaits)
	l.Command = cmp.Or(l.Command, d.Command)
	return l
}
