package replica

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage"
)

// reopen opens the stores of a node.
func reopen(t *testing.T, cfg Config) *storage.Stores {
	t.Helper()
	s, err := storage.Open(storage.Options{
		NodeID: cfg.ID, DataDir: cfg.DataDir, SegmentBytes: cfg.SegmentBytes, DiskTimeout: cfg.DiskTimeout, Failed: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// raftNode is raft alone on the stores of a node.
type raftNode struct {
	*raft.Raft
	stores *storage.Stores
	trans  *raft.InmemTransport
}

func startRaftNode(t *testing.T, cfg Config, others ...*raftNode) *raftNode {
	t.Helper()
	n := &raftNode{stores: reopen(t, cfg)}
	_, n.trans = raft.NewInmemTransport(raft.ServerAddress(cfg.ID))
	for _, o := range others {
		n.trans.Connect(o.trans.LocalAddr(), o.trans)
		o.trans.Connect(n.trans.LocalAddr(), n.trans)
	}
	r := &Replica{cfg: cfg}
	conf := r.raftConfig(cfg.Logger)
	if started, err := n.stores.HasState(); err != nil || !started && cfg.ID == "n1" {
		members := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1"}, {ID: "n2", Address: "n2", Suffrage: raft.Nonvoter}}}
		err = errors.Join(err, raft.BootstrapCluster(conf, n.stores.Log, n.stores.Votes, n.stores.Snapshots, n.trans, members))
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if n.Raft, err = raft.NewRaft(conf, &raft.MockFSM{}, n.stores.Log, n.stores.Votes, n.stores.Snapshots, n.trans); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *raftNode) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(n.Shutdown().Error(), n.stores.Close()); err != nil {
		t.Fatal(err)
	}
}

func awaitRaft(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(20 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("still waiting for ", what)
		}
	}
}

// TestFollowerThatWasSentASnapshot verifies a node whose log ends before what the leader still has: it is
// sent a snapshot, its log continues after that, and so it does when the node is opened again.
func TestFollowerThatWasSentASnapshot(t *testing.T) {
	config := func(id string) Config {
		return Config{
			ID: id, DataDir: filepath.Join(t.TempDir(), id), SegmentBytes: 64 << 10, TrailingLogs: 8,
			HeartbeatTimeout: 50 * time.Millisecond, ElectionTimeout: 50 * time.Millisecond, LeaderLeaseTimeout: 50 * time.Millisecond,
		}.withDefaults()
	}
	leader := startRaftNode(t, config("n1"))
	awaitRaft(t, "a leader", func() bool { return leader.State() == raft.Leader })
	follower := config("n2")
	apply := func(count int) {
		for i := range count {
			if err := leader.Apply(fmt.Appendf(nil, "%d %1000d", i, i), time.Minute).Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for round := range 3 {
		n := startRaftNode(t, follower, leader)
		apply(5)
		awaitRaft(t, "the follower", func() bool { return n.AppliedIndex() == leader.AppliedIndex() })
		metas, err := n.stores.Snapshots.List()
		if err != nil || len(metas) != min(round, 2) {
			t.Fatalf("round %d: the follower was sent %d snapshots, %v", round, len(metas), err)
		}
		n.stop(t)
		last := leader.LastIndex()
		s := reopen(t, follower)
		if got, err := s.Log.LastIndex(); err != nil || got != last {
			t.Errorf("round %d: the log ends at %d, want %d, %v", round, got, last, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		apply(40)
		if err := leader.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
	}
	leader.stop(t)
}
