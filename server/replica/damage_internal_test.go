package replica

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
	"strings"
	"testing"

	"github.com/hashicorp/raft"
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
func recall(s *stores) (memory, error) {
	m := memory{map[uint64]raft.Log{}, map[string]string{}, map[string]string{}}
	first, err := s.log.FirstIndex()
	if err != nil {
		return m, err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return m, err
	}
	for i := first; i <= last; i++ {
		var e raft.Log
		err := s.log.GetLog(i, &e)
		if errors.Is(err, raft.ErrLogNotFound) && i <= newestSnapshot {
			continue // a node that was sent a snapshot has such gaps too
		}
		if err != nil {
			return m, err
		}
		m.entries[i] = e
	}
	for _, key := range []string{currentTerm, lastVoteTerm, lastVoteCandidate, string(incarnationKey), string(membersKey)} {
		value, err := s.stable.Get([]byte(key))
		if err != nil {
			return m, err
		}
		m.values[key] = string(value)
	}
	metas, err := s.snapshots.List()
	if err != nil || len(metas) == 0 {
		return m, err
	}
	meta, source, err := s.snapshots.Open(metas[0].ID)
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

// forEachLog runs a test for each LogStore.
func forEachLog(t *testing.T, test func(t *testing.T, kind LogStore)) {
	for _, kind := range []LogStore{LogInSegments, LogInBolt} {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

// written fills a data directory as a node does: with a log that was truncated at both ends, votes, and two
// snapshots.
func written(t *testing.T, kind LogStore) (Config, memory) {
	t.Helper()
	cfg := Config{ID: "n1", DataDir: filepath.Join(t.TempDir(), "n1"), LogStore: kind, SegmentBytes: 64 << 10}.withDefaults()
	fill(t, cfg)
	want, err := reread(cfg)
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
	return cfg, want
}

func fill(t *testing.T, cfg Config) {
	t.Helper()
	s := reopen(t, cfg)
	if _, err := openIdentity(cfg, s.stable); err != nil {
		t.Fatal(err)
	}
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
		check(s.log.StoreLogs(batch))
	}
	check(s.log.DeleteRange(391, 400)) // as after a conflict with another leader's log
	check(s.watchdog.SetUint64([]byte(currentTerm), 7))
	check(s.watchdog.SetUint64([]byte(lastVoteTerm), 7))
	check(s.watchdog.Set([]byte(lastVoteCandidate), []byte("n2")))
	check(s.stable.Set(membersKey, bytes.Repeat([]byte("member"), 50)))
	for _, index := range []uint64{100, newestSnapshot} {
		members := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "127.0.0.1:1"}, {ID: "n2", Address: "127.0.0.1:2"}}}
		_, trans := raft.NewInmemTransport("")
		sink, err := s.snapshots.Create(1, index, 1+index/100, members, 1, trans)
		check(err)
		_, err = sink.Write(bytes.Repeat([]byte{byte(index)}, 5000))
		check(err)
		check(sink.Close())
	}
	check(s.log.DeleteRange(1, 150))
	check(s.close())
}

func reopen(t *testing.T, cfg Config) *stores {
	t.Helper()
	s, err := openStores(cfg, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reread opens a directory and reads everything in it. It closes the stores as after a failed write, so that
// nothing is written.
func reread(cfg Config) (memory, error) {
	s, err := openStores(cfg, func(error) {})
	if err != nil {
		return memory{}, err
	}
	m, err := recall(s)
	s.watchdog.broken.Store(true)
	return m, errors.Join(err, s.close())
}

// TestFlippedBits verifies that a flipped bit is detected, unless it is in an unused part of a file.
func TestFlippedBits(t *testing.T) {
	forEachLog(t, func(t *testing.T, kind LogStore) {
		cfg, want := written(t, kind)
		if got, err := reread(cfg); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("what was written is not there: %v", err)
		}
		density := 1
		if os.Getenv("QUORUMLOCK_CHECK") == "1" {
			density = 20
		}
		for _, path := range sensitive(t, cfg) {
			t.Run(filepath.Base(path), func(t *testing.T) { flipBits(t, cfg, path, want, density) })
		}
	})
}

// sensitive returns the files in which every used byte matters.
func sensitive(t *testing.T, cfg Config) []string {
	t.Helper()
	newest, err := filepath.Glob(filepath.Join(cfg.DataDir, snapshotDir, "*-200-*", "*"))
	if err != nil || len(newest) != 2 {
		t.Fatal(newest, err)
	}
	segments, err := filepath.Glob(filepath.Join(cfg.DataDir, segmentDir, "*"))
	if err != nil || len(segments) < 2 && cfg.LogStore == LogInSegments {
		t.Fatal(segments, err)
	}
	return append(append(newest, filepath.Join(cfg.DataDir, logFile)), segments...)
}

func flipBits(t *testing.T, cfg Config, path string, want memory, density int) {
	sound := keep(t, cfg.DataDir)
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
		got, err := reread(cfg)
		switch {
		case errors.Is(err, ErrDamaged):
			found++
		case err == nil && got.lacksNothing(want):
			if harmless++; cfg.LogStore == LogInSegments {
				putBack(t, cfg.DataDir, sound) // the bytes that looked like a torn write have been cut off
			}
		default:
			t.Fatalf("bit %d of byte %d: %v; a memory of %d entries", bit%8, bit/8, err, len(got.entries))
		}
		content[bit/8] ^= 1 << (bit % 8)
	}
	putBack(t, cfg.DataDir, sound)
	t.Logf("%d of %d flipped bits were found, %d did no harm", found, found+harmless, harmless)
	if found < 20 {
		t.Errorf("only %d were found", found)
	}
}

// flips returns the bits to flip. In bolt's file: all in the headers of its first pages, many at the start of
// each page, which has its header and the positions of its elements, and some anywhere. In other files: some
// in each of the first sectors, and some anywhere.
func flips(path string, size, density int) (all []int) {
	const page = 4096
	random := rand.New(rand.NewPCG(3, 4))
	if filepath.Base(path) == logFile {
		for i := range min(size, 2*page) * 8 {
			if i/8%page < pageHeader+metaSummed+8 {
				all = append(all, i)
			}
		}
		for at := 2 * page; at < size; at += page {
			for range 4 * density {
				all = append(all, 8*(at+random.IntN(min(64, size-at)))+random.IntN(8))
			}
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
	forEachLog(t, func(t *testing.T, kind LogStore) {
		cfg, want := written(t, kind)
		sound := keep(t, cfg.DataDir)
		for _, path := range sensitive(t, cfg) {
			whole := sound[path]
			used := len(whole)
			if filepath.Base(path) == logFile {
				used = 4096 // what follows the last used page may be missing
			}
			for _, size := range []int{0, 1, used / 2, used - 2} {
				overwrite(t, path, whole[:size])
				if _, err := reread(cfg); !errors.Is(err, ErrDamaged) {
					t.Errorf("%s of %d bytes, cut to %d: %v", filepath.Base(path), len(whole), size, err)
				}
			}
			for size := len(whole) - 4096; filepath.Base(path) == logFile && size > 0; size -= 4096 {
				overwrite(t, path, whole[:size])
				if got, err := reread(cfg); !errors.Is(err, ErrDamaged) && !reflect.DeepEqual(got, want) {
					t.Errorf("the log, cut to %d bytes: %v", size, err)
				}
			}
			putBack(t, cfg.DataDir, sound)
		}
	})
}

// TestLogEndsWithItsLastPage verifies that a log truncated right after its last used page is intact, and that
// one byte less is damage.
func TestLogEndsWithItsLastPage(t *testing.T) {
	cfg, want := written(t, LogInBolt)
	path := filepath.Join(cfg.DataDir, logFile)
	whole := keep(t, cfg.DataDir)[path]
	p := &pages{path: path, data: whole, size: os.Getpagesize()}
	if _, err := p.metas(); err != nil {
		t.Fatal(err)
	}
	used := int(p.used) * p.size
	overwrite(t, path, whole[:used-1])
	if _, err := reread(cfg); !errors.Is(err, ErrDamaged) {
		t.Errorf("without the last byte of %d: %v", used, err)
	}
	overwrite(t, path, whole[:used])
	if got, err := reread(cfg); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("cut to the %d bytes in use: %d entries, %v", used, len(got.entries), err)
	}
}

func TestMissingFiles(t *testing.T) {
	forEachLog(t, func(t *testing.T, kind LogStore) {
		for name, remove := range map[string]string{
			"log":                 logFile,
			"newest state":        snapshotDir + "/*-200-*/state.bin",
			"newest meta":         snapshotDir + "/*-200-*/meta.json",
			"newest snapshot":     snapshotDir + "/*-200-*",
			"every snapshot":      snapshotDir,
			"identity and log":    "[nr]*.*",
			"identity, snapshots": "[nrs]*",
			"oldest segment":      segmentDir + "/*",
			"every segment":       segmentDir + "/*.segment",
			"directory of them":   segmentDir,
		} {
			if kind == LogInBolt && (strings.HasPrefix(remove, segmentDir) || remove == "[nrs]*") {
				continue
			}
			t.Run(name, func(t *testing.T) {
				cfg, _ := written(t, kind)
				found, err := filepath.Glob(filepath.Join(cfg.DataDir, remove))
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
				if _, err := reread(cfg); !errors.Is(err, ErrDamaged) {
					t.Errorf("opened: %v", err)
				}
			})
		}
	})
}

// TestUnfinishedIsNotDamaged verifies that what a process leaves behind if it ends in the middle of an
// operation is not damage.
func TestUnfinishedIsNotDamaged(t *testing.T) { forEachLog(t, unfinishedIsNotDamaged) }

func unfinishedIsNotDamaged(t *testing.T, kind LogStore) {
	cfg, want := written(t, kind)
	older, err := filepath.Glob(filepath.Join(cfg.DataDir, snapshotDir, "*-100-*"))
	if err != nil || len(older) != 1 {
		t.Fatal(older, err)
	}
	if err := os.Remove(filepath.Join(older[0], "state.bin")); err != nil { // it was being removed
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(cfg.DataDir, snapshotDir, "9-900-1"+unfinished), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := reread(cfg); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%d entries, %v", len(got.entries), err)
	}
	for name, begun := range map[string]func(dir string) error{
		"an empty file": func(dir string) error { return os.WriteFile(filepath.Join(dir, logFile), nil, 0o600) },
		"an empty log": func(dir string) error {
			return reopen(t, Config{ID: "n1", DataDir: dir, LogStore: kind}.withDefaults()).close()
		},
		"a file without buckets": func(dir string) error { makeBuckets(t, filepath.Join(dir, logFile)); return nil },
		"only snapshots/":        func(dir string) error { return os.Mkdir(filepath.Join(dir, snapshotDir), 0o700) },
	} {
		dir := t.TempDir()
		if err := begun(dir); err != nil {
			t.Fatal(err)
		}
		s, err := openStores(Config{ID: "n1", DataDir: dir, LogStore: kind}.withDefaults(), func(error) {})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = s.close()
	}
}

func TestReadLogShowsEveryEntry(t *testing.T) { forEachLog(t, readLogShowsEveryEntry) }

func readLogShowsEveryEntry(t *testing.T, kind LogStore) {
	cfg, want := written(t, kind)
	var got []raft.Log
	if err := ReadLog(cfg.DataDir, func(e *raft.Log) error { got = append(got, *e); return nil }); err != nil {
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
	if err := ReadLog(cfg.DataDir, func(*raft.Log) error { visits++; return errDisk }); !errors.Is(err, errDisk) || visits != 1 {
		t.Errorf("a visit that fails: %v after %d visits", err, visits)
	}
}

// TestDamageSaysWhatToDo verifies that the message contains the repair commands with the node's own names.
func TestDamageSaysWhatToDo(t *testing.T) {
	r := &Replica{cfg: Config{ID: "n2", DataDir: "/data", Advertise: Addresses{Peer: "h2:7401"}, Cluster: []Peer{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}}}
	text := r.withAdvice(fmt.Errorf("%w: /data/raft.db", ErrDamaged)).Error()
	for _, want := range []string{"/data/raft.db", "mv /data /data.damaged", "qlock cluster remove n2", "qlock cluster add n2 h2:7401"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	r.cfg.Cluster = nil
	const others = "snapshot save --stale" // run at one of the others
	if text := r.withAdvice(ErrDamaged).Error(); !strings.Contains(text, "qlock snapshot restore") || strings.Contains(text, others) {
		t.Errorf("a node that was alone is told %q", text)
	}
	r.cfg.Stores = inMemory()
	if text := r.withAdvice(ErrDamaged).Error(); !strings.Contains(text, others) {
		t.Errorf("a node without a data directory is told %q", text)
	}
	if err := r.withAdvice(errDisk); err != errDisk {
		t.Errorf("no damage, and still: %v", err)
	}
}

var errDisk = errors.New("input/output error")
