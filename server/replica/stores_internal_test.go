package replica

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
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
	store := raft.NewInmemStore()
	if err := store.StoreLogs([]*raft.Log{{Index: 5, Term: 1}, {Index: 6, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	from := Stores{Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore()}
	if _, err := assemble(Config{}, from, func(bool) error { return nil }, func(error) {}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a log that begins at entry 5 was opened without a snapshot: %v", err)
	}
}

// The candidate is blotted out before the term of a vote is written, and the first
// failure is the last write.
func TestVotesAndFailures(t *testing.T) {
	store := &failing{InmemStore: raft.NewInmemStore()}
	var told []error
	g := newGuard(store, store, time.Minute, func(err error) { told = append(told, err) })
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

// advisedCommand is what a message tells people to run.
var advisedCommand = regexp.MustCompile(`(?m)^  (rm .*)$`)

// The log has the identity too, so nothing that happens to the file costs more than the
// command that the node prints. Each damage is mended by running that, literally.
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
	for size := range len(sound) - 2 { // without the end of the line it is sound
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
	// The log says whose directory it is, whatever is done to the file.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	cfg.ID = "n2"
	if _, err := openIdentity(cfg, s.stable); !errors.Is(err, ErrOtherNode) {
		t.Errorf("another node took the directory: %v", err)
	}
}
