package replica

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/directory"
	"github.com/quorumlock/quorumlock/server/rollback"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// faulty are stores with one operation that fails.
type faulty struct {
	*raft.InmemStore
	raft.SnapshotStore
	fails atomic.Pointer[string] // the operation, such as "get key"
	kept  atomic.Int64           // how often memoryKey was written
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
	if string(key) == string(memoryKey) {
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

// TestUnreadableStarts verifies that a start fails if one of its records cannot be read, decoded or written.
func TestUnreadableStarts(t *testing.T) {
	count := func(f *faulty) (*peerStates, error) {
		return openPeerStates(&Replica{stores: &storage.Stores{Log: f, Values: f, Snapshots: f}})
	}
	for _, what := range []string{
		"get " + string(divergedKey), "get " + string(rolledBackKey), "get " + string(forkedKey), "get " + string(bootKey), "get " + string(memoryKey),
		"get " + currentTerm, "get " + lastVoteTerm, "last index", "list", "set " + string(bootKey),
	} {
		if _, err := count(newFaulty(what)); !errors.Is(err, errDisk) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, key := range [][]byte{bootKey, memoryKey} {
		f := newFaulty("")
		if err := f.Set(key, []byte("\xff")); err != nil {
			t.Fatal(err)
		}
		if _, err := count(f); err == nil || !strings.Contains(err.Error(), string(key)) {
			t.Errorf("%s is no record: %v", key, err)
		}
	}
}

// TestStartsAreCounted verifies that starts are counted, with what the disk contains.
func TestStartsAreCounted(t *testing.T) {
	f := newFaulty("")
	sink, err := f.Create(raft.SnapshotVersionMax, 9, 4, raft.Configuration{}, 1, nil)
	if err == nil {
		err = errors.Join(sink.Close(), f.StoreLogs(entriesOf(1, 7)), f.SetUint64([]byte(currentTerm), 5), f.SetUint64([]byte(lastVoteTerm), 4))
	}
	if err != nil {
		t.Fatal(err)
	}
	for start := range uint64(2) {
		s, err := openPeerStates(&Replica{stores: &storage.Stores{Log: f, Values: f, Snapshots: f}})
		if err != nil {
			t.Fatal(err)
		}
		if at := s.boot.Stored; at.Boot != start+1 || at.Term != 5 || at.VoteTerm != 4 || at.LastIndex != 9 {
			t.Errorf("start %d: %v", start+1, at)
		}
	}
}

// TestNewTermsAreNoticed verifies that each new term is signalled once.
func TestNewTermsAreNoticed(t *testing.T) {
	s := &peerStates{begun: make(chan struct{}, 1)}
	for i, c := range []struct {
		term uint64
		news bool
	}{{0, false}, {3, true}, {3, false}, {4, true}, {4, false}} {
		if s.applied(c.term); len(s.begun) == 1 != c.news {
			t.Errorf("change %d, to term %d: news %v", i, c.term, !c.news)
		}
		if c.news {
			<-s.begun
		}
	}
	s.applied(5)
	s.applied(6) // the first signal has not been received yet
	if s.term.Load() != 6 {
		t.Errorf("the term is %d", s.term.Load())
	}
}

// withMembers returns a node that does not run, in a cluster with these members.
func withMembers(t *testing.T, members ...string) *Replica {
	t.Helper()
	r := governing(t)
	f := newFaulty("")
	var err error
	r.stores, err = storage.Open(storage.Options{Backend: f.stores(), NoOverlap: true, DiskTimeout: time.Hour, Failed: r.diskFailed})
	if err != nil {
		t.Fatal(err)
	}
	r.stores.Values = f
	r.cfg.ID = "n1"
	if r.directory, err = directory.Open(r.directoryConfig()); err == nil {
		err = r.loadAlarms()
	}
	if err == nil {
		err = r.recordMembers(members...)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.states = &peerStates{
		r: r, boot: rollback.NewBoot(nil, 7, &wire.StoredState{Term: 5, LastIndex: 9}), memory: rollback.Load(nil),
		met: map[string]metPeer{}, forked: map[string]bool{}, begun: make(chan struct{}, 1),
	}
	return r
}

func (r *Replica) recordMembers(ids ...string) error {
	record := &wire.Membership{}
	for _, id := range ids {
		record.Members = append(record.Members, &wire.Member{Id: id})
	}
	_, err := r.directory.Store(1, record)
	return err
}

func (r *Replica) haltedWith() error {
	if err := r.halted.Load(); err != nil {
		return *err
	}
	return nil
}

// TestNodesPartFromMost verifies that a node stops if the logs of most voters have forked from its own, and
// only then.
func TestNodesPartFromMost(t *testing.T) {
	forked := errors.Join(status.ErrForked)
	for name, c := range map[string]struct {
		members []string
		parts   []string
		err     error
		halts   bool
	}{
		"one of three":        {[]string{"n1", "n2", "n3"}, []string{"n2"}, forked, false},
		"one of three, twice": {[]string{"n1", "n2", "n3"}, []string{"n2", "n2"}, forked, false},
		"two of three":        {[]string{"n1", "n2", "n3"}, []string{"n2", "n3"}, forked, true},
		"two of four":         {[]string{"n1", "n2", "n3", "n4"}, []string{"n2", "n3"}, forked, false},
		"three of four":       {[]string{"n1", "n2", "n3", "n4"}, []string{"n2", "n3", "n4"}, forked, true},
		"strangers":           {[]string{"n1", "n2", "n3"}, []string{"n2", "n8", "n9"}, forked, false},
		"for another reason":  {[]string{"n1", "n2", "n3"}, []string{"n2", "n3"}, status.ErrRolledBack, false},
	} {
		r := withMembers(t, c.members...)
		for _, id := range c.parts {
			identity{r.directory, r.states}.Parted(id, c.err)
		}
		if err := r.haltedWith(); errors.Is(err, status.ErrForked) != c.halts || err != nil != c.halts {
			t.Errorf("%s: halted with %v", name, err)
		}
		last, _ := r.stores.Values.Get(forkedKey)
		if len(last) > 0 != c.halts {
			t.Errorf("%s: last words %q", name, last)
		}
	}
	r := withMembers(t, "n1", "n2", "n3")
	r.states.parted("n2", forked)
	if err := r.states.meet("n2", "i2", &wire.PeerState{}); err != nil {
		t.Fatal(err)
	}
	if r.states.parted("n3", forked); r.haltedWith() != nil {
		t.Error("a node that was met again still counts as one that parted")
	}
}

// TestMetNodesAreCompared verifies that a node stops if another one knows that its disk was rolled back.
func TestMetNodesAreCompared(t *testing.T) {
	knows := func(incarnation string, term uint64) *wire.PeerState {
		return &wire.PeerState{Known: &wire.KnownState{Incarnation: incarnation, LastStart: &wire.DiskEvidence{Boot: 1, Nonce: 7, Term: term}}}
	}
	before := &wire.DiskEvidence{Boot: 1, Nonce: 7, Term: 6}
	for name, c := range map[string]struct {
		said *wire.PeerState
		want error
	}{
		"nothing":                  {&wire.PeerState{}, nil},
		"this start":               {knows("i1", 6), nil},
		"an earlier start":         {&wire.PeerState{Known: &wire.KnownState{Incarnation: "i1", LastStart: &wire.DiskEvidence{Boot: 2, Nonce: 9}, Before: before}}, status.ErrRolledBack},
		"the same of another disk": {&wire.PeerState{Known: &wire.KnownState{Incarnation: "i0", LastStart: &wire.DiskEvidence{Boot: 2, Nonce: 9}, Before: before}}, nil},
		"another course":           {&wire.PeerState{Position: &wire.LogPosition{Revision: 2, TermStarts: []*wire.TermStart{{Term: 9, Revision: 2}}}}, status.ErrForked},
	} {
		r := withMembers(t, "n1", "n2")
		err := identity{r.directory, r.states}.Meet("n2", "i2", c.said)
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if halted := r.haltedWith(); errors.Is(halted, status.ErrRolledBack) != (c.want == status.ErrRolledBack) || (halted != nil) != (c.want == status.ErrRolledBack) {
			t.Errorf("%s: halted with %v", name, halted)
		}
		if known := r.states.Incarnation("n2"); (known == "i2") != (c.want == nil) || (r.states.memory.Known("i2") != nil) != (c.want == nil) {
			t.Errorf("%s: n2 is known as %q", name, known)
		}
		r.stopForGood(forkedKey, status.ErrForked, "again")
		if last, _ := r.stores.Values.Get(forkedKey); len(last) > 0 != (c.want != status.ErrRolledBack) {
			t.Errorf("%s: other last words %q", name, last)
		}
	}
}

// TestMemoryThatCannotBeKept verifies that a failure to store the memory is returned, and stops the node if
// the disk is the cause.
func TestMemoryThatCannotBeKept(t *testing.T) {
	r := withMembers(t, "n1", "n2")
	r.stores.Values.(*faulty).fails.Store(new("set " + string(memoryKey)))
	if err := r.states.keep(); !errors.Is(err, errDisk) || !errors.Is(r.haltedWith(), errDisk) {
		t.Errorf("%v, halted with %v", err, r.haltedWith())
	}
	r = withMembers(t, "n1", "n2")
	if _, err := r.directory.Store(2, &wire.Membership{Members: []*wire.Member{{Id: "n2", Incarnation: "\xff"}}}); err == nil {
		t.Error("an incarnation that is not text was stored")
	}
	r.states.memory.Met("\xff", &wire.PeerState{})
	if err := r.states.keep(); err == nil || r.haltedWith() != nil {
		t.Errorf("what is no text was kept: %v, halted with %v", err, r.haltedWith())
	}
}

// TestMemoryIsKeptWhenItHasChanged verifies that the memory is written only if it has changed.
func TestMemoryIsKeptWhenItHasChanged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFaulty("")
		r := serving(t, lone(t, f.stores(), func(err error) { t.Error(err) }))
		r.states.memory.Met("i2", &wire.PeerState{})
		time.Sleep(10 * memoryInterval)
		before := f.kept.Load()
		time.Sleep(10 * memoryInterval)
		if n := f.kept.Load() - before; n != 0 {
			t.Errorf("written %d times, and nothing has changed", n)
		}
		r.states.Voted("i2", 5)
		time.Sleep(10 * memoryInterval)
		if n := f.kept.Load() - before; n != 1 {
			t.Errorf("written %d times after one change", n)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatIsLearnedOfOthers verifies what a node remembers of others before and while raft runs.
func TestWhatIsLearnedOfOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		idle := withMembers(t, "n1")
		idle.states.Acknowledged("i2", 3) // before raft runs
		if idle.states.memory.Committed() != 0 {
			t.Error("something is committed")
		}
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		s, committed := r.states, r.cluster.Raft().CommitIndex()
		s.memory.Met("i2", &wire.PeerState{})
		s.Acknowledged("i2", committed+9)
		s.InTerm("i2", 4)
		s.Voted("i2", 3)
		if known := s.memory.Known("i2").GetLastStart(); known.GetCommittedIndex() != committed || known.GetTerm() != 4 || known.GetVoteTerm() != 3 {
			t.Errorf("known: %v", known)
		}
		if err := r.cluster.Raft().AddNonvoter("n5", "n5:7401", 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		if voters := r.votersKnown(); !slices.Equal(voters, []string{"n1"}) {
			t.Errorf("the voters are %v", voters)
		}
		now := unixMs(time.Now())
		for _, c := range []struct {
			id   string
			want uint64 // the median; of two, the lower one
		}{{"n9", now}, {"n5", now}, {"n1", now - 1_000}} { // a stranger, a non-voter, a voter
			if err := s.meet(c.id, "of "+c.id, &wire.PeerState{ClockUnixMs: now - 1_000}); err != nil {
				t.Error(err)
			}
			if got := s.medianClock(now); got != c.want {
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

// TestComplaints verifies that failed steps are logged while the leadership lasts.
func TestComplaints(t *testing.T) {
	r, out := governing(t), &logged{}
	r.log = hclog.New(&hclog.LoggerOptions{Output: out})
	lead := &leadership{ctx: r.ctx}
	var lines []int
	complain := func(err error) {
		r.warnFailed(lead, "do it", err)
		lines = append(lines, strings.Count(out.text.String(), "could not do it"))
	}
	complain(nil)
	complain(errDisk)
	r.cancel()
	complain(errDisk)
	if !slices.Equal(lines, []int{0, 1, 1}) {
		t.Errorf("logged %v", lines)
	}
}

// TestDoubtSuspendsGranting verifies that granting is suspended while it is unknown which state is right, and
// resumed when a majority agrees on a later state.
func TestDoubtSuspendsGranting(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		suspended := func() (revision uint64) {
			r.View(func(m *fsm.Machine) { revision = m.GrantsSuspended() })
			return revision
		}
		reconcile := func(doubt bool, agreed, since uint64) bool {
			r.reconcileGrants(r.current(), since, agreed, doubt)
			return suspended() != 0
		}
		if reconcile(false, 0, 0) {
			t.Error("suspended without a doubt")
		}
		if !reconcile(true, 0, 0) {
			t.Fatal("not suspended")
		}
		since := suspended()
		before := r.cluster.Raft().LastIndex()
		reconcile(true, 0, since)
		if now := r.cluster.Raft().LastIndex(); now != before || suspended() != since {
			t.Error("suspended again")
		}
		for _, c := range []struct {
			doubt  bool
			agreed uint64
			want   bool
		}{{true, since + 9, true}, {false, since - 1, true}, {false, since, false}} {
			if reconcile(c.doubt, c.agreed, since) != c.want {
				t.Errorf("in doubt %v, agreed at %d, suspended at %d: suspended %v", c.doubt, c.agreed, since, !c.want)
			}
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
			time.Sleep(2 * superviseInterval)
			before := r.cluster.Raft().LastIndex()
			time.Sleep(20 * superviseInterval)
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
