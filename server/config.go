package server

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/framed"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/web"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Addresses are a node's three ports, each as host:port.
type Addresses struct {
	// Peer is for the other nodes: raft and control.
	Peer string
	// Client is the framed port of the SDK and the CLI.
	Client string
	// HTTP is for JSON, gRPC, health and metrics. Empty switches it off.
	HTTP string
}

// Peer is one node of the initial cluster.
type Peer struct {
	// ID is the node's Config.ID.
	ID string
	// Addr is its advertised peer address, host:port.
	Addr string
}

// ClientAuth says what the HTTP port asks of a caller's certificate.
type ClientAuth string

// What the HTTP port asks of callers. Health paths are exempt from all of it.
const (
	// AuthDefault is AuthRequire where TLS.CA is set and AuthNone elsewhere.
	AuthDefault ClientAuth = ""
	// AuthRequire refuses callers without a certificate of TLS.CA.
	AuthRequire ClientAuth = "require"
	// AuthOptional checks a certificate where one is shown.
	AuthOptional ClientAuth = "optional"
	// AuthNone asks for none.
	AuthNone ClientAuth = "none"
)

// LogStore is one of the ways to keep raft's log.
type LogStore = replica.LogStore

// Config is everything about a node. Start from [Defaults]; a zero field that has a
// default takes it.
type Config struct {
	// ID names the node within its cluster, for ever: 1 to 64 of [A-Za-z0-9._-].
	ID string
	// DataDir holds the raft log, the term and vote, the snapshots and the node's
	// incarnation. Not needed where Stores is complete.
	DataDir string

	// LogStore is where raft's log is kept: "segment" or "bolt"; default segment. A log in bolt
	// is moved to segments when the node starts, and does not go back.
	LogStore LogStore
	// LogSegmentBytes is the size of a segment; default 16 MiB.
	LogSegmentBytes int64

	// Listen are the addresses to bind. Port 0 takes a free one.
	Listen Addresses
	// HealthAddr is where /healthz and /readyz are answered in plaintext, and nothing else.
	// Empty switches it off.
	HealthAddr string
	// Advertise are the addresses under which others reach the node. Required with
	// wildcard binds; elsewhere they default to what was bound, and Advertise.Peer to
	// the node's own entry in Cluster.
	Advertise Addresses
	// Cluster lists the voters of the first start, this node included. Empty means
	// this node alone. Ignored once the node has state.
	Cluster []Peer

	// TLS protects the client and HTTP ports. With a CA, the client port demands a
	// certificate of it. Files are read again when they change.
	TLS transport.TLSFiles
	// PeerTLS protects the peer port, always in both directions. Certificates name
	// their node with the SAN quorumlock://<cluster>/<id>.
	PeerTLS transport.TLSFiles
	// HTTPClientAuth is what the HTTP port asks of a caller's certificate.
	HTTPClientAuth ClientAuth
	// Insecure allows plaintext on addresses other than loopback, and callers without a
	// certificate where there is TLS.
	Insecure bool

	// HeartbeatTimeout is how long a follower hears nothing from the leader before it
	// stands for election; ElectionTimeout how long an election may take;
	// LeaderLeaseTimeout how long a leader that hears of no majority goes on leading;
	// CommitTimeout how soon followers learn of a commit when nothing else is sent.
	HeartbeatTimeout   time.Duration
	ElectionTimeout    time.Duration
	LeaderLeaseTimeout time.Duration
	CommitTimeout      time.Duration
	// HashInterval is how often the nodes hash and compare their states, if these have
	// moved.
	HashInterval time.Duration
	// NoFailoverHint leaves elections to raft's time-outs alone. Otherwise a follower calls
	// one as soon as a majority of the voters has seen that the leader's process is dead.
	NoFailoverHint bool
	// NoTunnels has the node connect no clients through to the leader, nor take those of other
	// nodes when it leads.
	NoTunnels bool
	// NoOverlap has the leader write an entry to its disk before it sends it, instead of
	// meanwhile.
	NoOverlap bool
	// SnapshotThreshold is the number of log entries between snapshots, TrailingLogs
	// how many stay in the log behind one for followers that lag. 0 leaves both to
	// the replica.
	SnapshotThreshold uint64
	TrailingLogs      uint64
	// SnapshotInterval is how often the node looks whether a snapshot is due; 0 leaves it
	// to the replica. Short ones are for tests.
	SnapshotInterval time.Duration

	// Settings are the cluster's limits, used at its very first start only: from then
	// on they are replicated. Zero fields take fsm.DefaultSettings.
	Settings *wire.Settings
	// TokenFloor is the least that the first fencing token exceeds; first start only.
	TokenFloor uint64

	// Limits bound what clients of the framed port can make this node hold, HTTPLimits
	// what callers of the HTTP port can.
	Limits     framed.Limits
	HTTPLimits web.Limits

	// MemoryLimit is what the node may take of memory, in bytes. MaxBufferBytes of it are for
	// what clients make it hold for a while: connections, what is being read from them,
	// answers that they have not taken, watches. Default: an eighth.
	MemoryLimit    int64
	MaxBufferBytes int64

	// DiskTimeout is how long one write to the log, with its syncs, may take before the
	// node gives its disk up and halts. A leader with a hung disk is replaced within that
	// and an election. It should be no less than three syncs of a slow disk.
	DiskTimeout time.Duration
	// ShutdownTimeout bounds a graceful stop where Close's context does not.
	ShutdownTimeout time.Duration

	// Level is the feature level to speak; 0 is the program's own. Lower ones are for
	// tests of rolling upgrades.
	Level uint32
	// Version is the program's version, for people.
	Version string

	// Network is what carries bytes; nil is TCP.
	Network transport.Network
	// Stores replace the files in DataDir, for tests.
	Stores replica.Stores
	// Logger gets everything that the node has to say; nil is silence.
	Logger hclog.Logger
	// Registry collects the node's metrics, which /metrics shows; nil makes one.
	Registry *prometheus.Registry
}

// Defaults returns a Config with every default filled in: loopback addresses with
// the standard ports, the time-outs and limits of the documents.
func Defaults() Config {
	cfg := Config{Listen: Addresses{Peer: "127.0.0.1:7401", Client: "127.0.0.1:7400", HTTP: "127.0.0.1:7402"}}
	return cfg.withDefaults()
}

func (c Config) withDefaults() Config {
	fill(&c.HeartbeatTimeout, 500*time.Millisecond)
	fill(&c.ElectionTimeout, 500*time.Millisecond)
	fill(&c.LeaderLeaseTimeout, min(500*time.Millisecond, c.HeartbeatTimeout))
	fill(&c.CommitTimeout, 20*time.Millisecond)
	fill(&c.HashInterval, 10*time.Second)
	fill(&c.DiskTimeout, 7*time.Second)
	fill(&c.LogStore, replica.LogInSegments)
	fill(&c.LogSegmentBytes, 16<<20)
	fill(&c.ShutdownTimeout, 10*time.Second)
	fill(&c.Level, fsm.Level)
	fill(&c.MemoryLimit, 4<<30)
	fill(&c.MaxBufferBytes, c.MemoryLimit/8)
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

// settingsWithDefaults fills in what was not given. The state's budget is a quarter of the
// node's memory: while a snapshot is written there may be two versions of it, and the
// garbage collector needs room.
func settingsWithDefaults(given *wire.Settings, memory int64) *wire.Settings {
	d := fsm.DefaultSettings()
	d.MaxStateBytes = uint64(memory / 4)
	if given == nil {
		return d
	}
	s := proto.CloneOf(given)
	fill(&s.MinTtlMs, d.MinTtlMs)
	fill(&s.MaxTtlMs, d.MaxTtlMs)
	fill(&s.DefaultTtlMs, min(max(d.DefaultTtlMs, s.MinTtlMs), s.MaxTtlMs))
	fill(&s.MaxSessions, d.MaxSessions)
	fill(&s.MaxLocks, d.MaxLocks)
	fill(&s.MaxWaitersPerLock, d.MaxWaitersPerLock)
	fill(&s.MaxClaimsPerSession, d.MaxClaimsPerSession)
	fill(&s.MaxWindow, d.MaxWindow)
	fill(&s.MaxValueBytes, d.MaxValueBytes)
	fill(&s.MaxClientInfoBytes, d.MaxClientInfoBytes)
	fill(&s.MaxStateBytes, d.MaxStateBytes)
	fill(&s.MaxSessionBytes, min(d.MaxSessionBytes, s.MaxStateBytes))
	return s
}

// fill gives a field its default where it was left out.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
