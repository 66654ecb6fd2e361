package peers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/rollback"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var errDisk = errors.New("input/output error")

// Keys of raft in the stable store.
const currentTerm, lastVoteTerm = "CurrentTerm", "LastVoteTerm"

func entriesOf(from, to uint64) (all []*raft.Log) {
	for i := from; i <= to; i++ {
		all = append(all, &raft.Log{Index: i, Term: 2})
	}
	return all
}

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
	count := func(f *faulty) (*Peers, error) {
		return Open(Config{Stores: &storage.Stores{Log: f, Values: f, Snapshots: f}})
	}
	for _, what := range []string{
		"get " + string(bootKey), "get " + string(memoryKey),
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
		s, err := Open(Config{Stores: &storage.Stores{Log: f, Values: f, Snapshots: f}})
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
	s := &Peers{termChanged: make(chan struct{}, 1)}
	for i, c := range []struct {
		term uint64
		news bool
	}{{0, false}, {3, true}, {3, false}, {4, true}, {4, false}} {
		if s.Applied(&wire.TermStart{Term: c.term}); len(s.termChanged) == 1 != c.news {
			t.Errorf("change %d, to term %d: news %v", i, c.term, !c.news)
		}
		if c.news {
			<-s.termChanged
		}
	}
	s.Applied(&wire.TermStart{Term: 5})
	s.Applied(&wire.TermStart{Term: 6}) // the first signal has not been received yet
	if s.LatestTerm().GetTerm() != 6 {
		t.Errorf("the term is %d", s.LatestTerm().GetTerm())
	}
}

// parts are Peers of node n1 in a cluster with these members, and what they asked the node to do.
type parts struct {
	*Peers
	store      *faulty
	failed     error // with which the storage stopped the node
	alarms     []string
	rolledBack []string
	forked     []string
}

func withMembers(t *testing.T, members ...string) *parts {
	t.Helper()
	p := &parts{store: newFaulty("")}
	stores, err := storage.Open(storage.Options{Backend: p.store.stores(), NoOverlap: true, DiskTimeout: time.Hour, Failed: func(err error) { p.failed = err }})
	if err != nil {
		t.Fatal(err)
	}
	stores.Values = p.store
	d, err := directory.Open(directory.Config{
		ID: "n1", Incarnation: "i1", Values: p.store, View: func(uint64, func(*fsm.Machine)) bool { return false },
		Ask: func(context.Context, directory.Peer, string, *wire.StandingRequest) wire.Standing {
			return wire.Standing_UNKNOWN
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	record := &wire.Membership{}
	for _, id := range members {
		record.Members = append(record.Members, &wire.Member{Id: id})
	}
	if _, err := d.Store(1, record); err != nil {
		t.Fatal(err)
	}
	machine := fsm.NewReplicated(fsm.Level, func(err error) { t.Error(err) })
	entry, err := proto.Marshal(&wire.Entry{Level: 1, Commands: []*wire.Command{
		{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}},
		{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	machine.Apply(&raft.Log{Index: 1, Data: entry})
	p.Peers, err = Open(Config{
		Stores: stores, Machine: machine, Directory: d, Cluster: &cluster.Cluster{Directory: d}, Logger: hclog.NewNullLogger(),
		Alarm:      func(id, _ string) { p.alarms = append(p.alarms, id) },
		RolledBack: func(knower, _ string) { p.rolledBack = append(p.rolledBack, knower) },
		Forked:     func(why string) { p.forked = append(p.forked, why) },
		Disconnect: func(string) {}, Contact: func(context.Context) {}, Announced: func(uint64) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.boot = rollback.NewBoot(nil, 7, &wire.StoredState{Term: 5, LastIndex: 9})
	return p
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
			r.Incompatible(id, c.err)
		}
		if len(r.forked) > 0 != c.halts {
			t.Errorf("%s: stops %v", name, r.forked)
		}
	}
	r := withMembers(t, "n1", "n2", "n3")
	r.Incompatible("n2", forked)
	if err := r.CheckState("n2", "i2", &wire.PeerState{}); err != nil {
		t.Fatal(err)
	}
	if r.Incompatible("n3", forked); len(r.forked) > 0 {
		t.Error("a node that connected again still counts as forked")
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
		err := r.CheckState("n2", "i2", c.said)
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(r.rolledBack) > 0 != (c.want == status.ErrRolledBack) || len(r.alarms) > 0 != (c.want == status.ErrForked) {
			t.Errorf("%s: rolled back %v, alarms %v", name, r.rolledBack, r.alarms)
		}
		if known := r.Incarnation("n2"); (known == "i2") != (c.want == nil) || (r.memory.Known("i2") != nil) != (c.want == nil) {
			t.Errorf("%s: n2 is known as %q", name, known)
		}
	}
}

// TestMemoryThatCannotBeKept verifies that a failure to store the memory is returned, and stops the node if the disk is
// the cause.
func TestMemoryThatCannotBeKept(t *testing.T) {
	p := withMembers(t, "n1", "n2")
	p.store.fails.Store(new("set " + string(memoryKey)))
	if err := p.keep(); !errors.Is(err, errDisk) || !errors.Is(p.failed, errDisk) {
		t.Errorf("%v, the node stops with %v", err, p.failed)
	}
	p = withMembers(t, "n1", "n2")
	if _, err := p.cfg.Directory.Store(2, &wire.Membership{Members: []*wire.Member{{Id: "n2", Incarnation: "\xff"}}}); err == nil {
		t.Error("an incarnation that is not text was stored")
	}
	p.memory.RecordStart("\xff", &wire.PeerState{})
	if err := p.keep(); err == nil || p.failed != nil {
		t.Errorf("what is no text was kept: %v, the node stops with %v", err, p.failed)
	}
}

// TestNothingIsCommittedBeforeRaftRuns verifies that an acknowledgement counts only up to raft's commit index.
func TestNothingIsCommittedBeforeRaftRuns(t *testing.T) {
	p := withMembers(t, "n1")
	p.Acknowledged("i2", 3)
	if p.Committed() != 0 {
		t.Error("something is committed")
	}
}
