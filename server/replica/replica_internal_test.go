package replica

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// serving opens the only node of a cluster and waits until it serves. The caller closes it.
func serving(t *testing.T, cfg Config) *Replica {
	t.Helper()
	r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	awaitRaft(t, "the node serves", r.Serving)
	return r
}

// openSession opens a session, so that something is applied.
func (r *Replica) openSession(t *testing.T, name string) {
	t.Helper()
	hash := sha256.Sum256([]byte(name))
	answer := make(chan *wire.Result, 1)
	r.Propose(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		SecretHash: hash[:], TtlMs: 60_000, Client: &wire.ClientInfo{Name: name},
	}}}, func(result *wire.Result) { answer <- result })
	if result := <-answer; result.GetStatus() != wire.Status_OK {
		t.Fatal(result)
	}
}

// startContext calls began when Open asks for its deadline, which Open does after it has read the disk and
// before it runs raft.
type startContext struct {
	context.Context
	began func()
}

func (c startContext) Deadline() (time.Time, bool) {
	c.began()
	return c.Context.Deadline()
}

// TestDamageDuringTheStart damages the newest snapshot after it was checked. Raft uses an older one, but the
// node does not start.
func TestDamageDuringTheStart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		config := func() Config {
			cfg := lone(t, storage.Backend{}, func(err error) { t.Errorf("told to stop, not by Open: %v", err) })
			cfg.DataDir = dir
			return cfg
		}
		r := serving(t, config())
		for _, name := range []string{"a", "b"} {
			r.openSession(t, name)
			if err := r.cluster.Raft().Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
		list, err := r.stores.Snapshots.List()
		if err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		damage := sync.OnceFunc(func() {
			if err := os.Truncate(filepath.Join(dir, "snapshots", list[0].ID, "state.bin"), 1); err != nil {
				t.Error(err)
			}
		})
		if _, err := Open(startContext{t.Context(), damage}, config()); !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("opened: %v", err)
		}
	})
}

// unreadable lists a snapshot that cannot be opened.
type unreadable struct{ raft.SnapshotStore }

func (unreadable) List() ([]*raft.SnapshotMeta, error) {
	return []*raft.SnapshotMeta{{Version: 1, ID: "s", Index: 5, Term: 1}}, nil
}

func (unreadable) Open(string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	return nil, nil, errDisk
}

// TestUnreadableStateIsNotOpened verifies that Open returns an error if only raft finds the state unreadable.
func TestUnreadableStateIsNotOpened(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		stores := inMemory()
		stores.Snapshots = unreadable{}
		if _, err := Open(t.Context(), lone(t, stores, func(err error) { t.Error(err) })); err == nil {
			t.Error("opened without its snapshot")
		}
	})
}

// someRecord has n2 with its incarnation, and a removed member.
var someRecord = &wire.Membership{
	ClusterId: "c",
	Members:   []*wire.Member{{Id: "n1", Incarnation: "i1", PeerAddr: "h1:1"}, {Id: "n2", Incarnation: "i2", PeerAddr: "h2:1"}, {Id: "n3", PeerAddr: "h3:1"}},
	Removed:   []*wire.RemovedMember{{Incarnation: "gone"}},
}

// TestRecordAheadOfTheMachine verifies that the record of the members counts if the state machine has not
// caught up with it, as after a restart.
func TestRecordAheadOfTheMachine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		if _, err := r.directory.Store(1_000, someRecord); err != nil {
			t.Fatal(err)
		}
		for incarnation, want := range map[string]wire.Standing{"i2": wire.Standing_MEMBER, "gone": wire.Standing_REMOVED} {
			if got := r.directory.RecordedStanding("n2", incarnation); got != want {
				t.Errorf("node n2 with %q is %v, want %v", incarnation, got, want)
			}
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestClusterIsNoted verifies that the id of a new cluster is stored even if its members were known before.
func TestClusterIsNoted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		cluster := ""
		r.View(func(m *fsm.Machine) { cluster = m.ClusterID() })
		awaitRaft(t, "the cluster on record", func() bool { return r.directory.ClusterID() == cluster })
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStrangersLearnLittle asks a member and a node without a cluster. Only the latter shows its addresses,
// since any cluster may add it.
func TestStrangersLearnLittle(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		member := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		cfg := lone(t, inMemory(), func(err error) { t.Error(err) })
		cfg.Cluster = nil
		blank, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			what      string
			asked     *Replica
			caller    *wire.PeerHello
			addresses bool
		}{
			{"a member asks a member", member, &wire.PeerHello{Id: "n1", Incarnation: "i1"}, true},
			{"a stranger asks a member", member, &wire.PeerHello{Id: "n9", Incarnation: "i9"}, false},
			{"a stranger asks a node without a cluster", blank, &wire.PeerHello{Id: "n9", Incarnation: "i9"}, true},
		} {
			state := c.asked.nodeState(c.caller)
			if state.GetMember().GetId() != "n1" || (state.Member.PeerAddr != "") != c.addresses {
				t.Errorf("%s: %v", c.what, state)
			}
		}
		if err := errors.Join(member.Close(t.Context()), blank.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// TestGrantingGoesOnWhereNothingMoves suspends granting on a node that agrees with itself, and verifies that
// granting resumes although nothing else changes the state.
func TestGrantingGoesOnWhereNothingMoves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		suspended := func() (revision uint64) {
			r.View(func(m *fsm.Machine) { revision = m.GrantsSuspended() })
			return revision
		}
		suspend := &wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}}
		if err := r.do(t.Context(), r.current(), suspend, 0); err != nil || suspended() == 0 {
			t.Fatal(suspended(), err)
		}
		awaitRaft(t, "granting goes on", func() bool { return suspended() == 0 })
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
