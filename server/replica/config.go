package replica

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/advice"
	"github.com/quorumlock/quorumlock/server/internal/backup/schedule"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/seeds"
	"github.com/quorumlock/quorumlock/server/membership/autopilot"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Addresses are the addresses, as host:port, at which others reach a node.
type Addresses struct{ Peer, Client, HTTP string }

// Peer is one node of the initial cluster.
type Peer = directory.Peer

// Config configures a replica. A field that has a default takes it if it is zero.
type Config struct {
	// ID identifies the node permanently within its cluster.
	ID string
	// DataDir holds identity, log and snapshots. Unused with Stores.
	DataDir string
	// SegmentBytes is the size of a segment. Default: 16 MiB. A node allocates one segment more than it uses.
	SegmentBytes int64
	// NoOverlap makes the leader write an entry before it sends it, instead of concurrently.
	NoOverlap bool
	// Advertise holds the addresses that are replicated and passed to clients and peers.
	Advertise Addresses
	// Cluster is the initial set of voters, including this node. It is ignored once the node has state.
	Cluster []Peer
	// Join are the seeds, as of package seeds, at which a node without state finds its cluster, and asks to be added.
	Join []string
	// Resolver looks the seeds up. Default: net.DefaultResolver.
	Resolver seeds.Resolver
	// BootstrapExpect is how many nodes, found at the seeds, begin a cluster together if Cluster is empty. 0 means that
	// this node begins none.
	BootstrapExpect int
	// ClusterID is the cluster named by the peer certificate. If empty, it is read from there with PeerTLS;
	// without PeerTLS the cluster's first leader mints one.
	ClusterID string
	// Level is the highest feature level to support. Default: fsm.Level.
	Level uint32
	// Version and Commit identify the program, for display.
	Version, Commit string

	// HeartbeatTimeout, ElectionTimeout, LeaderLeaseTimeout and CommitTimeout are raft's. Defaults: 500 ms
	// for the first three, 20 ms for CommitTimeout.
	HeartbeatTimeout, ElectionTimeout, LeaderLeaseTimeout, CommitTimeout time.Duration

	// DiskTimeout bounds one write to the log, with its syncs. If a write takes longer, the disk counts as
	// hung and the node halts. Default: 7 s.
	DiskTimeout time.Duration

	// NoFailoverHint leaves elections to raft's timeouts. Otherwise an election is called as soon as a
	// majority of the voters has seen the leader's process die.
	NoFailoverHint bool

	// NoTunnels makes the node refuse the connections that other nodes open for clients.
	NoTunnels bool
	// MaxTunnels bounds these connections. Default: 2,048.
	MaxTunnels int

	// Settings and TokenFloor are used only by the node that begins the cluster. Default settings:
	// fsm.DefaultSettings.
	Settings   *wire.Settings
	TokenFloor uint64

	// Network dials peers. Default: transport.TCP.
	Network transport.Network
	// PeerListener is the peer port, already listening. The replica closes it. Required.
	PeerListener net.Listener
	// PeerTLS secures the peer port; nil means plaintext.
	PeerTLS *transport.TLSFiles
	// ClientCertificates is set if clients can prove their identity to this node with a certificate.
	ClientCertificates bool
	// CertificateExpiry returns when the first of the node's certificates expires, for its status; zero if it has
	// none. Default: none.
	CertificateExpiry func() time.Time
	// Stores replaces the files in DataDir, for tests.
	Stores storage.Backend

	// Logger defaults to one that discards everything.
	Logger hclog.Logger
	// Registry registers the metrics; nil leaves them unregistered.
	Registry prometheus.Registerer
	// Halt is called at most once, from any goroutine, when the node must stop immediately: its disk failed
	// or hangs, the log needs a newer program (fsm.ErrUpgrade), another node took its place (status.ErrReplaced),
	// most voters are in another state (status.ErrDiverged), its disk was rolled back (status.ErrRolledBack), the log has
	// forked (status.ErrForked), or an invariant was violated. By then the replica serves nothing and reaches no
	// peer. Halt must not call Close itself, since Close waits for as long as a disk hangs.
	Halt func(error)
	// Audit gets the audit records that this node applies, in order, from the goroutine that applies entries. After a
	// snapshot it gets all that the state keeps. It must not block. nil ignores them.
	Audit func(cluster string, records []*wire.AuditRecord)
	// AuditLocally gets the records of acts that this node performs without a leader, which the state therefore lacks.
	// They have no id. It must not block. nil ignores them.
	AuditLocally func(record *wire.AuditRecord)

	// Autopilot has the rules by which a leader promotes new members and removes dead ones.
	Autopilot autopilot.Settings

	// Backups are the schedule, the stores and the number of backups that the leader makes. Without stores it makes none.
	Backups schedule.Config

	// HashInterval is how often the nodes hash and compare their states, if the states have changed. The
	// leader's setting applies. Default: 10 s.
	HashInterval time.Duration

	// SnapshotThreshold and TrailingLogs count log entries. Defaults: 8192 and 2048.
	SnapshotThreshold, TrailingLogs uint64
	// SnapshotInterval is how often the node checks whether a snapshot is due; raft adds up to as much again
	// at random. Default: 30 s.
	SnapshotInterval time.Duration
}

func (c Config) withDefaults() Config {
	for _, d := range []*time.Duration{&c.HeartbeatTimeout, &c.ElectionTimeout, &c.LeaderLeaseTimeout} {
		*d = cmp.Or(*d, 500*time.Millisecond)
	}
	c.CommitTimeout = cmp.Or(c.CommitTimeout, 20*time.Millisecond)
	c.HashInterval = cmp.Or(c.HashInterval, 10*time.Second)
	c.Autopilot = c.Autopilot.WithDefaults()
	c.DiskTimeout = cmp.Or(c.DiskTimeout, 7*time.Second)
	c.Level = cmp.Or(c.Level, fsm.Level)
	c.Settings = cmp.Or(c.Settings, fsm.DefaultSettings())
	c.SnapshotThreshold = cmp.Or(c.SnapshotThreshold, 8192)
	c.SnapshotInterval = cmp.Or(c.SnapshotInterval, 30*time.Second)
	c.TrailingLogs = cmp.Or(c.TrailingLogs, 2048)
	if c.Network == nil {
		c.Network = transport.TCP{}
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.CertificateExpiry == nil {
		c.CertificateExpiry = func() time.Time { return time.Time{} }
	}
	if c.Halt == nil {
		c.Halt = func(error) {}
	}
	if c.Audit == nil {
		c.Audit = func(string, []*wire.AuditRecord) {}
	}
	if c.AuditLocally == nil {
		c.AuditLocally = func(*wire.AuditRecord) {}
	}
	return c
}

// complete validates c and fills in the cluster that the peer certificate names.
func (c *Config) complete() error {
	if err := c.validate(); err != nil || c.PeerTLS == nil {
		return err
	}
	cluster, _, err := c.PeerTLS.Peer()
	if err != nil {
		return err
	}
	if c.ClusterID != "" && c.ClusterID != cluster {
		return fmt.Errorf("%w: the peer certificate names cluster %q, the configuration %q", status.ErrOtherCluster, cluster, c.ClusterID)
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
	return directory.Check(c.ID, c.Cluster)
}

// advice returns the advice for this node's operator.
func (r *Replica) advice() advice.Node {
	return advice.Node{
		ID: r.cfg.ID, DataDir: r.cfg.DataDir, PeerAddr: r.cfg.Advertise.Peer, ClientAddr: r.cfg.Advertise.Client,
		Alone: len(r.cfg.Cluster) < 2 && len(r.cfg.Join) == 0 && r.cfg.Stores.Log == nil,
	}
}
