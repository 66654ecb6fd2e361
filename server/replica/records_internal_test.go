package replica

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

// tampered opens a new store in a directory and changes its file in a way that the store itself never does.
func tampered(t *testing.T, dir string, change func(logs, values *bbolt.Bucket) error) *boltStore {
	t.Helper()
	store, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.db.Update(func(tx *bbolt.Tx) error { return change(tx.Bucket(logsBucket), tx.Bucket(valuesBucket)) }); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestChangesThatBoltRefuses puts a bucket where a record is to be written or deleted.
func TestChangesThatBoltRefuses(t *testing.T) {
	key := []byte("key")
	for name, c := range map[string]struct {
		inLogs bool
		at     []byte
		change func(*boltStore) error
	}{
		"an entry":   {true, indexKey(1), func(s *boltStore) error { return s.StoreLog(&raft.Log{Index: 1}) }},
		"a deletion": {true, indexKey(1), func(s *boltStore) error { return s.DeleteRange(1, 1) }},
		"a value":    {false, key, func(s *boltStore) error { return s.Set(key, nil) }},
		"a number":   {false, key, func(s *boltStore) error { return s.SetUint64(key, 1) }},
		"the tail":   {false, tailKey, func(s *boltStore) error { return s.Set(key, nil) }},
	} {
		store := tampered(t, t.TempDir(), func(logs, values *bbolt.Bucket) error {
			bucket := values
			if c.inLogs {
				bucket = logs
			}
			if err := bucket.Delete(c.at); err != nil {
				return err
			}
			_, err := bucket.CreateBucket(c.at)
			return err
		})
		if err := c.change(store); !errors.Is(err, bolterrors.ErrIncompatibleValue) {
			t.Errorf("%s: %v", name, err)
		}
		if err := store.close(false); err != nil {
			t.Error(err)
		}
	}
}

// TestDamagedRecordsAreNotRead reads records that are not what was written, and one that does not exist.
func TestDamagedRecordsAreNotRead(t *testing.T) {
	dir := t.TempDir()
	store := tampered(t, dir, func(logs, values *bbolt.Bucket) error {
		return errors.Join(logs.Put(indexKey(1), []byte("flipped")), values.Put([]byte("key"), []byte("flipped")),
			values.Put([]byte("seven"), sealed([]byte("seven"), make([]byte, 7))))
	})
	_, value := store.Get([]byte("key"))
	_, number := store.GetUint64([]byte("key"))
	_, seven := store.GetUint64([]byte("seven"))
	for name, err := range map[string]error{"an entry": store.GetLog(1, &raft.Log{}), "a value": value, "a number": number, "a number of seven bytes": seven} {
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := store.GetLog(2, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("an entry that is not there: %v", err)
	}
	if _, err := store.Get([]byte("none")); !errors.Is(err, errNoValue) {
		t.Errorf("a value that is not there: %v", err)
	}
	cfg := Config{ID: "n1", DataDir: dir}.withDefaults()
	if err := store.openLog(cfg, segment.Dir(filepath.Join(dir, segmentDir)), nil); !errors.Is(err, ErrDamaged) || store.log() != raft.LogStore(store) {
		t.Errorf("a damaged entry was moved to segments: %v", err)
	}
	if err := store.close(false); err != nil {
		t.Fatal(err)
	}
	if err := ReadLog(dir, func(*raft.Log) error { return errors.New("an entry") }); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged entry was read: %v", err)
	}
}

// TestTails checks tails of every length, and a missing one.
func TestTails(t *testing.T) {
	for size := range tailSize + segmentsSize + 2 {
		inBolt(t, func(values *bbolt.Bucket) {
			if err := values.Put(tailKey, sealed(tailKey, make([]byte, size))); err != nil {
				t.Fatal(err)
			}
			end, err := readTail(values)
			if errors.Is(err, ErrDamaged) != (size != tailSize && size != tailSize+segmentsSize) || (end.segments != nil) != (size == tailSize+segmentsSize) {
				t.Errorf("a tail of %d bytes: %+v, %v", size, end, err)
			}
		})
	}
	cfg := Config{ID: "n1", DataDir: t.TempDir()}.withDefaults()
	store := tampered(t, cfg.DataDir, func(_, values *bbolt.Bucket) error { return values.Delete(tailKey) })
	if err := store.openLog(cfg, segment.Dir(cfg.DataDir), nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened without a tail: %v", err)
	}
	if err := store.close(false); err != nil {
		t.Fatal(err)
	}
	if err := ReadLog(cfg.DataDir, func(*raft.Log) error { return nil }); !errors.Is(err, ErrDamaged) {
		t.Errorf("read without a tail: %v", err)
	}
}

// TestInspectLog checks files whose records are intact, some of which a node never leaves behind.
func TestInspectLog(t *testing.T) {
	const gap, gone = "stands behind", "is gone"
	elsewhere := &segments{}
	for name, c := range map[string]struct {
		entries  []uint64
		end      tail
		values   int // number of values that exist
		identity bool
		snapshot uint64
		says     string // error for a damaged file
	}{
		"whole":                                 {entries: []uint64{1, 2}, end: tail{last: 2, values: 1}, values: 1, identity: true},
		"new":                                   {},
		"a gap":                                 {entries: []uint64{1, 3}, end: tail{last: 5, values: 1}, values: 1, says: gap},
		"a gap and no values":                   {entries: []uint64{1, 3}, end: tail{last: 3}, says: gap},
		"a gap and the log in segments":         {entries: []uint64{1, 3}, end: tail{3, 1, elsewhere}, values: 1, says: gap},
		"too few values":                        {end: tail{values: 2}, values: 1, says: "1 values of 2"},
		"too few values and a gap":              {entries: []uint64{1, 3}, end: tail{last: 3, values: 2}, values: 1, says: "1 values of 2"},
		"the log in segments":                   {end: tail{0, 1, elsewhere}, values: 1, identity: true},
		"the log in segments and here":          {entries: []uint64{1, 2}, end: tail{2, 1, elsewhere}, values: 1, says: "the log is in segments"},
		"no values beside an identity":          {identity: true, says: gone},
		"no values beside a snapshot":           {snapshot: 5, says: gone},
		"entries that a snapshot does not meet": {entries: []uint64{7}, end: tail{last: 7, values: 1}, values: 1, snapshot: 5, says: gap},
	} {
		dir := t.TempDir()
		store := tampered(t, dir, func(logs, values *bbolt.Bucket) (err error) {
			for _, index := range c.entries {
				err = errors.Join(err, logs.Put(indexKey(index), writeEntry(indexKey(index), &raft.Log{Index: index, Term: 1})))
			}
			for range c.values {
				err = errors.Join(err, values.Put([]byte("key"), sealed([]byte("key"), nil)))
			}
			return errors.Join(err, values.Put(tailKey, sealed(tailKey, c.end.bytes())))
		})
		err := store.close(false)
		if err == nil && c.identity {
			err = os.WriteFile(filepath.Join(dir, identityFile), nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := inspect(dir, c.snapshot); errors.Is(err, ErrDamaged) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDirectoriesWithoutALog checks data directories with parts of a node's data but without a log.
func TestDirectoriesWithoutALog(t *testing.T) {
	for name, c := range map[string]struct {
		dir      string
		left     string // the remaining file
		snapshot uint64
		says     string
	}{
		"new":                    {dir: "n1"},
		"an empty segments/":     {dir: "n1", left: segmentDir + "/"},
		"an identity":            {dir: "n1", left: identityFile, says: logFile + " is gone"},
		"a snapshot":             {dir: "n1", snapshot: 5, says: logFile + " is gone"},
		"a segment":              {dir: "n1", left: segmentDir + "/1.segment", says: logFile + " is gone"},
		"a segment in a pattern": {dir: "n[1]", left: segmentDir + "/1.segment", says: logFile + " is gone"},
		"a bad pattern":          {dir: "n[1"},
	} {
		for _, bolt := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), c.dir)
			path := filepath.Join(dir, c.left)
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, c.left+"x")), 0o700); err != nil {
				t.Fatal(err)
			}
			if c.left != "" && !strings.HasSuffix(c.left, "/") {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if bolt {
				makeBuckets(t, filepath.Join(dir, logFile))
			}
			if err := inspect(dir, c.snapshot); errors.Is(err, ErrDamaged) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, a file without buckets %v: %v", name, bolt, err)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := inspect(file, 0); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file in place of the directory: %v", err)
	}
	dir := filepath.Dir(file)
	if err := os.Rename(file, filepath.Join(dir, segmentDir)); err != nil {
		t.Fatal(err)
	}
	if err := inspect(dir, 0); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file in place of the segments: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, logFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := inspect(dir, 0); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory in place of the log: %v", err)
	}
}

// TestFileThatCannotBeMade verifies that a failure to create the file is returned and is not damage.
func TestFileThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "none", logFile)
	if _, err := openBolt(path); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamaged) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	if err := os.Symlink(path, filepath.Join(dir, logFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := openStores(Config{ID: "n1", DataDir: dir}.withDefaults(), func(err error) { t.Error(err) }); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamaged) {
		t.Errorf("through a link to it: %v", err)
	}
}
