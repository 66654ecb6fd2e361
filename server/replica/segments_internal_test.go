package replica

import (
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/replica/segment"
)

var errKilled = errors.New("killed")

// mortal is a directory in which only so many more calls do anything.
type mortal struct {
	segment.Dir
	left *int
}

type mortalFile struct {
	segment.File
	left *int
}

func spend(left *int, call func() error) error {
	if *left == 0 {
		return errKilled
	}
	*left--
	return call()
}

func (d mortal) Create(name string, size int64) (f segment.File, err error) {
	err = spend(d.left, func() (err error) { f, err = d.Dir.Create(name, size); return err })
	return mortalFile{f, d.left}, err
}

func (d mortal) Rename(from, to string) error {
	return spend(d.left, func() error { return d.Dir.Rename(from, to) })
}

func (d mortal) Remove(name string) error {
	return spend(d.left, func() error { return d.Dir.Remove(name) })
}

func (d mortal) Sync() error { return spend(d.left, d.Dir.Sync) }

func (f mortalFile) WriteAt(p []byte, at int64) (n int, err error) {
	err = spend(f.left, func() (err error) { n, err = f.File.WriteAt(p, at); return err })
	return n, err
}

func (f mortalFile) Truncate(size int64) error {
	return spend(f.left, func() error { return f.File.Truncate(size) })
}

func (f mortalFile) Sync() error { return spend(f.left, f.File.Sync) }

// A log in bolt is in segments after the next start. A process that ends in the middle of
// that leaves a whole log in bolt, which may stay there or be moved by the next one.
func TestLogIsMoved(t *testing.T) {
	cfg, want := written(t, LogInBolt)
	sound := keep(t, cfg.DataDir)
	moved := cfg
	moved.LogStore = LogInSegments
	cut := 0
	for ; ; cut++ {
		left := cut
		bolt, err := openBolt(filepath.Join(cfg.DataDir, logFile))
		if err != nil {
			t.Fatal(err)
		}
		err = bolt.openLog(moved, mortal{segment.Dir(filepath.Join(cfg.DataDir, segmentDir)), &left}, func(error) {})
		if err := bolt.close(false); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		halfway := keep(t, cfg.DataDir)
		for _, c := range []Config{cfg, moved} {
			if got, err := reread(c); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("killed after %d calls, then started with its log in %s: %d entries, %v", cut, c.LogStore, len(got.entries), err)
			}
			putBack(t, cfg.DataDir, halfway)
		}
		if cut%2 == 0 {
			putBack(t, cfg.DataDir, sound) // else the next one finds what this one has left
		}
	}
	t.Logf("moving took %d calls", cut)
	if cut < 15 {
		t.Error("these are too few to be all")
	}
	if got, err := reread(moved); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("moved: %d entries, %v", len(got.entries), err)
	}
	before := keep(t, cfg.DataDir)
	if _, err := reread(cfg); !errors.Is(err, ErrLogMoved) {
		t.Errorf("a log in segments, and the node was to keep it in bolt: %v", err)
	}
	if !reflect.DeepEqual(keep(t, cfg.DataDir), before) {
		t.Error("something was changed")
	}
}

// Entries before a gap are in a snapshot, and stay behind.
func TestMovedLogBeginsBehindItsGap(t *testing.T) {
	cfg := Config{ID: "n1", DataDir: t.TempDir()}.withDefaults()
	bolt, err := openBolt(filepath.Join(cfg.DataDir, logFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range []uint64{1, 2, 3, 10, 11, 12} {
		if err := bolt.StoreLog(&raft.Log{Index: index, Term: 1, Data: []byte{byte(index)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := bolt.openLog(cfg, segment.Dir(filepath.Join(cfg.DataDir, segmentDir)), func(error) {}); err != nil {
		t.Fatal(err)
	}
	defer bolt.close(true)
	got := map[uint64]byte{}
	for index := range uint64(14) {
		var e raft.Log
		if err := bolt.log().GetLog(index, &e); err == nil {
			got[index] = e.Data[0]
		}
	}
	if indexes := slices.Sorted(maps.Keys(got)); !slices.Equal(indexes, []uint64{10, 11, 12}) || got[12] != 12 {
		t.Errorf("the log has %v", got)
	}
}

// Segments that were put back to an earlier state, as a whole, are noticed: a vote was
// written after that.
func TestOlderSegmentsAreRefused(t *testing.T) {
	cfg, _ := written(t, LogInSegments)
	older := keep(t, filepath.Join(cfg.DataDir, segmentDir))
	s := reopen(t, cfg)
	for _, write := range []func() error{
		func() error { return s.log.StoreLog(&raft.Log{Index: 391, Term: 9}) },
		func() error { return s.guard.SetUint64([]byte(currentTerm), 9) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	s.guard.broken.Store(true) // it ends as if it had been killed
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if m, err := reread(cfg); err != nil || len(m.entries) == 0 {
		t.Fatal(err)
	}
	putBack(t, filepath.Join(cfg.DataDir, segmentDir), older)
	if _, err := reread(cfg); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
}
