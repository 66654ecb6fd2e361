package replica

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Addresses are what a node tells others to reach it by, as host:port.
type Addresses struct{ Peer, Client, HTTP string }

// Peer is one node of the initial cluster.
type Peer struct {
	ID string
	// Addr is the peer address, host:port.
	Addr string
}

// LogStore is one of the ways to keep raft's log.
type LogStore string

const (
	// LogInSegments are files that are only appended to, with one sync for each write.
	LogInSegments LogStore = "segment"
	// LogInBolt is the bolt file that has term and vote as well.
	LogInBolt LogStore = "bolt"
)

// Stores replaces the files in Config.DataDir, for tests. Either all of its stores
// are set or none.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	// Incarnation stands for the identity file.
	Incarnation string
}

// Config says how to open a replica. The zero value of every field that has a
// default takes it.
type Config struct {
	// ID names the node for ever within its cluster.
	ID string
	// DataDir holds identity, log and snapshots. Unused with Stores.
	DataDir string
	// LogStore is where raft's log is kept; default LogInSegments. A log in bolt is moved to
	// segments when the node starts. Unused with Stores.
	LogStore LogStore
	// SegmentBytes is the size of a segment; default 16 MiB. A node has room on its disk for
	// one more than it uses.
	SegmentBytes int64
	// NoOverlap has the leader write an entry before it sends it, instead of meanwhile.
	NoOverlap bool
	// Advertise is replicated and told to clients and peers.
	Advertise Addresses
	// Cluster is the initial set of voters including this node. It is ignored once
	// the node has state.
	Cluster []Peer
	// ClusterID is the cluster that the peer certificate names. Empty: with PeerTLS it is
	// read from there, without it the cluster's first leader mints one.
	ClusterID string
	// Level is the highest feature level to support; 0 is fsm.Level.
	Level uint32
	// Version of the program, for people.
	Version string

	// HeartbeatTimeout, ElectionTimeout and LeaderLeaseTimeout default to 500 ms,
	// CommitTimeout to 20 ms. They are raft's.
	HeartbeatTimeout, ElectionTimeout, LeaderLeaseTimeout, CommitTimeout time.Duration

	// DiskTimeout is how long one write to the log, with its syncs, may take before the
	// disk counts as hung and the node halts; default 7 s. Bolt syncs two or three times
	// for each.
	DiskTimeout time.Duration

	// NoFailoverHint leaves elections to raft's time-outs alone. Otherwise one is called as
	// soon as a majority of the voters has seen the leader's process die.
	NoFailoverHint bool

	// NoTunnels refuses the connections that other nodes open for clients.
	NoTunnels bool
	// MaxTunnels bounds them; default 2,048.
	MaxTunnels int

	// Settings and TokenFloor are used only by the node that begins the cluster.
	// Nil settings are fsm.DefaultSettings.
	Settings   *wire.Settings
	TokenFloor uint64

	// Network is what peers are dialled over; nil is transport.TCP{}.
	Network transport.Network
	// PeerListener is the peer port, already listening. The replica closes it.
	PeerListener net.Listener
	// PeerTLS secures the peer port; nil is plaintext.
	PeerTLS *transport.TLSFiles
	Stores  Stores

	// Logger defaults to one that discards.
	Logger hclog.Logger
	// Registry takes the metrics; nil keeps them unregistered.
	Registry prometheus.Registerer
	// Halt is called at most once, from any goroutine, when the node must stop at
	// once: its disk failed or hangs, the log needs a newer program (fsm.ErrUpgrade),
	// another node took its place (ErrReplaced), most voters are in another state
	// (ErrDiverged) or an invariant broke. The replica serves nothing any more by then and
	// reaches no peer. It must not call Close itself, which waits for as long as a disk
	// hangs.
	Halt func(error)

	// HashInterval is how often the nodes hash and compare their states, if these have
	// moved; default 10 s. The leader's counts.
	HashInterval time.Duration

	// SnapshotThreshold and TrailingLogs count log entries; defaults 8192 and 2048.
	SnapshotThreshold, TrailingLogs uint64
	// SnapshotInterval is how often the node looks whether a snapshot is due, or up to
	// twice that; default 30 s.
	SnapshotInterval time.Duration
}

func (c Config) withDefaults() Config {
	for _, d := range []*time.Duration{&c.HeartbeatTimeout, &c.ElectionTimeout, &c.LeaderLeaseTimeout} {
		if *d == 0 {
			*d = 500 * time.Millisecond
		}
	}
	if c.CommitTimeout == 0 {
		c.CommitTimeout = 20 * time.Millisecond
	}
	if c.HashInterval == 0 {
		c.HashInterval = 10 * time.Second
	}
	if c.DiskTimeout == 0 {
		c.DiskTimeout = 7 * time.Second
	}
	if c.LogStore == "" {
		c.LogStore = LogInSegments
	}
	if c.Level == 0 {
		c.Level = fsm.Level
	}
	if c.Settings == nil {
		c.Settings = fsm.DefaultSettings()
	}
	if c.Network == nil {
		c.Network = transport.TCP{}
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Halt == nil {
		c.Halt = func(error) {}
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = 8192
	}
	if c.SnapshotInterval == 0 {
		c.SnapshotInterval = 30 * time.Second
	}
	if c.TrailingLogs == 0 {
		c.TrailingLogs = 2048
	}
	return c
}

// complete validates and reads what the certificate says.
func (c *Config) complete() error {
	if err := c.validate(); err != nil || c.PeerTLS == nil {
		return err
	}
	cluster, _, err := c.PeerTLS.Peer()
	if err != nil {
		return err
	}
	if c.ClusterID != "" && c.ClusterID != cluster {
		return fmt.Errorf("%w: the peer certificate names cluster %q, the configuration %q", ErrOtherCluster, cluster, c.ClusterID)
	}
	c.ClusterID = cluster
	return nil
}

func (c *Config) validate() error {
	if c.ID == "" {
		return errors.New("a node needs an id: set --id")
	}
	if c.PeerListener == nil {
		return errors.New("a replica needs its peer listener")
	}
	if c.Advertise.Peer == "" {
		return errors.New("a node needs a peer address that others reach it by: set --advertise-peer-addr")
	}
	if (c.Stores.Log == nil) != (c.Stores.Stable == nil) || (c.Stores.Log == nil) != (c.Stores.Snapshots == nil) {
		return errors.New("either all stores are given or none")
	}
	if c.Stores.Log == nil && c.DataDir == "" {
		return errors.New("a node needs a directory for its data: set --data-dir")
	}
	if c.LogStore != LogInSegments && c.LogStore != LogInBolt {
		return fmt.Errorf("the log can be kept in %q or %q, not in %q: set --log-store", LogInSegments, LogInBolt, c.LogStore)
	}
	return validateCluster(c.ID, c.Cluster)
}

func validateCluster(id string, cluster []Peer) error {
	seen := map[string]bool{}
	for _, p := range cluster {
		if p.ID == "" || p.Addr == "" {
			return fmt.Errorf("the initial cluster has an entry without id or address: %q=%q", p.ID, p.Addr)
		}
		if seen[p.ID] {
			return fmt.Errorf("the initial cluster names %q twice", p.ID)
		}
		seen[p.ID] = true
	}
	if len(cluster) > 0 && !seen[id] {
		return fmt.Errorf("the initial cluster does not name this node, %q: --cluster lists every node, itself included", id)
	}
	return nil
}
