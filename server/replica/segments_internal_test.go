package replica

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/quorumlock/quorumlock/server/storage/segment"
	"github.com/quorumlock/quorumlock/test/bubble"
)

var errKilled = errors.New("killed")

// mortal is a directory in which only a limited number of calls have an effect.
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

// TestLogIsMoved verifies that a log in bolt is in segments after the next start. A process that ends during
// the move leaves a complete log in bolt, which may stay there or be moved by the next start.
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
			putBack(t, cfg.DataDir, sound) // otherwise the next one finds what this one has left
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

// TestMovedLogBeginsBehindItsGap verifies that entries before a gap, which a snapshot covers, are not moved.
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

// TestOlderSegmentsAreRefused verifies that segments replaced by an older copy are detected, because a vote
// was written later.
func TestOlderSegmentsAreRefused(t *testing.T) {
	cfg, _ := written(t, LogInSegments)
	older := keep(t, filepath.Join(cfg.DataDir, segmentDir))
	s := reopen(t, cfg)
	for _, write := range []func() error{
		func() error { return s.log.StoreLog(&raft.Log{Index: 391, Term: 9}) },
		func() error { return s.watchdog.SetUint64([]byte(currentTerm), 9) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	s.watchdog.broken.Store(true) // close as if the process had been killed
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

// TestMoveThatFails verifies that the log stays in bolt if moving it fails.
func TestMoveThatFails(t *testing.T) {
	full, none := 1000, 0 // calls of the directory that have an effect
	for name, c := range map[string]struct {
		prepare func(dir string, bolt *boltStore) error
		left    *int
		want    error
	}{
		"a file in place of the directory": {func(dir string, _ *boltStore) error { return os.WriteFile(filepath.Join(dir, segmentDir), nil, 0o600) }, &full, syscall.ENOTDIR},
		"killed at once":                   {func(string, *boltStore) error { return nil }, &none, errKilled},
		"a bucket in place of an entry": {func(_ string, bolt *boltStore) error {
			return bolt.db.Update(func(tx *bbolt.Tx) error {
				_, err := tx.Bucket(logsBucket).CreateBucket(indexKey(1))
				return err
			})
		}, &full, ErrDamaged},
	} {
		cfg := Config{ID: "n1", DataDir: t.TempDir()}.withDefaults()
		bolt, err := openBolt(filepath.Join(cfg.DataDir, logFile))
		if err == nil {
			err = c.prepare(cfg.DataDir, bolt)
		}
		if err != nil {
			t.Fatal(err)
		}
		err = bolt.openLog(cfg, mortal{segment.Dir(filepath.Join(cfg.DataDir, segmentDir)), c.left}, func(error) {})
		if !errors.Is(err, c.want) || bolt.log() != raft.LogStore(bolt) {
			t.Errorf("%s: %v", name, err)
		}
		if err := bolt.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(logsBucket) }); err != nil {
			t.Fatal(err)
		}
		if err := bolt.handOver(&segment.Log{}); !errors.Is(err, bolterrors.ErrBucketNotFound) || bolt.log() != raft.LogStore(bolt) {
			t.Errorf("handed over without entries: %v", err)
		}
		if err := bolt.close(false); err != nil {
			t.Error(err)
		}
	}
}

// TestMoveOfAWholeBatch moves a log that ends with a full batch. Wherever the process is killed, the log is
// in exactly one of the two places.
func TestMoveOfAWholeBatch(t *testing.T) {
	for left := range 100 {
		cfg := Config{ID: "n1", DataDir: t.TempDir()}.withDefaults()
		bolt, err := openBolt(filepath.Join(cfg.DataDir, logFile))
		if err == nil {
			err = bolt.StoreLog(&raft.Log{Index: 1, Term: 1, Data: make([]byte, movedAtOnce)})
		}
		if err != nil {
			t.Fatal(err)
		}
		err = bolt.openLog(cfg, mortal{segment.Dir(filepath.Join(cfg.DataDir, segmentDir)), &left}, func(error) {})
		if moved := err == nil; !moved && !errors.Is(err, errKilled) || (bolt.log() != raft.LogStore(bolt)) != moved {
			t.Errorf("moved %v: %v", moved, err)
		}
		if last, err := bolt.log().LastIndex(); last != 1 || err != nil {
			t.Errorf("the log ends at %d, %v", last, err)
		}
		if err := bolt.close(false); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			return
		}
	}
	t.Error("it was never moved")
}

// TestSoundCloseMarksTheEnd verifies that closing records the log's end, so that the loss of acknowledged
// entries is detected from then on, and that nothing is recorded after a failed write.
func TestSoundCloseMarksTheEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		many, none := 1000, 0
		for name, c := range map[string]struct {
			sound bool
			left  *int // calls of the directory that have an effect
			want  error
		}{
			"sound":        {true, &many, nil},
			"not sound":    {false, &many, nil},
			"a full disk":  {true, &none, errKilled},
			"a failed one": {false, &none, nil},
		} {
			cfg := Config{ID: "n1", DataDir: t.TempDir()}.withDefaults()
			dir, left := segment.Dir(filepath.Join(cfg.DataDir, segmentDir)), 1000
			bolt, err := openBolt(filepath.Join(cfg.DataDir, logFile))
			if err == nil {
				err = bolt.openLog(cfg, mortal{dir, &left}, func(error) {})
			}
			if err != nil {
				t.Fatal(err)
			}
			moved := bolt.segments.End()
			if err := bolt.log().StoreLog(&raft.Log{Index: 1, Term: 1}); err != nil {
				t.Fatal(err)
			}
			want := moved
			if left = *c.left; c.sound && c.want == nil {
				want = bolt.segments.End()
				want.Sector++ // the mark
			}
			before := keep(t, cfg.DataDir)
			if err := bolt.close(c.sound); !errors.Is(err, c.want) {
				t.Errorf("%s: closed: %v", name, err)
			}
			if !c.sound && !reflect.DeepEqual(keep(t, cfg.DataDir), before) {
				t.Errorf("%s: something was written", name)
			}
			if err := readBolt(filepath.Join(cfg.DataDir, logFile), func(tx *bbolt.Tx) error {
				end, err := readTail(tx.Bucket(valuesBucket))
				if err == nil && end.segments.reached != want {
					t.Errorf("%s: the log has reached %v, want %v", name, end.segments.reached, want)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestMoveIsLogged verifies that a move is logged only if there were entries to move.
func TestMoveIsLogged(t *testing.T) {
	for _, entries := range []int{0, 2} {
		log := &logged{}
		cfg := Config{ID: "n1", DataDir: t.TempDir(), Logger: hclog.New(&hclog.LoggerOptions{Output: log})}.withDefaults()
		bolt, err := openBolt(filepath.Join(cfg.DataDir, logFile))
		if err == nil && entries > 0 {
			err = bolt.StoreLogs(entriesOf(1, uint64(entries)))
		}
		if err == nil {
			err = bolt.openLog(cfg, segment.Dir(filepath.Join(cfg.DataDir, segmentDir)), func(error) {})
		}
		if err := errors.Join(err, bolt.close(false)); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(log.text.String(), "moved to segments: entries=2"); said != (entries > 0) || !said && log.text.Len() > 0 {
			t.Errorf("%d entries: logged %q", entries, log.text.String())
		}
	}
}
