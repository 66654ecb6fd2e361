package server

import (
	"cmp"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/httpapi"
	"github.com/quorumlock/quorumlock/server/membership/autopilot"
	"github.com/quorumlock/quorumlock/server/redis"
	"github.com/quorumlock/quorumlock/server/rpc"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Addresses holds the addresses of a node's three ports, each as host:port.
type Addresses struct {
	// Peer is the address of the peer port: raft and control messages between nodes.
	Peer string
	// Client is the address of the client port, which serves the SDK and the CLI.
	Client string
	// HTTP is the address of the HTTP port: JSON, gRPC, health and metrics. Empty disables it.
	HTTP string
}

// Peer is a node of the initial cluster.
type Peer struct {
	// ID is the node's Config.ID.
	ID string
	// Addr is its advertised peer address, host:port.
	Addr string
}

// ClientAuth selects what the HTTP port requires of client certificates.
type ClientAuth string

// Values of Config.HTTPClientAuth. Health paths are exempt from all of them.
const (
	// AuthDefault means AuthRequire if TLS.CA is set and AuthNone otherwise.
	AuthDefault ClientAuth = ""
	// AuthRequire rejects clients without a certificate signed by TLS.CA.
	AuthRequire ClientAuth = "require"
	// AuthOptional verifies a client certificate if one is presented.
	AuthOptional ClientAuth = "optional"
	// AuthNone requests no client certificate.
	AuthNone ClientAuth = "none"
)

// Config is the configuration of a node. Start from [Defaults]; zero fields that have a default take it.
type Config struct {
	// ID is the node's permanent name within its cluster: 1 to 64 characters of [A-Za-z0-9._-].
	ID string
	// DataDir holds the raft log, the term and vote, the snapshots and the node's incarnation. It is not
	// needed if Stores is complete.
	DataDir string

	// LogSegmentBytes is the size of a log segment; default 16 MiB.
	LogSegmentBytes int64

	// Listen holds the addresses to bind. Port 0 picks a free port.
	Listen Addresses
	// HealthAddr is the address of a plaintext listener that serves only /healthz and /readyz. Empty disables
	// it.
	HealthAddr string
	// RedisAddr is the address of the Redis port, host:port. Empty disables it. It has the certificates of the client
	// port, and its limits of connections.
	RedisAddr string
	// Redis are the options of the Redis port.
	Redis redis.Options
	// Advertise holds the addresses under which others reach the node. It is required if Listen has a
	// wildcard address. By default, Advertise.Peer is the node's own entry in Cluster, and the others are the
	// bound addresses.
	Advertise Addresses
	// Cluster lists the voters of the initial cluster, including this node. Without Cluster and Join, the node forms a
	// cluster of its own. Both are ignored once the node has state.
	Cluster []Peer
	// Join lists where a new node finds others: host:port of peer ports, where all addresses of a host count, and names
	// of SRV records. It asks the cluster there to add it.
	Join []string
	// BootstrapExpect is how many nodes, found at Join, form a new cluster together. Each must find all others.
	BootstrapExpect int

	// TLS holds the certificate files of the client and HTTP ports. With a CA, the client port requires
	// client certificates signed by it. The files are reloaded when they change. With a CRL, certificates in it are
	// refused.
	TLS transport.TLSFiles
	// PeerTLS holds the certificate files of the peer port, where both sides always authenticate each other.
	// A certificate names its node in the SAN quorumlock://<cluster>/<id>.
	PeerTLS transport.TLSFiles
	// HTTPClientAuth selects what the HTTP port requires of client certificates.
	HTTPClientAuth ClientAuth
	// NoConsole removes the console from the HTTP port.
	NoConsole bool
	// Insecure allows plaintext on addresses other than loopback and, with TLS, clients without a
	// certificate.
	Insecure bool

	// BackupDir is the directory to which the leader writes scheduled backups; empty disables them. BackupS3 is the URL of
	// a bucket for copies: s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION&insecure=true.
	BackupDir, BackupS3 string
	// BackupSchedule is a cron expression; default @daily. Set it alike on all nodes.
	BackupSchedule string
	// BackupKeep is the number of backups kept in each place; 0 keeps all.
	BackupKeep int

	// HeartbeatTimeout is how long a follower waits for contact from the leader before it starts an election.
	// ElectionTimeout bounds an election. LeaderLeaseTimeout is how long a leader without contact to a
	// majority keeps leading. CommitTimeout is the delay before followers learn of a commit if nothing else
	// is sent.
	HeartbeatTimeout   time.Duration
	ElectionTimeout    time.Duration
	LeaderLeaseTimeout time.Duration
	CommitTimeout      time.Duration
	// HashInterval is how often the nodes hash and compare their states, if the states have changed.
	HashInterval time.Duration
	// Autopilot has the rules by which this node, as leader, gives new members their vote and removes dead ones.
	Autopilot autopilot.Settings
	// NoFailoverHint leaves elections to raft's timeouts alone. Without it, a follower calls an election as
	// soon as a majority of the voters has seen that the leader's process is dead.
	NoFailoverHint bool
	// NoTunnels disables tunnels in both directions: the node neither tunnels its clients to the leader nor,
	// as leader, accepts tunnels from other nodes.
	NoTunnels bool
	// NoOverlap makes the leader write an entry to its disk before sending it to the followers. Without it,
	// the leader does both concurrently.
	NoOverlap bool
	// SnapshotThreshold is the number of log entries between snapshots. TrailingLogs is the number of entries
	// kept in the log behind a snapshot for lagging followers. 0 selects the replica's defaults.
	SnapshotThreshold uint64
	TrailingLogs      uint64
	// SnapshotInterval is how often the node checks whether a snapshot is due; 0 selects the replica's
	// default. Short intervals are for tests.
	SnapshotInterval time.Duration

	// Settings are the limits of the cluster. They apply only when the cluster is bootstrapped; afterwards
	// the replicated settings count. Zero fields take fsm.DefaultSettings.
	Settings *wire.Settings
	// TokenFloor is a lower bound that the first fencing token exceeds. It applies only at bootstrap.
	TokenFloor uint64

	// Limits bounds what clients of the client port can make this node hold. HTTPLimits does the same for
	// clients of the HTTP port.
	Limits     rpc.Limits
	HTTPLimits httpapi.Limits

	// MemoryLimit is the memory available to the node, in bytes. MaxBufferBytes bounds the part of it used
	// for transient data held for clients: connections, incoming requests, undelivered answers and watches;
	// default an eighth of MemoryLimit.
	MemoryLimit    int64
	MaxBufferBytes int64

	// DiskTimeout bounds one write to the log, including its syncs. If a write takes longer, the node halts.
	// A leader with a hung disk is replaced within this timeout plus an election. Allow at least three syncs
	// of a slow disk.
	DiskTimeout time.Duration
	// ShutdownTimeout bounds a graceful stop if Close's context has no deadline.
	ShutdownTimeout time.Duration

	// FeatureLevel is the highest feature level that the node supports; 0 means that of this program. The cluster's
	// level stays at the lowest of all members, so a lower one keeps the way back to an older program open.
	FeatureLevel uint32
	// AuditLog is the file to which the node appends the audit records that it applies and the denials of its callers.
	// Empty disables it; denials are then only logged.
	AuditLog string

	// Version and Commit identify the program, for display only.
	Version, Commit string

	// Network is the transport for all connections; nil means TCP.
	Network transport.Network
	// Stores replaces the files in DataDir, for tests.
	Stores storage.Backend
	// Logger receives the node's log messages; nil discards them.
	Logger hclog.Logger
	// LogDropped returns how many lines of the log were dropped since the start; nil if none ever is.
	LogDropped func() uint64
	// Registry collects the node's metrics, which /metrics serves; if nil, Open creates one.
	Registry *prometheus.Registry
}

// Defaults returns a Config with every default filled in: loopback addresses with the standard ports, and the
// documented timeouts and limits.
func Defaults() Config {
	cfg := Config{Listen: Addresses{Peer: "127.0.0.1:7401", Client: "127.0.0.1:7400", HTTP: "127.0.0.1:7402"}, BackupKeep: 14}
	return cfg.withDefaults()
}

func (c Config) withDefaults() Config {
	c.BackupSchedule = cmp.Or(c.BackupSchedule, "@daily")
	c.HeartbeatTimeout = cmp.Or(c.HeartbeatTimeout, 500*time.Millisecond)
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, 500*time.Millisecond)
	c.LeaderLeaseTimeout = cmp.Or(c.LeaderLeaseTimeout, min(500*time.Millisecond, c.HeartbeatTimeout))
	c.CommitTimeout = cmp.Or(c.CommitTimeout, 20*time.Millisecond)
	c.HashInterval = cmp.Or(c.HashInterval, 10*time.Second)
	c.Autopilot = c.Autopilot.WithDefaults()
	c.DiskTimeout = cmp.Or(c.DiskTimeout, 7*time.Second)
	c.LogSegmentBytes = cmp.Or(c.LogSegmentBytes, 16<<20)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 10*time.Second)
	c.FeatureLevel = cmp.Or(c.FeatureLevel, fsm.Level)
	c.MemoryLimit = cmp.Or(c.MemoryLimit, 4<<30)
	c.MaxBufferBytes = cmp.Or(c.MaxBufferBytes, c.MemoryLimit/8)
	c.Limits = c.Limits.WithDefaults()
	c.Settings = settingsWithDefaults(c.Settings, c.MemoryLimit)
	if c.Network == nil {
		c.Network = transport.TCP{}
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// settingsWithDefaults fills in the zero fields. The default budget of the state is a quarter of the node's
// memory, because two versions of the state can exist while a snapshot is written, and the garbage collector
// needs headroom.
func settingsWithDefaults(given *wire.Settings, memory int64) *wire.Settings {
	d := fsm.DefaultSettings()
	d.MaxStateBytes = uint64(memory / 4)
	if given == nil {
		return d
	}
	s := proto.CloneOf(given)
	s.MinTtlMs = cmp.Or(s.MinTtlMs, d.MinTtlMs)
	s.MaxTtlMs = cmp.Or(s.MaxTtlMs, d.MaxTtlMs)
	s.MaxLeaseTtlMs = cmp.Or(s.MaxLeaseTtlMs, max(d.MaxLeaseTtlMs, s.MaxTtlMs))
	s.MaxKeyTtlMs = cmp.Or(s.MaxKeyTtlMs, max(d.MaxKeyTtlMs, s.MinKeyTtlMs))
	s.MinKeyTtlMs = cmp.Or(s.MinKeyTtlMs, min(d.MinKeyTtlMs, s.MaxKeyTtlMs))
	s.DefaultTtlMs = cmp.Or(s.DefaultTtlMs, min(max(d.DefaultTtlMs, s.MinTtlMs), s.MaxTtlMs))
	s.MaxSessions = cmp.Or(s.MaxSessions, d.MaxSessions)
	s.MaxLocks = cmp.Or(s.MaxLocks, d.MaxLocks)
	s.MaxWaitersPerLock = cmp.Or(s.MaxWaitersPerLock, d.MaxWaitersPerLock)
	s.MaxClaimsPerSession = cmp.Or(s.MaxClaimsPerSession, d.MaxClaimsPerSession)
	s.MaxWindow = cmp.Or(s.MaxWindow, d.MaxWindow)
	s.MaxValueBytes = cmp.Or(s.MaxValueBytes, d.MaxValueBytes)
	s.MaxClientInfoBytes = cmp.Or(s.MaxClientInfoBytes, d.MaxClientInfoBytes)
	s.MaxStateBytes = cmp.Or(s.MaxStateBytes, d.MaxStateBytes)
	s.MaxSessionBytes = cmp.Or(s.MaxSessionBytes, min(d.MaxSessionBytes, s.MaxStateBytes))
	return s
}
