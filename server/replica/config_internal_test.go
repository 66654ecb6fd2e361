package replica

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	const half = 500 * time.Millisecond
	if c.HeartbeatTimeout != half || c.ElectionTimeout != half || c.LeaderLeaseTimeout != half || c.CommitTimeout != 20*time.Millisecond ||
		c.HashInterval != 10*time.Second || c.DiskTimeout != 7*time.Second || c.SnapshotInterval != 30*time.Second ||
		c.SnapshotThreshold != 8192 || c.TrailingLogs != 2048 || c.Level != fsm.Level ||
		c.Settings == nil || c.Logger == nil || c.Network == (transport.TCP{}) != true {
		t.Errorf("defaults: %+v", c)
	}
	c.Halt(errors.New("nobody listens"))

	settings, network, halted := &wire.Settings{}, &transport.TCP{}, false
	given := Config{
		HeartbeatTimeout: 1, ElectionTimeout: 2, LeaderLeaseTimeout: 3, CommitTimeout: 4, HashInterval: 5, DiskTimeout: 6, SnapshotInterval: 7,
		SnapshotThreshold: 8, TrailingLogs: 9, Level: 10, Settings: settings, Network: network, Halt: func(error) { halted = true },
	}
	g := given.withDefaults()
	g.Halt(nil)
	if g.HeartbeatTimeout != 1 || g.ElectionTimeout != 2 || g.LeaderLeaseTimeout != 3 || g.CommitTimeout != 4 || g.HashInterval != 5 ||
		g.DiskTimeout != 6 || g.SnapshotInterval != 7 || g.SnapshotThreshold != 8 || g.TrailingLogs != 9 ||
		g.Level != 10 || g.Settings != settings || g.Network != network || !halted {
		t.Errorf("what was given became %+v", g)
	}
}

// TestConfigIsChecked omits or spoils one field at a time.
func TestConfigIsChecked(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	logs, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	for name, c := range map[string]struct {
		change func(*Config)
		says   string // "" means no error
	}{
		"whole":               {func(*Config) {}, ""},
		"no id":               {func(c *Config) { c.ID = "" }, "set --id"},
		"no listener":         {func(c *Config) { c.PeerListener = nil }, "peer listener"},
		"no peer address":     {func(c *Config) { c.Advertise = Addresses{Client: "h:1"} }, "--advertise-peer-addr"},
		"no directory":        {func(c *Config) { c.DataDir = "" }, "--data-dir"},
		"only a log":          {func(c *Config) { c.Stores.Log = logs }, "all stores"},
		"only a stable store": {func(c *Config) { c.Stores.Stable = logs }, "all stores"},
		"only snapshots":      {func(c *Config) { c.Stores.Snapshots = snapshots }, "all stores"},
		"no snapshots":        {func(c *Config) { c.Stores = storage.Backend{Log: logs, Stable: logs} }, "all stores"},
		"no stable store":     {func(c *Config) { c.Stores = storage.Backend{Log: logs, Snapshots: snapshots} }, "all stores"},
		"stores without directory": {func(c *Config) {
			c.Stores, c.DataDir = storage.Backend{Log: logs, Stable: logs, Snapshots: snapshots}, ""
		}, ""},
		"no cluster":                  {func(c *Config) { c.Cluster = nil }, ""},
		"a cluster without this node": {func(c *Config) { c.Cluster = c.Cluster[1:] }, `does not name this node, "n1"`},
		"a node twice":                {func(c *Config) { c.Cluster[1].ID = "n1" }, `names "n1" twice`},
		"a node without id":           {func(c *Config) { c.Cluster[1].ID = "" }, "without id or address"},
		"a node without address":      {func(c *Config) { c.Cluster[1].Addr = "" }, "without id or address"},
		"certificate without its file": {func(c *Config) {
			c.PeerTLS = &transport.TLSFiles{Cert: "/nowhere/cert.pem", Key: "/nowhere/key.pem", CA: "/nowhere/ca.pem"}
		}, "nowhere"},
		"no id, and a certificate": {func(c *Config) { c.ID, c.PeerTLS = "", &transport.TLSFiles{Cert: "/nowhere/cert.pem"} }, "set --id"},
	} {
		cfg := Config{ID: "n1", DataDir: "/data", Advertise: Addresses{Peer: "h1:1"}, PeerListener: listener, Cluster: []Peer{{ID: "n1", Addr: "h1:1"}, {ID: "n2", Addr: "h2:1"}}}
		c.change(&cfg)
		switch err := cfg.complete(); {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestCertificateNamesTheCluster verifies that the certificate names the cluster, and that the configuration
// may name only the same one.
func TestCertificateNamesTheCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	if _, err := pki.Init(dir, "c", []pki.Node{{ID: "n1"}}, nil); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(dir, "nodes", "n1")
	files := &transport.TLSFiles{Cert: filepath.Join(base, "peer.crt"), Key: filepath.Join(base, "peer.key"), CA: filepath.Join(dir, "ca.crt")}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for configured, want := range map[string]error{"": nil, "c": nil, "d": status.ErrOtherCluster} {
		cfg := Config{ID: "n1", DataDir: "/data", Advertise: Addresses{Peer: "h1:1"}, PeerListener: listener, PeerTLS: files, ClusterID: configured}
		if err := cfg.complete(); !errors.Is(err, want) || err == nil && cfg.ClusterID != "c" {
			t.Errorf("configured %q: cluster %q, %v", configured, cfg.ClusterID, err)
		}
	}
}
