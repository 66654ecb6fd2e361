package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/quorumlock/quorumlock/server/storage/segment"
	"github.com/quorumlock/quorumlock/server/storage/stable"
	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestIncarnationBelongsToTheLog(t *testing.T) {
	o := options(t.TempDir())
	read := func() string {
		s := reopen(t, o)
		defer s.Close()
		incarnation := s.Incarnation
		if file, err := readIdentity(filepath.Join(o.DataDir, identityFile)); err != nil || file.ID != "n1" || file.Incarnation != incarnation {
			t.Fatalf("identity file %v, %v", file, err)
		}
		return incarnation
	}
	remove := func(name string) {
		if err := os.RemoveAll(filepath.Join(o.DataDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	first := read()
	if again := read(); again != first {
		t.Errorf("incarnation %s became %s", first, again)
	}
	remove(identityFile)
	if again := read(); again != first {
		t.Errorf("without its file, incarnation %s became %s", first, again)
	}
	remove(stable.File)
	remove(stable.GenerationFile)
	if _, err := Open(o); !errors.Is(err, ErrDamaged) {
		t.Errorf("a directory without its values was opened: %v", err)
	}
	remove(identityFile)
	if _, err := Open(o); !errors.Is(err, ErrDamaged) {
		t.Errorf("segments of a log without the rest were opened: %v", err)
	}
	remove(segmentDir)
	if again := read(); again == first {
		t.Error("a node without its log kept its incarnation: it would vote without its memory")
	}
	if err := os.WriteFile(filepath.Join(o.DataDir, identityFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readIdentity(filepath.Join(o.DataDir, identityFile)); err == nil {
		t.Error("a damaged identity file was read")
	}
}

func TestLogWithoutItsBeginningIsRefused(t *testing.T) {
	memory := raft.NewInmemStore()
	if err := memory.StoreLogs([]*raft.Log{{Index: 5, Term: 1}, {Index: 6, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reading
		want error
	}{
		"without a snapshot":         {reading{}, ErrDamaged},
		"with unreadable snapshots":  {reading{noSnapshots: true}, errDisk},
		"that cannot be read":        {reading{noLog: true}, errDisk},
		"with a snapshot of entry 5": {reading{SnapshotStore: unreadable{}}, nil},
	} {
		store := c.reading
		if store.InmemStore = memory; store.SnapshotStore == nil {
			store.SnapshotStore = raft.NewInmemSnapshotStore()
		}
		from := Backend{Log: store, Stable: store, Snapshots: store}
		s, err := assemble(Options{}.withDefaults(), from, func(bool) error { return nil })
		if !errors.Is(err, c.want) {
			t.Errorf("a log that begins at entry 5, %s: %v", name, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestVotesAndFailures verifies that the candidate is overwritten before the term of a vote is written, and
// that nothing is written after the first failure.
func TestVotesAndFailures(t *testing.T) {
	store := &failing{InmemStore: raft.NewInmemStore()}
	var told []error
	g := newWatchdog(store, store, time.Minute, func(err error) { told = append(told, err) })
	set := func(key, value string) {
		if err := g.Set([]byte(key), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	set(lastVoteCandidate, "old")
	if err := g.SetUint64([]byte(lastVoteTerm), 7); err != nil {
		t.Fatal(err)
	}
	if candidate, _ := g.Get([]byte(lastVoteCandidate)); string(candidate) == "old" {
		t.Error("the vote of an older term stands beside the new one")
	}
	store.err = errors.New("no space left on device")
	if err := g.StoreLog(&raft.Log{Index: 1}); !errors.Is(err, ErrStore) || !errors.Is(err, store.err) {
		t.Errorf("a failed write: %v", err)
	}
	store.err = nil
	if err := g.StoreLog(&raft.Log{Index: 1}); !errors.Is(err, ErrStore) {
		t.Errorf("a write after the failure: %v", err)
	}
	if err := g.SetUint64([]byte("CurrentTerm"), 8); !errors.Is(err, ErrStore) {
		t.Errorf("a term after the failure: %v", err)
	}
	if len(told) != 1 {
		t.Errorf("told %v", told)
	}
}

type failing struct {
	*raft.InmemStore
	err error
}

func (f *failing) StoreLogs(entries []*raft.Log) error {
	if f.err != nil {
		return f.err
	}
	return f.InmemStore.StoreLogs(entries)
}

// rotten is a store in which every record is damaged.
type rotten struct{ *raft.InmemStore }

func (rotten) GetLog(uint64, *raft.Log) error   { return ErrDamaged }
func (rotten) Get([]byte) ([]byte, error)       { return nil, ErrDamaged }
func (rotten) GetUint64([]byte) (uint64, error) { return 0, ErrDamaged }

// TestDamageThatIsReadStopsTheNode verifies that reading a damaged record returns ErrDamaged and stops the
// node.
func TestDamageThatIsReadStopsTheNode(t *testing.T) {
	for what, read := range map[string]func(*watchdog) error{
		"an entry": func(g *watchdog) error { return g.GetLog(1, &raft.Log{}) },
		"a value":  func(g *watchdog) error { _, err := g.Get([]byte("key")); return err },
		"a number": func(g *watchdog) error { _, err := g.GetUint64([]byte("key")); return err },
	} {
		var told error
		store := rotten{raft.NewInmemStore()}
		g := newWatchdog(store, store, time.Minute, func(err error) { told = err })
		if err := read(g); !errors.Is(err, ErrDamaged) || !errors.Is(told, ErrDamaged) {
			t.Errorf("%s: %v, and the node was told %v", what, err, told)
		}
	}
}

// advisedCommand matches the command in a message to operators.
var advisedCommand = regexp.MustCompile(`(?m)^  (rm .*)$`)

// TestDamagedIdentityFileIsRepairedByTheAdvice damages the identity file in many ways and runs, literally, the
// command that the node prints. Since the log has the identity too, that always repairs it.
func TestDamagedIdentityFileIsRepairedByTheAdvice(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "n1"))
	s := reopen(t, o)
	defer s.Close()
	first := s.Incarnation
	path := filepath.Join(o.DataDir, identityFile)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, damaged []byte) (refused bool) {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := openIdentity(o, s.Values)
		if err != nil {
			if advice := advisedCommand.FindStringSubmatch(err.Error()); !errors.Is(err, ErrIdentityFile) || errors.Is(err, ErrDamaged) || len(advice) == 0 {
				t.Fatalf("%s: %v", what, err)
			} else if out, err := exec.Command("sh", "-c", advice[1]).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", what, err, out)
			}
		}
		if again, err := openIdentity(o, s.Values); err != nil || again != first {
			t.Fatalf("%s: did as it said: incarnation %s, %v", what, again, err)
		}
		return err != nil
	}
	refused := 0
	for size := range len(sound) - 2 { // it is intact without its final newline
		if !try(fmt.Sprintf("cut off after %d bytes", size), sound[:size]) {
			t.Errorf("cut off after %d bytes, and taken for sound", size)
		}
	}
	for bit := 0; bit < 8*len(sound); bit += 3 {
		damaged := slices.Clone(sound)
		damaged[bit/8] ^= 1 << (bit % 8)
		if try(fmt.Sprintf("bit %d", bit), damaged) {
			refused++
		}
	}
	if refused < 2*len(sound) {
		t.Errorf("%d of %d flipped bits were noticed", refused, 8*len(sound)/3)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if again, err := openIdentity(o, s.Values); err != nil || again != first {
		t.Errorf("without the file: incarnation %s, %v", again, err)
	}
	// The log determines which node the directory belongs to, whatever is done to the file.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	o.NodeID = "n2"
	if _, err := openIdentity(o, s.Values); !errors.Is(err, ErrOtherNode) {
		t.Errorf("another node took the directory: %v", err)
	}
}

// TestIdentityFileThatIsNotWritten verifies that a failure to write the identity file is returned and leaves
// no file.
func TestIdentityFileThatIsNotWritten(t *testing.T) {
	for what, obstruct := range map[string]func(path string) error{
		"the new file is a directory": func(path string) error { return os.Mkdir(path+".new", 0o700) },
		"the disk is full":            func(path string) error { return os.Symlink("/dev/full", path+".new") },
	} {
		o := options(t.TempDir())
		path := filepath.Join(o.DataDir, identityFile)
		if err := obstruct(path); err != nil {
			t.Fatal(err)
		}
		values := raft.NewInmemStore()
		if _, err := openIdentity(o, values); err == nil || !strings.Contains(err.Error(), "write the node's identity") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the file is there: %v", what, err)
		}
	}
}

// reading fails to read one thing.
type reading struct {
	*raft.InmemStore
	raft.SnapshotStore
	noTerm, noLog, noSnapshots bool
}

func (r reading) GetUint64(key []byte) (uint64, error) {
	if r.noTerm {
		return 1, errDisk
	}
	return r.InmemStore.GetUint64(key)
}

func (r reading) FirstIndex() (uint64, error) {
	if r.noLog {
		return 0, errDisk
	}
	return r.InmemStore.FirstIndex()
}

func (r reading) LastIndex() (uint64, error) {
	if r.noLog {
		return 0, errDisk
	}
	return r.InmemStore.LastIndex()
}

func (r reading) List() ([]*raft.SnapshotMeta, error) {
	if r.noSnapshots {
		return nil, errDisk
	}
	return r.SnapshotStore.List()
}

// TestTermIsForgottenOnlyOfACutBeginning verifies that a node drops term 1 if nothing else was written, and
// keeps its term in all cases in which it may have voted.
func TestTermIsForgottenOnlyOfACutBeginning(t *testing.T) {
	for name, c := range map[string]struct {
		reading
		term, want         uint64
		entries, snapshots bool
		err                error
	}{
		"a cut beginning":        {term: 1},
		"a later term":           {term: 2, want: 2},
		"a term with an entry":   {term: 1, entries: true, want: 1},
		"a term with a snapshot": {term: 1, snapshots: true, want: 1},
		"an unreadable term":     {term: 1, want: 1, reading: reading{noTerm: true}},
		"an unreadable log":      {term: 1, want: 1, reading: reading{noLog: true}, err: errDisk},
		"unreadable snapshots":   {term: 1, want: 1, reading: reading{noSnapshots: true}, err: errDisk},
	} {
		memory, from := raft.NewInmemStore(), c.reading
		from.InmemStore, from.SnapshotStore = memory, raft.NewInmemSnapshotStore()
		if err := memory.SetUint64([]byte(currentTerm), c.term); err != nil {
			t.Fatal(err)
		}
		if c.entries {
			_ = memory.StoreLog(&raft.Log{Index: 1, Term: 1})
		}
		if c.snapshots {
			from.SnapshotStore = unreadable{}
		}
		if err := (&Stores{Values: from, Log: from, Snapshots: from}).ForgetInterruptedBootstrap(); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if term, err := memory.GetUint64([]byte(currentTerm)); err != nil || term != c.want {
			t.Errorf("%s: term %d, %v", name, term, err)
		}
	}
}

// TestTermThatCannotBeForgotten verifies that a failure to drop the term is returned.
func TestTermThatCannotBeForgotten(t *testing.T) {
	memory := raft.NewInmemStore()
	if err := memory.SetUint64([]byte(currentTerm), 1); err != nil {
		t.Fatal(err)
	}
	g := newWatchdog(memory, memory, time.Minute, func(error) {})
	g.broken.Store(true)
	if err := (&Stores{Values: values{g}, Log: g, Snapshots: raft.NewInmemSnapshotStore()}).ForgetInterruptedBootstrap(); !errors.Is(err, ErrStore) {
		t.Errorf("forgotten: %v", err)
	}
}

// TestStoresAreClosedAsTheyAre verifies that closer learns whether all writes have succeeded, and that its
// error is returned.
func TestStoresAreClosedAsTheyAre(t *testing.T) {
	for _, broken := range []bool{false, true} {
		for _, overlap := range []bool{false, true} {
			var sound []bool
			memory := raft.NewInmemStore()
			from := Backend{Log: memory, Stable: memory, Snapshots: raft.NewInmemSnapshotStore()}
			s, err := assemble(Options{NoOverlap: !overlap}.withDefaults(), from, func(is bool) error { sound = append(sound, is); return errDisk })
			if err != nil || (s.overlap != nil) != overlap {
				t.Fatal(s, err)
			}
			if written, _ := s.IsWritten(0); !written {
				t.Errorf("overlap %v: nothing is not written", overlap)
			}
			s.watchdog.broken.Store(broken)
			if err := s.Close(); !errors.Is(err, errDisk) || !slices.Equal(sound, []bool{!broken}) {
				t.Errorf("broken %v, overlap %v: closed %v, %v", broken, overlap, sound, err)
			}
		}
	}
}

// TestSnapshotAdjoinsTheLog verifies that no entry may be missing between the newest snapshot and the first
// entry of the log.
func TestSnapshotAdjoinsTheLog(t *testing.T) {
	for first, want := range map[uint64]error{1: nil, 2: ErrDamaged, 6: nil, 7: ErrDamaged} {
		memory := raft.NewInmemStore()
		if err := memory.StoreLogs(entriesOf(first, first+1)); err != nil {
			t.Fatal(err)
		}
		s := Stores{Log: memory, Snapshots: unreadable{}} // lists a snapshot of entry 5
		if first < 5 {
			s.Snapshots = raft.NewInmemSnapshotStore()
		}
		if err := s.checkBeginning(); !errors.Is(err, want) {
			t.Errorf("a log from entry %d on: %v", first, err)
		}
	}
}

// TestStoresThatCannotBeOpened checks values that another process reads, and snapshots that cannot be written.
func TestStoresThatCannotBeOpened(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := options(t.TempDir())
		closed(t, reopen(t, o))
		reader, err := bbolt.Open(filepath.Join(o.DataDir, stable.File), 0o600, &bbolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(o); !errors.Is(err, ErrInUse) {
			t.Errorf("while they are read: %v", err)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(o.DataDir, snapshotDir, "permTest"), 0o700); err != nil { // raft writes this file
			t.Fatal(err)
		}
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "open the snapshots in "+o.DataDir) {
			t.Errorf("without writing a snapshot: %v", err)
		}
	})
}

// unreadable is a snapshot store with a snapshot of entry 5 that cannot be read.
type unreadable struct{ raft.SnapshotStore }

func (unreadable) List() ([]*raft.SnapshotMeta, error) {
	return []*raft.SnapshotMeta{{Version: 1, ID: "s", Index: 5, Term: 1}}, nil
}

// TestRecordedEndOfTheLog verifies that a record of the log's end is decoded as it was encoded, and that one
// of another size is damage.
func TestRecordedEndOfTheLog(t *testing.T) {
	id, end := segment.ID{1, 2, 3}, segment.Position{File: 1 << 40, Sector: 7}
	data := encodeLogEnd(id, end)
	if gotID, gotEnd, err := decodeLogEnd(data); err != nil || gotID != id || gotEnd != end {
		t.Errorf("%v %v, %v", gotID, gotEnd, err)
	}
	for _, size := range []int{0, len(data) - 1, len(data) + 1} {
		if _, _, err := decodeLogEnd(make([]byte, size)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestDirectoriesWithoutValues checks data directories with parts of a node's data but without its values.
func TestDirectoriesWithoutValues(t *testing.T) {
	for name, c := range map[string]struct {
		left     string // the remaining file
		snapshot uint64
		damaged  bool
	}{
		"new":                {},
		"an empty directory": {left: segmentDir + "/"},
		"an identity":        {left: identityFile, damaged: true},
		"a snapshot":         {snapshot: 5, damaged: true},
		"a segment":          {left: segmentDir + "/1.segment", damaged: true},
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, c.left+"x")), 0o700); err != nil {
			t.Fatal(err)
		}
		if c.left != "" && !strings.HasSuffix(c.left, "/") {
			overwrite(t, filepath.Join(dir, c.left), nil)
		}
		if err := inspect(dir, c.snapshot); errors.Is(err, ErrDamaged) != c.damaged || err != nil != c.damaged {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	overwrite(t, filepath.Join(dir, segmentDir), nil)
	if err := inspect(dir, 0); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file in place of the segments: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, stable.File), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := inspect(dir, 0); err == nil {
		t.Error("a directory in place of the values")
	}
}

// TestGrownBy verifies the exact limit from which the log counts as grown.
func TestGrownBy(t *testing.T) {
	memory := raft.NewInmemStore()
	s, err := Open(Options{Backend: Backend{Log: memory, Stable: memory, Snapshots: raft.NewInmemSnapshotStore(), Incarnation: "i"}, NoOverlap: true, DiskTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Log.StoreLog(&raft.Log{Index: 1, Term: 1, Data: make([]byte, 10)}); err != nil {
		t.Fatal(err)
	}
	if s.GrownBy(11) || !s.GrownBy(10) || s.GrownBy(1) {
		t.Error("an entry of 10 bytes is not counted once")
	}
	closed(t, s)
}
