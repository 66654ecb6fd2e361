package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage/segment"
	"github.com/quorumlock/quorumlock/server/storage/stable"
)

// memory is everything that a node's stores contain.
type memory struct {
	entries   map[uint64]raft.Log
	values    map[string]string
	snapshots map[string]string // caption → state
}

// newestSnapshot is the index of the newer of the two snapshots that written creates.
const newestSnapshot = 200

// lacksNothing reports whether m equals want, except for missing entries that a snapshot covers.
func (m memory) lacksNothing(want memory) bool {
	full := maps.Clone(m.entries)
	for i, e := range want.entries {
		if _, ok := full[i]; !ok && i <= newestSnapshot {
			full[i] = e
		}
	}
	m.entries = full
	return reflect.DeepEqual(m, want)
}

// recall reads everything.
func recall(s *Stores) (memory, error) {
	m := memory{map[uint64]raft.Log{}, map[string]string{}, map[string]string{}}
	first, err := s.Log.FirstIndex()
	if err != nil {
		return m, err
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return m, err
	}
	for i := first; i <= last; i++ {
		var e raft.Log
		err := s.Log.GetLog(i, &e)
		if errors.Is(err, raft.ErrLogNotFound) && i <= newestSnapshot {
			continue // a node that was sent a snapshot has such gaps too
		}
		if err != nil {
			return m, err
		}
		m.entries[i] = e
	}
	for _, key := range []string{currentTerm, lastVoteTerm, lastVoteCandidate, string(incarnationKey), string(membersKey)} {
		value, err := s.Values.Get([]byte(key))
		if err != nil {
			return m, err
		}
		m.values[key] = string(value)
	}
	metas, err := s.Snapshots.List()
	if err != nil || len(metas) == 0 {
		return m, err
	}
	meta, source, err := s.Snapshots.Open(metas[0].ID)
	if err != nil {
		return m, err
	}
	defer source.Close()
	state, err := io.ReadAll(source)
	if int64(len(state)) != meta.Size {
		return m, fmt.Errorf("%d bytes of %d", len(state), meta.Size)
	}
	m.snapshots[fmt.Sprint(meta.Version, meta.Index, meta.Term, meta.ConfigurationIndex, meta.Configuration)] = string(state)
	return m, err
}

// options returns those of node n1 with a data directory.
func options(dir string) Options {
	return Options{NodeID: "n1", DataDir: dir, SegmentBytes: 64 << 10, DiskTimeout: time.Minute, Failed: func(error) {}}
}

// membersKey is the key of a large value.
var membersKey = []byte("quorumlock.members")

// written fills a data directory as a node does: with a log that was truncated at both ends, votes, and two
// snapshots.
func written(t *testing.T) (Options, memory) {
	t.Helper()
	o := options(filepath.Join(t.TempDir(), "n1"))
	fill(t, o)
	want, err := reread(o)
	if err != nil {
		t.Fatal(err)
	}
	for index := uint64(151); index <= 390; index++ {
		if _, ok := want.entries[index]; !ok {
			t.Fatalf("entry %d is missing", index)
		}
	}
	if n := len(want.entries); n < 240 || n > 390 || len(want.snapshots) != 1 {
		t.Fatalf("%d entries, %d snapshots", n, len(want.snapshots))
	}
	return o, want
}

func fill(t *testing.T, o Options) {
	t.Helper()
	s := reopen(t, o)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := uint64(1); i <= 400; {
		var batch []*raft.Log
		for range 16 {
			batch = append(batch, &raft.Log{Index: i, Term: 1 + i/100, Data: bytes.Repeat([]byte{byte(i)}, random.IntN(900))})
			i++
		}
		check(s.Log.StoreLogs(batch))
	}
	check(s.Log.DeleteRange(391, 400)) // as after a conflict with another leader's log
	check(s.Votes.SetUint64([]byte(currentTerm), 7))
	check(s.Votes.SetUint64([]byte(lastVoteTerm), 7))
	check(s.Votes.Set([]byte(lastVoteCandidate), []byte("n2")))
	check(s.Values.Set(membersKey, bytes.Repeat([]byte("member"), 500)))
	for _, index := range []uint64{100, newestSnapshot} {
		members := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "127.0.0.1:1"}, {ID: "n2", Address: "127.0.0.1:2"}}}
		_, trans := raft.NewInmemTransport("")
		sink, err := s.Snapshots.Create(1, index, 1+index/100, members, 1, trans)
		check(err)
		_, err = sink.Write(bytes.Repeat([]byte{byte(index)}, 5000))
		check(err)
		check(sink.Close())
	}
	check(s.Log.DeleteRange(1, 150))
	check(s.Close())
}

func reopen(t *testing.T, o Options) *Stores {
	t.Helper()
	o.Failed = func(err error) { t.Error(err) }
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reread opens a directory and reads everything in it. It closes the stores as after a failed write, so that
// nothing is written.
func reread(o Options) (memory, error) {
	s, err := Open(o)
	if err != nil {
		return memory{}, err
	}
	m, err := recall(s)
	s.watchdog.broken.Store(true)
	return m, errors.Join(err, s.Close())
}

// TestFlippedBits verifies that a flipped bit is detected, unless it is in an unused part of a file.
func TestFlippedBits(t *testing.T) {
	o, want := written(t)
	if got, err := reread(o); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("what was written is not there: %v", err)
	}
	density := 1
	if os.Getenv("QUORUMLOCK_CHECK") == "1" {
		density = 20
	}
	for _, path := range sensitive(t, o) {
		t.Run(filepath.Base(path), func(t *testing.T) { flipBits(t, o, path, want, density) })
	}
}

// sensitive returns the files in which every used byte matters.
func sensitive(t *testing.T, o Options) []string {
	t.Helper()
	newest, err := filepath.Glob(filepath.Join(o.DataDir, snapshotDir, "*-200-*", "*"))
	if err != nil || len(newest) != 2 {
		t.Fatal(newest, err)
	}
	segments, err := filepath.Glob(filepath.Join(o.DataDir, segmentDir, "*"))
	if err != nil || len(segments) < 2 {
		t.Fatal(segments, err)
	}
	return append(append(newest, filepath.Join(o.DataDir, stable.File), filepath.Join(o.DataDir, stable.GenerationFile)), segments...)
}

func flipBits(t *testing.T, o Options, path string, want memory, density int) {
	sound := keep(t, o.DataDir)
	content := bytes.Clone(sound[path])
	found, harmless := 0, 0
	flipped := flips(path, len(content), density)
	if enough := 700 * density; len(flipped) > enough {
		rand.New(rand.NewPCG(5, 6)).Shuffle(len(flipped), func(i, j int) { flipped[i], flipped[j] = flipped[j], flipped[i] })
		flipped = flipped[:enough]
	}
	for _, bit := range flipped {
		content[bit/8] ^= 1 << (bit % 8)
		overwrite(t, path, content)
		got, err := reread(o)
		switch {
		case errors.Is(err, ErrDamaged):
			found++
		case err == nil && got.lacksNothing(want):
			harmless++
			putBack(t, o.DataDir, sound) // the bytes that looked like a torn write have been cut off
		default:
			t.Fatalf("bit %d of byte %d: %v; a memory of %d entries", bit%8, bit/8, err, len(got.entries))
		}
		content[bit/8] ^= 1 << (bit % 8)
	}
	putBack(t, o.DataDir, sound)
	t.Logf("%d of %d flipped bits were found, %d did no harm", found, found+harmless, harmless)
	if found < 20 {
		t.Errorf("only %d were found", found)
	}
}

// flips returns the bits to flip: some in each of the first sectors, some at the start of each page, where bolt
// has its headers, and some anywhere.
func flips(path string, size, density int) (all []int) {
	const page = 4096
	random := rand.New(rand.NewPCG(3, 4))
	for at := 0; at < size && filepath.Base(path) == stable.File; at += page {
		for range 20 * density {
			all = append(all, 8*(at+random.IntN(min(96, size-at)))+random.IntN(8))
		}
	}
	for at := 0; at < min(size, page); at += 512 {
		for range 10 * density {
			all = append(all, 8*(at+random.IntN(min(512, size-at)))+random.IntN(8))
		}
	}
	for range 100 * density {
		all = append(all, random.IntN(8*size))
	}
	return all
}

// keep reads every file below a directory.
func keep(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// putBack replaces the content of a directory with these files.
func putBack(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// overwrite replaces a file with a new one, which no process has locked.
func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCutFiles(t *testing.T) {
	o, want := written(t)
	sound := keep(t, o.DataDir)
	for _, path := range sensitive(t, o) {
		whole := sound[path]
		used := len(whole)
		if filepath.Base(path) == stable.File {
			used = 4096 // what follows the last used page may be missing
		}
		for _, size := range []int{0, 1, used / 2, used - 2} {
			overwrite(t, path, whole[:size])
			if _, err := reread(o); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s of %d bytes, cut to %d: %v", filepath.Base(path), len(whole), size, err)
			}
		}
		for size := len(whole) - 4096; filepath.Base(path) == stable.File && size > 0; size -= 4096 {
			overwrite(t, path, whole[:size])
			if got, err := reread(o); !errors.Is(err, ErrDamaged) && !reflect.DeepEqual(got, want) {
				t.Errorf("the values, cut to %d bytes: %v", size, err)
			}
		}
		putBack(t, o.DataDir, sound)
	}
}

func TestMissingFiles(t *testing.T) {
	for name, remove := range map[string]string{
		"values":               stable.File,
		"generation":           stable.GenerationFile,
		"newest state":         snapshotDir + "/*-200-*/state.bin",
		"newest meta":          snapshotDir + "/*-200-*/meta.json",
		"newest snapshot":      snapshotDir + "/*-200-*",
		"every snapshot":       snapshotDir,
		"identity and values":  "[gnr]*",
		"all but the log":      "[gnrs]*",
		"all but the snapshot": "[glnr]*",
		"oldest segment":       segmentDir + "/*",
		"every segment":        segmentDir + "/*.segment",
		"directory of them":    segmentDir,
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := written(t)
			found, err := filepath.Glob(filepath.Join(o.DataDir, remove))
			if err != nil || len(found) == 0 {
				t.Fatal(found, err)
			}
			if name == "oldest segment" {
				found = found[:1]
			}
			for _, path := range found {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := reread(o); !errors.Is(err, ErrDamaged) {
				t.Errorf("opened: %v", err)
			}
		})
	}
}

// TestUnfinishedIsNotDamaged verifies that what a process leaves behind if it ends in the middle of an
// operation is not damage.
func TestUnfinishedIsNotDamaged(t *testing.T) {
	o, want := written(t)
	older, err := filepath.Glob(filepath.Join(o.DataDir, snapshotDir, "*-100-*"))
	if err != nil || len(older) != 1 {
		t.Fatal(older, err)
	}
	if err := os.Remove(filepath.Join(older[0], "state.bin")); err != nil { // it was being removed
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(o.DataDir, snapshotDir, "9-900-1"+unfinished), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := reread(o); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%d entries, %v", len(got.entries), err)
	}
	for name, started := range map[string]func(t *testing.T, dir string){
		"an empty file": func(t *testing.T, dir string) { overwrite(t, filepath.Join(dir, stable.File), nil) },
		"empty stores":  func(t *testing.T, dir string) { closed(t, reopen(t, options(dir))) },
		"only snapshots/": func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, snapshotDir), 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"values without a log": func(t *testing.T, dir string) {
			values, err := stable.Open(dir)
			if err == nil {
				err = values.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"a log that is not recorded": func(t *testing.T, dir string) {
			values, err := stable.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			log, err := createLog(dir, segment.Options{Size: 64 << 10})
			if err == nil {
				err = errors.Join(log.Close(), values.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			started(t, dir)
			s := reopen(t, options(dir))
			if err := s.Log.StoreLog(&raft.Log{Index: 1, Term: 1}); err != nil {
				t.Error(err)
			}
			closed(t, s)
			closed(t, reopen(t, options(dir)))
		})
	}
}

func closed(t *testing.T, s *Stores) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReadLogShowsEveryEntry(t *testing.T) {
	o, want := written(t)
	var got []raft.Log
	if err := ReadLog(o.DataDir, func(e *raft.Log) error { got = append(got, *e); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want.entries) {
		t.Errorf("%d entries of %d", len(got), len(want.entries))
	}
	for _, e := range got {
		if !reflect.DeepEqual(e, want.entries[e.Index]) {
			t.Errorf("entry %v, want %v", e, want.entries[e.Index])
		}
	}
	visits := 0
	if err := ReadLog(o.DataDir, func(*raft.Log) error { visits++; return errDisk }); !errors.Is(err, errDisk) || visits != 1 {
		t.Errorf("a visit that fails: %v after %d visits", err, visits)
	}
	if err := ReadLog(t.TempDir(), func(*raft.Log) error { return errDisk }); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
}

var errDisk = errors.New("input/output error")
