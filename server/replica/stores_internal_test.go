package replica

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
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestIncarnationBelongsToTheLog(t *testing.T) {
	cfg := Config{ID: "n1", DataDir: t.TempDir()}.withDefaults()
	read := func() string {
		s, err := openStores(cfg, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		incarnation, err := openIdentity(cfg, s.stable)
		if err != nil {
			t.Fatal(err)
		}
		if file, err := readIdentity(filepath.Join(cfg.DataDir, identityFile)); err != nil || file.ID != "n1" || file.Incarnation != incarnation {
			t.Fatalf("identity file %v, %v", file, err)
		}
		return incarnation
	}
	remove := func(name string) {
		if err := os.RemoveAll(filepath.Join(cfg.DataDir, name)); err != nil {
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
	remove(logFile)
	if _, err := openStores(cfg, func(error) {}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a directory without its log was opened: %v", err)
	}
	remove(identityFile)
	if _, err := openStores(cfg, func(error) {}); !errors.Is(err, ErrDamaged) {
		t.Errorf("segments of a log without the rest were opened: %v", err)
	}
	remove(segmentDir)
	if again := read(); again == first {
		t.Error("a node without its log kept its incarnation: it would vote without its memory")
	}
	if err := os.WriteFile(filepath.Join(cfg.DataDir, identityFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readIdentity(filepath.Join(cfg.DataDir, identityFile)); err == nil {
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
		from := Stores{Log: store, Stable: store, Snapshots: store}
		s, err := assemble(Config{}, from, func(bool) error { return nil }, func(error) {})
		if !errors.Is(err, c.want) {
			t.Errorf("a log that begins at entry 5, %s: %v", name, err)
		}
		if err == nil {
			_ = s.close()
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

// TestDamagedIdentityFileIsMendedByTheAdvice damages the identity file in many ways and runs, literally, the
// command that the node prints. Since the log has the identity too, that always repairs it.
func TestDamagedIdentityFileIsMendedByTheAdvice(t *testing.T) {
	cfg := Config{ID: "n1", DataDir: filepath.Join(t.TempDir(), "n1")}.withDefaults()
	s := reopen(t, cfg)
	defer s.close()
	first, err := openIdentity(cfg, s.stable)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cfg.DataDir, identityFile)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, damaged []byte) (refused bool) {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := openIdentity(cfg, s.stable)
		if err != nil {
			if advice := advisedCommand.FindStringSubmatch(err.Error()); !errors.Is(err, ErrIdentityFile) || errors.Is(err, ErrDamaged) || len(advice) == 0 {
				t.Fatalf("%s: %v", what, err)
			} else if out, err := exec.Command("sh", "-c", advice[1]).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", what, err, out)
			}
		}
		if again, err := openIdentity(cfg, s.stable); err != nil || again != first {
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
	if again, err := openIdentity(cfg, s.stable); err != nil || again != first {
		t.Errorf("without the file: incarnation %s, %v", again, err)
	}
	// The log determines which node the directory belongs to, whatever is done to the file.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	cfg.ID = "n2"
	if _, err := openIdentity(cfg, s.stable); !errors.Is(err, ErrOtherNode) {
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
		cfg := Config{ID: "n1", DataDir: t.TempDir(), LogStore: LogInBolt}.withDefaults()
		path := filepath.Join(cfg.DataDir, identityFile)
		if err := obstruct(path); err != nil {
			t.Fatal(err)
		}
		stable := raft.NewInmemStore()
		if _, err := openIdentity(cfg, stable); err == nil || !strings.Contains(err.Error(), "write the node's identity") {
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
		if err := (&stores{stable: from, log: from, snapshots: from}).forgetCutBeginning(); !errors.Is(err, c.err) {
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
	if err := (&stores{stable: notebook{g}, log: g, snapshots: raft.NewInmemSnapshotStore()}).forgetCutBeginning(); !errors.Is(err, ErrStore) {
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
			from := Stores{Log: memory, Stable: memory, Snapshots: raft.NewInmemSnapshotStore()}
			s, err := assemble(Config{NoOverlap: !overlap}, from, func(is bool) error { sound = append(sound, is); return errDisk }, func(error) {})
			if err != nil || (s.overlap != nil) != overlap {
				t.Fatal(s, err)
			}
			if written, _ := s.isWritten(0); !written {
				t.Errorf("overlap %v: nothing is not written", overlap)
			}
			s.watchdog.broken.Store(broken)
			if err := s.close(); !errors.Is(err, errDisk) || !slices.Equal(sound, []bool{!broken}) {
				t.Errorf("broken %v, overlap %v: closed %v, %v", broken, overlap, sound, err)
			}
		}
	}
}

// TestSnapshotMeetsTheLog verifies that no entry may be missing between the newest snapshot and the first
// entry of the log.
func TestSnapshotMeetsTheLog(t *testing.T) {
	for first, want := range map[uint64]error{1: nil, 2: ErrDamaged, 6: nil, 7: ErrDamaged} {
		memory := raft.NewInmemStore()
		if err := memory.StoreLogs(entriesOf(first, first+1)); err != nil {
			t.Fatal(err)
		}
		s := stores{log: memory, snapshots: unreadable{}} // lists a snapshot of entry 5
		if first < 5 {
			s.snapshots = raft.NewInmemSnapshotStore()
		}
		if err := s.whole(); !errors.Is(err, want) {
			t.Errorf("a log from entry %d on: %v", first, err)
		}
	}
}

// TestStoresThatCannotBeOpened checks a log that another process reads, and snapshots that cannot be written.
func TestStoresThatCannotBeOpened(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := Config{ID: "n1", DataDir: t.TempDir()}.withDefaults()
		if err := reopen(t, cfg).close(); err != nil {
			t.Fatal(err)
		}
		reader, err := openFile(filepath.Join(cfg.DataDir, logFile), true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openStores(cfg, func(err error) { t.Error(err) }); !errors.Is(err, ErrInUse) {
			t.Errorf("while it is read: %v", err)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(cfg.DataDir, snapshotDir, "permTest"), 0o700); err != nil { // raft writes this file
			t.Fatal(err)
		}
		if _, err := openStores(cfg, func(err error) { t.Error(err) }); err == nil || !strings.Contains(err.Error(), "open the snapshots in "+cfg.DataDir) {
			t.Errorf("without writing a snapshot: %v", err)
		}
	})
}
