package replica

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// alarmsKey is the key under which package alarm stores the alarms.
const alarmsKey = "quorumlock.alarms"

// membersKey is the key under which package directory stores the members.
var membersKey = []byte("quorumlock.members")

// refusingKey is a stable store that refuses to write one key.
type refusingKey struct {
	raft.StableStore
	key string
}

func (s refusingKey) Set(key, value []byte) error {
	if string(key) == s.key {
		return errDisk
	}
	return s.StableStore.Set(key, value)
}

// tiring is a log that returns its last index only a limited number of times.
type tiring struct {
	*raft.InmemStore
	left int
}

func (s *tiring) LastIndex() (uint64, error) {
	if s.left--; s.left < 0 {
		return 0, errDisk
	}
	return s.InmemStore.LastIndex()
}

// spoiledStart is a configuration with which a node does not start.
type spoiledStart struct {
	spoil func(*Config)
	want  error  // nil means any error
	says  string // contained in the error
}

func spoiledStarts() map[string]spoiledStart {
	storeInterval := func(key, value string) func(*Config) {
		return func(cfg *Config) { _ = cfg.Stores.Stable.Set([]byte(key), []byte(value)) }
	}
	refusing := func(key []byte) func(*Config) {
		return func(cfg *Config) { cfg.Stores.Stable = refusingKey{cfg.Stores.Stable, string(key)} }
	}
	occupying := func(name string) func(*Config) {
		return func(cfg *Config) {
			cfg.Registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "of somebody else"}))
		}
	}
	return map[string]spoiledStart{
		"no id":                   {func(cfg *Config) { cfg.ID = "" }, nil, "--id"},
		"metrics of another":      {occupying("quorumlock_term"), nil, "quorumlock_term"},
		"peer metrics of another": {occupying("quorumlock_peer_connections"), nil, "quorumlock_peer_connections"},
		"a log with a gap":        {func(cfg *Config) { _ = cfg.Stores.Log.StoreLog(&raft.Log{Index: 5}) }, storage.ErrDamaged, "begins at entry 5"},
		"diverged":                {storeInterval("quorumlock.diverged", "it differs"), status.ErrDiverged, "it differs"},
		"start not counted":       {refusing([]byte("quorumlock.boot")), errDisk, "count this start"},
		"alarms that are none":    {storeInterval(alarmsKey, "\xff"), nil, ""},
		"members cut off":         {storeInterval(string(membersKey), "\xff"), storage.ErrDamaged, "cut off"},
		"a log that fails, in term 1": {func(cfg *Config) {
			_ = cfg.Stores.Stable.SetUint64([]byte(currentTerm), 1)
			cfg.Stores.Log = &tiring{raft.NewInmemStore(), 1}
		}, errDisk, ""},
		"a log that fails":           {func(cfg *Config) { cfg.Stores.Log = &tiring{raft.NewInmemStore(), 1} }, nil, errDisk.Error()},
		"settings that raft refuses": {func(cfg *Config) { cfg.LeaderLeaseTimeout = time.Hour }, nil, "raft's settings"},
		"members not written down":   {refusing(membersKey), errDisk, "bootstrap the cluster"},
		"a first entry not written":  {func(cfg *Config) { cfg.Stores.Log = &failing{raft.NewInmemStore(), errDisk} }, nil, "bootstrap the cluster"},
		"a log that fails before raft": {func(cfg *Config) {
			_ = cfg.Stores.Stable.SetUint64([]byte(currentTerm), 2)
			cfg.Stores.Log = &tiring{raft.NewInmemStore(), 1}
		}, errDisk, ""},
	}
}

// TestStartsThatFail verifies that a failed start returns its error and frees the port and the metrics for
// the next start.
func TestStartsThatFail(t *testing.T) {
	for name, c := range spoiledStarts() {
		bubble.Test(t, func(t *testing.T) {
			host, registry := simnet.New(1).Host("n1"), prometheus.NewRegistry()
			config := func() Config {
				listener, err := host.Listen(t.Context(), "n1:7401")
				if err != nil {
					t.Fatalf("%s: the port is taken: %v", name, err)
				}
				cfg := lone(t, inMemory(), func(err error) { t.Errorf("%s: told to stop, not by Open: %v", name, err) })
				_ = cfg.PeerListener.Close()
				cfg.Network, cfg.PeerListener, cfg.Registry = host, listener, registry
				return cfg
			}
			cfg := config()
			c.spoil(&cfg)
			if r, err := Open(t.Context(), cfg); err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
				if err == nil {
					_ = r.Close(t.Context())
				}
			}
			again := config()
			if strings.Contains(name, "metrics") {
				again.Registry = prometheus.NewRegistry()
			}
			r, err := Open(t.Context(), again)
			if err != nil {
				t.Fatalf("%s: opened again: %v", name, err)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	if _, err := Open(t.Context(), Config{}); err == nil {
		t.Error("opened without anything")
	}
}

// stubborn is a listener whose Close returns an error.
type stubborn struct{ net.Listener }

func (s stubborn) Close() error {
	_ = s.Listener.Close()
	return errDisk
}

// TestStopReturnsItsErrors verifies that the first Close returns its errors.
func TestStopReturnsItsErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := lone(t, inMemory(), func(err error) { t.Error(err) })
		cfg.PeerListener = stubborn{cfg.PeerListener}
		r := serving(t, cfg)
		if err := r.Close(t.Context()); !errors.Is(err, errDisk) {
			t.Errorf("stopped: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Errorf("stopped twice: %v", err)
		}
	})
}

// TestNodesThatHandOver verifies that a stopping node hands over if it leads others, has not failed and has the
// time.
func TestNodesThatHandOver(t *testing.T) {
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		nodes   int
		who     int // 0 is the leader
		ctx     context.Context
		prepare func(*simnet.Net, *teammate)
		moves   bool
		warns   bool
	}{
		"a leader":            {2, 0, t.Context(), nil, true, false},
		"a leader of none":    {1, 0, t.Context(), nil, false, false},
		"a follower":          {2, 1, t.Context(), nil, false, false},
		"without time":        {2, 0, stopped, nil, false, false},
		"after a failure":     {2, 0, t.Context(), func(_ *simnet.Net, r *teammate) { r.halted.Store(&errDisk) }, false, false},
		"to one that refuses": {2, 0, t.Context(), func(net *simnet.Net, r *teammate) { net.Reject("n1", "n2"); net.Reject("n2", "n1") }, false, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			net, nodes := openTogether(t, c.nodes)
			r, id := nodes[c.who], nodes[0].cfg.ID
			if c.prepare != nil {
				c.prepare(net, r)
			}
			r.handOver(c.ctx)
			leads := nodes[0].cluster.Raft().State() == raft.Leader
			if moved := !leads; moved != c.moves || (r.log.lines("not handed over") > 0) != c.warns {
				t.Errorf("%s: %s leads: %v, logged %s", name, id, leads, r.log.text.String())
			}
			r.halted.Store(nil)
		})
	}
	(&Replica{}).handOver(t.Context())
}

// TestWayOutOfDamage verifies that the advice about damage fits the size of the cluster.
func TestWayOutOfDamage(t *testing.T) {
	const backup, others = "qlock snapshot restore FILE --reason lost\nIf there are others", "The other nodes have all that was acknowledged"
	three := []Peer{{ID: "n1", Addr: "a:1"}, {ID: "n2", Addr: "b:1"}, {ID: "n3", Addr: "c:1"}}
	for _, c := range []struct {
		nodes  int
		stores storage.Backend
		says   string
	}{{0, storage.Backend{}, backup}, {1, storage.Backend{}, backup}, {2, storage.Backend{}, others}, {3, storage.Backend{}, others}, {1, inMemory(), others}} {
		r := &Replica{cfg: Config{ID: "n1", DataDir: "/d", Cluster: three[:c.nodes], Stores: c.stores, Advertise: Addresses{Peer: "a:1"}}}
		err := r.advice().Damaged(storage.ErrDamaged)
		if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "mv /d /d.damaged") {
			t.Errorf("%d nodes: %v", c.nodes, err)
		}
		if err := r.advice().Damaged(errDisk); err != errDisk {
			t.Errorf("no damage: %v", err)
		}
	}
}

// TestWhenTheMachineIsAsked verifies that the state machine is used if it has a cluster and is as new as the
// record.
func TestWhenTheMachineIsAsked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		ask := func(revision uint64, want bool) {
			t.Helper()
			looked := false
			if fresh := n.viewFrom(revision, func(*fsm.Machine) { looked = true }); fresh != want || looked != want {
				t.Errorf("at revision %d: fresh %v, looked %v", revision, fresh, looked)
			}
		}
		ask(0, false)
		n.applies(t, beginnings(someMember("n1"))...)
		var now uint64
		n.View(func(m *fsm.Machine) { now = m.Revision() })
		ask(now-1, true)
		ask(now, true)
		ask(now+1, false)
	})
}

// TestSettingsOfRaft verifies that raft's settings are those of the configuration, and those that the replica
// relies on.
func TestSettingsOfRaft(t *testing.T) {
	r := &Replica{log: (&logged{}).logger(), cfg: Config{
		ID: "n1", HeartbeatTimeout: 11, ElectionTimeout: 12, LeaderLeaseTimeout: 13, CommitTimeout: 14, TrailingLogs: 15, SnapshotThreshold: 16, SnapshotInterval: 17,
	}}
	log := r.log
	c := r.raftConfig(log)
	if c.LocalID != "n1" || c.HeartbeatTimeout != 11 || c.ElectionTimeout != 12 || c.LeaderLeaseTimeout != 13 || c.CommitTimeout != 14 || c.TrailingLogs != 15 ||
		c.SnapshotThreshold != 16 || c.SnapshotInterval != 17 || c.ShutdownOnRemove || !c.NoLegacyTelemetry || c.Logger != log || c.MaxAppendEntries != 64 {
		t.Errorf("%+v", c)
	}
}

// TestAddressesOfNodes verifies that a node's recorded address takes precedence over the one in raft's
// configuration.
func TestAddressesOfNodes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		if _, err := n.directory.Store(1, &wire.Membership{Members: []*wire.Member{{Id: "n2", PeerAddr: "now:1"}, {Id: "n3"}}}); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[raft.ServerID]raft.ServerAddress{"n2": "now:1", "n3": "old:1", "n9": "old:1"} {
			if got := n.cluster.Resolve(id, "old:1"); got != want {
				t.Errorf("%s is at %s, want %s", id, got, want)
			}
		}
	})
}
