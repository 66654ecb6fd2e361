package schedule

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup"
	"github.com/quorumlock/quorumlock/server/internal/backup/store"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// backupOf returns a backup of a cluster at a revision.
func backupOf(t *testing.T, cluster, lineage string, revision int) []byte {
	t.Helper()
	m := fsm.NewReplicated(fsm.Level, func(err error) { t.Error(err) })
	commands := []*wire.Command{{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: cluster, Lineage: lineage, Settings: fsm.DefaultSettings()}}}}
	for range revision - 1 {
		commands = append(commands, &wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}})
	}
	data, err := proto.Marshal(&wire.Entry{Level: 1, Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(&raft.Log{Index: 1, Data: data})
	var b bytes.Buffer
	if err := backup.Write(t.Context(), m.Fork(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// future returns the name of a file from a clock that ran ahead.
func future(i int) string {
	return store.Name{Cluster: "c1", Time: time.Date(2199, 1, 1, 0, 0, i, 0, time.UTC), Revision: 1 << 60}.String()
}

// place is a store of a test, and how anybody else puts a file there.
type place struct {
	store.Store
	plant func(t *testing.T, name string, data []byte)
	dir   string // only of a directory
}

func directory(t *testing.T) place {
	dir := t.TempDir()
	d, err := store.OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	return place{Store: d, dir: dir, plant: func(t *testing.T, name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}}
}

func bucket(t *testing.T) place {
	backend := s3mem.New()
	if err := backend.CreateBucket("locks"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	b, err := store.OpenBucket("s3://locks/prod?insecure=true&region=us-east-1&endpoint=" + strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return place{Store: b, plant: func(t *testing.T, name string, data []byte) {
		write := func(w io.Writer) error { _, err := w.Write(data); return err }
		if err := b.Put(t.Context(), name, write, func(io.Reader) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}}
}

func (p place) names(t *testing.T) (names []string) {
	t.Helper()
	files, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name)
	}
	return names
}

// planted is what may lie among the backups.
type planted struct {
	put func(p place, t *testing.T)
	// foreign is the number of files that stay and are reported.
	foreign int
}

// litter returns everything that may lie in a store.
func litter(t *testing.T) map[string]planted {
	three := func(data []byte) func(place, *testing.T) {
		return func(p place, t *testing.T) {
			for i := range 3 {
				p.plant(t, future(i), data)
			}
		}
	}
	good := backupOf(t, "c1", "l1", 1)
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	all := map[string]planted{
		"nothing":                     {func(place, *testing.T) {}, 0},
		"its own, under future names": {three(good), 0},
		"another cluster's":           {three(backupOf(t, "c2", "l1", 1)), 3},
		"not backups":                 {three([]byte("garbage")), 3},
		"half-written ones":           {three(good[:len(good)/2]), 3},
		"damaged ones":                {three(flipped), 3},
		"ones of the future":          {three(backupOf(t, "c1", "l1", 100)), 3},
		"ones of an earlier history": {func(p place, t *testing.T) {
			for i := range 3 {
				p.plant(t, future(i), backupOf(t, "c1", "l0", 200+i))
			}
		}, 0},
	}
	return all
}

// odd is what only a directory can have.
func odd(t *testing.T) map[string]planted {
	good := backupOf(t, "c1", "l1", 1)
	return map[string]planted{
		"empty files": {func(p place, t *testing.T) { p.plant(t, future(0), nil) }, 1},
		"pipes": {func(p place, t *testing.T) {
			if err := unix.Mkfifo(filepath.Join(p.dir, future(0)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, 1},
		"directories": {func(p place, t *testing.T) {
			if err := os.Mkdir(filepath.Join(p.dir, future(0)), 0o700); err != nil {
				t.Fatal(err)
			}
		}, 1},
		"links": {func(p place, t *testing.T) {
			p.plant(t, "elsewhere", good)
			if err := os.Symlink("elsewhere", filepath.Join(p.dir, future(0))); err != nil {
				t.Fatal(err)
			}
		}, 1},
	}
}

// TestWhatLiesAmongTheBackups crosses what may lie in a store with the kinds of stores and the numbers of backups to keep.
// Every backup that is made stays until there are enough later ones, what is not the cluster's stays and is counted, and
// nothing else remains.
func TestWhatLiesAmongTheBackups(t *testing.T) {
	for kind, open := range map[string]func(*testing.T) place{"directory": directory, "bucket": bucket} {
		cases := litter(t)
		if kind == "directory" {
			for what, one := range odd(t) {
				cases[what] = one
			}
		}
		for what, one := range cases {
			for _, keep := range []int{0, 1, 3} {
				t.Run(fmt.Sprintf("%s/%s/keep %d", kind, what, keep), func(t *testing.T) { retains(t, open(t), one, keep) })
			}
		}
	}
}

func retains(t *testing.T, p place, one planted, keep int) {
	h := newHistory(t)
	h.apply(&wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}}) // later than its own that are planted
	one.put(p, t)
	before := p.names(t)
	k := h.keeper("n1", "@hourly")
	k.cfg.Stores, k.cfg.Keep = []store.Store{p}, keep
	k.known, k.foreign = make([]map[string]inspected, 1), make([][]string, 1)
	var made []string
	for range 5 {
		k.attempt(t.Context(), h.record)
		if len(h.outcome) != len(made)+1 || h.outcome[len(made)] != nil {
			t.Fatal(h.outcome)
		}
		made = append(made, h.last().Name)
		names, from := p.names(t), max(0, len(made)-keep)
		if keep == 0 {
			from = 0
		}
		for i, name := range made {
			if kept := slices.Contains(names, name); kept != (i >= from) {
				t.Fatalf("after %d backups, number %d is there: %v; %v", len(made), i+1, kept, names)
			}
		}
		if got := k.ForeignFiles(); got != one.foreign {
			t.Fatalf("%d foreign files are counted, want %d", got, one.foreign)
		}
	}
	for _, name := range before {
		if stays := slices.Contains(p.names(t), name); stays != (keep == 0 || one.foreign > 0) {
			t.Errorf("%s is there: %v", name, stays)
		}
	}
	err := p.Read(t.Context(), h.last().Name, func(r io.Reader) error { _, err := fsm.Restore(r, fsm.Level); return err })
	if err != nil {
		t.Error(err)
	}
}

// TestUnchangedFilesAreNotReadAgain verifies that retention reads a file when it sees it first, and again when its tag has
// changed.
func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	h := newHistory(t)
	k := h.keeper("n1", "@hourly")
	other := backupOf(t, "c2", "l1", 1)
	h.near.files[future(0)] = other
	reads := func() int { defer func() { h.near.reads = 0 }(); return h.near.reads }
	for i, want := range []int{3, 2, 2} { // the copy, the new file, and the other cluster's at first
		k.attempt(t.Context(), h.record)
		if got := reads(); got != want {
			t.Errorf("attempt %d reads %d files, want %d", i, got, want)
		}
	}
	h.near.set(func(s *memory) { s.files[future(0)] = backupOf(t, "c1", "l1", 1) })
	k.attempt(t.Context(), h.record)
	if got := reads(); got != 3 || k.ForeignFiles() != 0 || slices.Contains(h.near.names(), future(0)) {
		t.Errorf("%d reads, %d foreign, %v", got, k.ForeignFiles(), h.near.names())
	}
}

// TestNamesInUseAreNotTaken verifies that a backup gets another name if there is a file of its name, in each store, and
// that an upload that an earlier attempt has finished is not repeated.
func TestNamesInUseAreNotTaken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHistory(t)
		taken := store.Name{Cluster: "c1", Time: time.Now(), Revision: 1}
		h.near.files[taken.String()], h.far.files[taken.String()] = []byte("theirs"), []byte("theirs")
		k := h.keeper("n1", "@daily")
		h.refuse = errFull
		k.attempt(t.Context(), h.record)
		h.refuse = nil
		k.attempt(t.Context(), h.record)
		taken.Copy = 2
		for _, s := range []*memory{h.near, h.far} {
			if names := s.names(); len(names) != 2 || !slices.Contains(names, taken.String()) || string(s.files[store.Name{Cluster: "c1", Time: time.Now(), Revision: 1}.String()]) != "theirs" {
				t.Errorf("%v", names)
			}
		}
		if h.last().GetName() != taken.String() || h.far.puts.Load() != 1 {
			t.Errorf("recorded %v after %d uploads", h.last(), h.far.puts.Load())
		}
	})
}

// TestClockThatRanAhead verifies that a clock that was wrong once neither stops the schedule nor costs a backup: its
// backups are the earliest, whatever their names say.
func TestClockThatRanAhead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHistory(t)
		for i := range 3 {
			h.near.files[future(i)] = backupOf(t, "c1", "l1", 1)
		}
		h.apply(&wire.Command{Op: &wire.Command_RecordBackup{RecordBackup: &wire.RecordBackup{Backup: &wire.SavedBackup{
			Name: future(2), NodeId: "n2", Lineage: "l1", Revision: 1, UnixMs: time.Date(2199, 1, 1, 0, 0, 2, 0, time.UTC).UnixMilli(),
		}}}})
		h.lead(h.keeper("n1", "@every 1h"), 5*time.Hour+time.Minute)
		names := h.near.names()
		if len(h.outcome) != 5 || len(names) != 3 || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "2199") }) {
			t.Errorf("%d backups, %v are kept", len(h.outcome), names)
		}
	})
}

// TestPresentHistoryCountsFirst verifies that after a restore the backups of the earlier history give way, and those of the
// present one never, also if its revisions are smaller.
func TestPresentHistoryCountsFirst(t *testing.T) {
	made := &written{content: content{"c1", version{"l2", 4}}, about: &wire.SavedBackup{Name: "x4"}}
	known := map[string]inspected{}
	for name, v := range map[string]version{"x4": {"l2", 4}, "x3": {"l2", 3}, "y9": {"l1", 9}, "y8": {"l1", 8}, "z8": {"l0", 8}} {
		known[name] = inspected{content: content{"c1", v}}
	}
	for keep, want := range map[int][]string{0: nil, 1: {"x3", "y8", "y9", "z8"}, 2: {"y8", "y9", "z8"}, 3: {"y8", "z8"}, 4: {"y8"}, 5: nil} {
		drop, foreign := superfluous(known, made, keep, nil)
		slices.Sort(drop)
		if !slices.Equal(drop, want) || len(foreign) > 0 {
			t.Errorf("keep %d: removes %v, want %v", keep, drop, want)
		}
	}
	if drop, _ := superfluous(known, made, 1, &wire.SavedBackup{Lineage: "l1", Revision: 8}); slices.Contains(drop, "y8") {
		t.Errorf("the last good one is removed: %v", drop)
	}
}

// TestLostContextReadsNothing verifies that retention ends with the leadership, and keeps everything then.
func TestLostContextReadsNothing(t *testing.T) {
	h := newHistory(t)
	for i := range 3 {
		h.near.files[future(i)] = backupOf(t, "c1", "l1", 1)
	}
	k := h.keeper("n1", "@hourly")
	k.cfg.Keep = 1
	ctx, cancel := context.WithCancel(t.Context())
	k.attempt(ctx, func(ctx context.Context, b *wire.SavedBackup) error { cancel(); return h.record(ctx, b) })
	if got := h.near.names(); len(got) != 4 {
		t.Errorf("%v are left", got)
	}
}

// TestCopiesCountLast verifies that copies of one backup do not displace others, and that of several files with the state
// just made the one that was written stays.
func TestCopiesCountLast(t *testing.T) {
	made := &written{content: content{"c1", version{"l1", 4}}, about: &wire.SavedBackup{Name: "m"}}
	known := map[string]inspected{}
	for name, revision := range map[string]uint64{"m": 4, "z1": 4, "z2": 4, "z3": 4, "x3": 3, "x2": 2} {
		known[name] = inspected{content: content{"c1", version{"l1", revision}}}
	}
	for keep, want := range map[int][]string{1: {"x2", "x3", "z1", "z2", "z3"}, 2: {"x2", "z1", "z2", "z3"}, 3: {"z1", "z2", "z3"}, 5: {"z1"}} {
		drop, _ := superfluous(known, made, keep, nil)
		if slices.Sort(drop); !slices.Equal(drop, want) {
			t.Errorf("keep %d: removes %v, want %v", keep, drop, want)
		}
	}
}

// TestFinishedBackupIsNotUsedAgain verifies that each attempt after a success makes another backup, whatever the clock says
// about the next one.
func TestFinishedBackupIsNotUsedAgain(t *testing.T) {
	h := newHistory(t)
	k := h.keeper("n1", "@yearly")
	for range 2 {
		k.attempt(t.Context(), h.record)
	}
	if names := h.near.names(); len(names) != 2 || h.last().Revision != 2 {
		t.Errorf("%v, %v was recorded", names, h.last())
	}
}

// TestForeignFiles verifies what is not counted, and therefore stays.
func TestForeignFiles(t *testing.T) {
	made := &written{content: content{"c1", version{"l2", 4}}, about: &wire.SavedBackup{Name: "m"}}
	known := map[string]inspected{"m": {content: made.content}}
	for name, one := range map[string]content{
		"other": {"c2", version{"l2", 3}}, "future": {"c1", version{"l2", 5}}, "past": {"c1", version{"l2", 3}}, "earlier": {"c1", version{"l1", 9}},
	} {
		known[name] = inspected{content: one}
	}
	known["damaged"] = inspected{content: content{"c1", version{"l2", 2}}, why: store.ErrDamaged}
	drop, foreign := superfluous(known, made, 1, nil)
	if got, want := fmt.Sprint(drop, slices.Sorted(maps.Keys(foreign))), "[past earlier] [damaged future other]"; got != want {
		t.Errorf("removes and reports %s, want %s", got, want)
	}
}
