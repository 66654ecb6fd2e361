package replica

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// faulty are stores with one operation that fails.
type faulty struct {
	*raft.InmemStore
	raft.SnapshotStore
	fails atomic.Pointer[string] // the operation, such as "get key"
	kept  atomic.Int64           // how often the memory of peers was written
}

func newFaulty(fails string) *faulty {
	f := &faulty{InmemStore: raft.NewInmemStore(), SnapshotStore: raft.NewInmemSnapshotStore()}
	f.fails.Store(&fails)
	return f
}

func (f *faulty) fail(what string) error {
	if *f.fails.Load() == what {
		return errDisk
	}
	return nil
}

func (f *faulty) Get(key []byte) ([]byte, error) {
	if err := f.fail("get " + string(key)); err != nil {
		return nil, err
	}
	return f.InmemStore.Get(key)
}

func (f *faulty) Set(key, value []byte) error {
	if string(key) == "quorumlock.peers" {
		f.kept.Add(1)
	}
	if err := f.fail("set " + string(key)); err != nil {
		return err
	}
	return f.InmemStore.Set(key, value)
}

func (f *faulty) GetUint64(key []byte) (uint64, error) {
	if err := f.fail("get " + string(key)); err != nil {
		return 0, err
	}
	return f.InmemStore.GetUint64(key)
}

func (f *faulty) LastIndex() (uint64, error) {
	if err := f.fail("last index"); err != nil {
		return 0, err
	}
	return f.InmemStore.LastIndex()
}

func (f *faulty) List() ([]*raft.SnapshotMeta, error) {
	if err := f.fail("list"); err != nil {
		return nil, err
	}
	return f.SnapshotStore.List()
}

func (f *faulty) stores() storage.Backend {
	return storage.Backend{Log: f, Stable: f, Snapshots: f, Incarnation: "i1"}
}

// TestMemoryIsKeptWhenItHasChanged verifies that the memory is written only if it has changed.
func TestMemoryIsKeptWhenItHasChanged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFaulty("")
		r := serving(t, lone(t, f.stores(), func(err error) { t.Error(err) }))
		if err := r.peers.CheckState("n2", "i2", &wire.PeerState{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		before := f.kept.Load()
		time.Sleep(10 * time.Second)
		if n := f.kept.Load() - before; n != 0 {
			t.Errorf("written %d times, and nothing has changed", n)
		}
		r.peers.Voted("i2", 5)
		time.Sleep(10 * time.Second)
		if n := f.kept.Load() - before; n != 1 {
			t.Errorf("written %d times after one change", n)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatIsLearnedOfOthers verifies what a node remembers of others while raft runs.
func TestWhatIsLearnedOfOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		s, committed := r.peers, r.cluster.Raft().CommitIndex()
		if err := s.CheckState("n2", "i2", &wire.PeerState{}); err != nil {
			t.Fatal(err)
		}
		s.Acknowledged("i2", committed+9)
		s.InTerm("i2", 4)
		s.Voted("i2", 3)
		if known := s.State("i2").GetKnown().GetLastStart(); known.GetCommittedIndex() != committed || known.GetTerm() != 4 || known.GetVoteTerm() != 3 {
			t.Errorf("known: %v", known)
		}
		if err := r.cluster.Raft().AddNonvoter("n5", "n5:7401", 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		if voters := r.cluster.Voters(); !slices.Equal(voters, []string{"n1"}) {
			t.Errorf("the voters are %v", voters)
		}
		now := unixMs(time.Now())
		for _, c := range []struct {
			id   string
			want uint64 // the median; of two, the lower one
		}{{"n9", now}, {"n5", now}, {"n1", now - 1_000}} { // a stranger, a non-voter, a voter
			if err := s.CheckState(c.id, "of "+c.id, &wire.PeerState{ClockUnixMs: now - 1_000}); err != nil {
				t.Error(err)
			}
			if got := s.MedianClock(now); got != c.want {
				t.Errorf("with the clock of %s it is %d ms earlier", c.id, now-got)
			}
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestUnreadableSnapshotsKeepTheLog verifies that entries are not deleted if the snapshots cannot be read.
func TestUnreadableSnapshotsKeepTheLog(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFaulty("")
		r := serving(t, lone(t, f.stores(), func(err error) { t.Error(err) }))
		f.fails.Store(new("list"))
		last := r.cluster.Raft().LastIndex()
		if err := r.keepsCommitted(last, last); !errors.Is(err, errDisk) {
			t.Errorf("the end may be cut: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLeadersRecordThemselves verifies that a leader records itself only if something has changed, and uses
// the level that all members support.
func TestLeadersRecordThemselves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		stores := inMemory()
		for _, addr := range []string{"h1:1", "h1:2"} {
			cfg := lone(t, stores, func(err error) { t.Error(err) })
			cfg.Advertise.Client = addr
			r := serving(t, cfg)
			awaitRaft(t, "the address on record", func() (known bool) {
				r.View(func(m *fsm.Machine) {
					self, _ := m.Member("n1")
					known = self.GetClientAddr() == addr && m.FeatureLevel() == fsm.Level
				})
				return known
			})
			time.Sleep(time.Second)
			before := r.cluster.Raft().LastIndex()
			time.Sleep(10 * time.Second)
			if n := r.cluster.Raft().LastIndex() - before; n != 0 {
				t.Errorf("%d entries of an idle node", n)
			}
			level := uint32(0)
			r.onCommand(func(*wire.Command) bool { return true }, func(data []byte) raft.ApplyFuture {
				var entry wire.Entry
				if err := proto.Unmarshal(data, &entry); err != nil {
					t.Error(err)
				}
				level = entry.Level
				return refuseEntry(data)
			})
			r.Propose(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: make([]byte, 32), TtlMs: 60_000}}}, func(*wire.Result) {})
			synctest.Wait()
			if level != fsm.Level {
				t.Errorf("entries are of level %d", level)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
