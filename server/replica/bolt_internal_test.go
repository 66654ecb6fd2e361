package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/quorumlock/quorumlock/test/bubble"
)

func TestBoltErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		want    error
		damaged bool
	}{
		"another process":   {fmt.Errorf("open: %w", bolterrors.ErrTimeout), ErrInUse, false},
		"a full disk":       {&os.PathError{Op: "open", Path: "log", Err: syscall.ENOSPC}, syscall.ENOSPC, false},
		"no bolt file":      {bolterrors.ErrInvalid, bolterrors.ErrInvalid, true},
		"a wrong checksum":  {bolterrors.ErrChecksum, bolterrors.ErrChecksum, true},
		"an access refused": {&os.PathError{Op: "open", Path: "log", Err: syscall.EACCES}, fs.ErrPermission, false},
	} {
		if err := boltError("log", c.err); !errors.Is(err, c.want) || errors.Is(err, ErrDamaged) != c.damaged {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSealedValues(t *testing.T) {
	key := []byte("key")
	whole := sealed(key, []byte("body"))
	for name, c := range map[string]struct {
		key, stored []byte
		body        string
		damaged     bool
	}{
		"whole":         {key, whole, "body", false},
		"empty":         {key, sealed(key, nil), "", false},
		"nothing":       {key, nil, "", true},
		"three bytes":   {key, whole[:3], "", true},
		"only a sum":    {key, whole[:4], "", true},
		"cut off":       {key, whole[:7], "", true},
		"under another": {[]byte("kex"), whole, "", true},
		"another body":  {key, append(whole[:7:7], 'x'), "", true},
	} {
		body, err := unsealed(c.key, c.stored)
		if string(body) != c.body || errors.Is(err, ErrDamaged) != c.damaged {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
}

func TestReadEntryChecksWhatItReads(t *testing.T) {
	key, e := indexKey(7), &raft.Log{}
	want := &raft.Log{Index: 7, Term: 3, Type: raft.LogNoop, Data: []byte("data")}
	stored := writeEntry(key, want)
	if err := readEntry(key, stored, e); err != nil || e.Index != 7 || e.Term != 3 || e.Type != raft.LogNoop || string(e.Data) != "data" || !e.AppendedAt.IsZero() {
		t.Errorf("read %+v, %v", e, err)
	}
	want.AppendedAt = time.Unix(7, 8)
	if err := readEntry(key, writeEntry(key, want), e); err != nil || !e.AppendedAt.Equal(want.AppendedAt) {
		t.Errorf("appended at %v: read %v, %v", want.AppendedAt, e.AppendedAt, err)
	}
	if err := readEntry(key, sealed(key, make([]byte, entryHeader)), e); err != nil || len(e.Data) != 0 {
		t.Errorf("an entry without data: %+v, %v", e, err)
	}
	for name, broken := range map[string][]byte{
		"flipped":         append(stored[:len(stored)-1:len(stored)-1], 'x'),
		"too short":       sealed(key, make([]byte, entryHeader-1)),
		"another's entry": writeEntry(indexKey(8), want),
	} {
		if err := readEntry(key, broken, e); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "entry 7") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestInspectEntries checks logs whose entries are intact, but which may not be a possible log.
func TestInspectEntries(t *testing.T) {
	type entries [][2]uint64 // index and term
	for name, c := range map[string]struct {
		entries        entries
		snapshot, last uint64
		damaged        bool
	}{
		"empty":                            {nil, 0, 0, false},
		"from the first on":                {entries{{1, 1}, {2, 1}, {3, 2}}, 0, 3, false},
		"the first is gone":                {entries{{2, 1}, {3, 2}}, 0, 3, true},
		"a gap":                            {entries{{1, 1}, {3, 2}}, 0, 3, true},
		"the last is gone":                 {entries{{1, 1}, {2, 1}}, 0, 3, true},
		"all are gone":                     {nil, 0, 3, true},
		"one more than was":                {entries{{1, 1}, {2, 1}}, 0, 1, true},
		"terms that fall":                  {entries{{1, 2}, {2, 1}}, 0, 2, true},
		"behind a snapshot":                {entries{{6, 2}, {7, 2}}, 5, 7, false},
		"not right behind it":              {entries{{7, 2}}, 5, 7, true},
		"a gap below it":                   {entries{{2, 1}, {5, 1}, {6, 2}}, 5, 6, false},
		"all below it":                     {entries{{2, 1}, {3, 1}}, 5, 3, false},
		"a gap above it":                   {entries{{4, 1}, {6, 2}, {8, 2}}, 5, 8, true},
		"index 0, which no entry can have": {entries{{0, 1}, {1, 1}}, 0, 1, true},
	} {
		inBolt(t, func(bucket *bbolt.Bucket) {
			for _, e := range c.entries {
				key := indexKey(e[0])
				if err := bucket.Put(key, writeEntry(key, &raft.Log{Index: e[0], Term: e[1]})); err != nil {
					t.Fatal(err)
				}
			}
			if err := inspectEntries(bucket, c.snapshot, c.last); errors.Is(err, ErrDamaged) != c.damaged {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	inBolt(t, func(bucket *bbolt.Bucket) {
		if err := bucket.Put(indexKey(2), []byte("flipped")); err != nil {
			t.Fatal(err)
		}
		if err := inspectEntries(bucket, 5, 0); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "checksum of log entry 2") {
			t.Errorf("a damaged entry below a snapshot: %v", err)
		}
	})
	inBolt(t, func(bucket *bbolt.Bucket) {
		if err := bucket.Put([]byte("short"), []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := inspectEntries(bucket, 0, 0); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "no index") {
			t.Errorf("a key that is no index: %v", err)
		}
	})
}

// TestInspectValues checks a damaged value, and fewer values than were stored.
func TestInspectValues(t *testing.T) {
	key := []byte("key")
	for name, c := range map[string]struct {
		stored []byte
		count  uint32
		says   string
	}{
		"whole":             {sealed(key, []byte("body")), 1, ""},
		"damaged":           {sealed(key, []byte("body"))[1:], 1, "the checksum of \"key\" is wrong"},
		"fewer than before": {sealed(key, nil), 2, "1 values of 2 are left"},
		"without a tail":    {sealed(key, nil), 0, "where the log ends is not written down"},
	} {
		inBolt(t, func(bucket *bbolt.Bucket) {
			err := bucket.Put(key, c.stored)
			if err == nil && c.count > 0 {
				err = bucket.Put(tailKey, sealed(tailKey, tail{values: c.count}.bytes()))
			}
			if err != nil {
				t.Fatal(err)
			}
			end, err := inspectValues(bucket)
			if c.says == "" && (err != nil || end.values != c.count) || c.says != "" && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %+v, %v", name, end, err)
			}
		})
	}
}

// makeBuckets creates a bolt file that has only these buckets.
func makeBuckets(t *testing.T, path string, names ...[]byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range names {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestMissingBuckets verifies that a file that lacks one of its two buckets is damaged, both for a node and
// for ReadLog.
func TestMissingBuckets(t *testing.T) {
	for _, left := range [][]byte{logsBucket, valuesBucket} {
		cfg := Config{ID: "n1", DataDir: t.TempDir()}.withDefaults()
		makeBuckets(t, filepath.Join(cfg.DataDir, logFile), left)
		if _, err := openStores(cfg, func(error) {}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "has no entries or no values") {
			t.Errorf("opened with %s alone: %v", left, err)
		}
		if err := ReadLog(cfg.DataDir, func(*raft.Log) error { return nil }); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "has no entries or no values") {
			t.Errorf("read with %s alone: %v", left, err)
		}
	}
}

// TestReadLogWithoutBuckets verifies that a file without a first transaction is a log without entries.
func TestReadLogWithoutBuckets(t *testing.T) {
	dir := t.TempDir()
	makeBuckets(t, filepath.Join(dir, logFile))
	if err := ReadLog(dir, func(*raft.Log) error { return errors.New("an entry") }); err != nil {
		t.Error(err)
	}
}

// TestFileThatIsNotLaidOutIsClosed verifies that a failure to create the buckets is returned and the file is
// closed, so that opening it again fails in the same way.
func TestFileThatIsNotLaidOutIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFile)
	makeBuckets(t, path, logsBucket)
	for range 2 {
		if _, err := openBolt(path); !errors.Is(err, bolterrors.ErrBucketExists) {
			t.Errorf("opened: %v", err)
		}
	}
}

// TestFileInUse verifies that opening a file that a node has open returns ErrInUse, and succeeds once the
// node has closed it.
func TestFileInUse(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, logFile)
		tries := map[string]func() error{
			"a second node": func() error {
				second, err := openBolt(path)
				if err == nil {
					err = second.close(true)
				}
				return err
			},
			"a reader of its log": func() error { return ReadLog(dir, func(*raft.Log) error { return nil }) },
		}
		node, err := openBolt(path)
		if err != nil {
			t.Fatal(err)
		}
		for who, open := range tries {
			if err := open(); !errors.Is(err, ErrInUse) || errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v", who, err)
			}
		}
		if err := node.close(true); err != nil {
			t.Fatal(err)
		}
		for who, open := range tries {
			if err := open(); err != nil {
				t.Errorf("%s, later: %v", who, err)
			}
		}
	})
}

// inBolt runs f with an empty bucket and rolls back its changes.
func inBolt(t *testing.T, f func(*bbolt.Bucket)) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "bolt"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte("b"))
		if err == nil {
			f(bucket)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFailedChangesAreReported makes bolt refuse writes by closing its file.
func TestFailedChangesAreReported(t *testing.T) {
	store, err := openBolt(filepath.Join(t.TempDir(), logFile))
	if err == nil {
		err = store.close(true)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"StoreLog":    store.StoreLog(&raft.Log{Index: 1}),
		"StoreLogs":   store.StoreLogs([]*raft.Log{{Index: 1}}),
		"DeleteRange": store.DeleteRange(1, 1),
		"Set":         store.Set([]byte("k"), nil),
		"SetUint64":   store.SetUint64([]byte("k"), 1),
	} {
		if err == nil {
			t.Errorf("%s says nothing", name)
		}
	}
	_, number := store.GetUint64([]byte("k"))
	_, value := store.Get([]byte("k"))
	_, first := store.FirstIndex()
	_, last := store.LastIndex()
	entry := store.GetLog(1, &raft.Log{})
	for name, err := range map[string]error{"GetUint64": number, "Get": value, "FirstIndex": first, "LastIndex": last, "GetLog": entry} {
		if !errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
			t.Errorf("%s says %v", name, err)
		}
	}
}

// TestRestrict checks paths with too many and with too few permissions.
func TestRestrict(t *testing.T) {
	for _, c := range []struct {
		dir           bool
		before, after fs.FileMode
	}{
		{false, 0o600, 0o600}, {false, 0o700, 0o700}, {false, 0o640, 0o600}, {false, 0o604, 0o600}, {false, 0o400, 0o600}, {false, 0o200, 0o600},
		{true, 0o700, 0o700}, {true, 0o750, 0o700}, {true, 0o701, 0o700}, {true, 0o600, 0o700}, {true, 0o500, 0o700},
	} {
		path := filepath.Join(t.TempDir(), "x")
		err := os.WriteFile(path, nil, 0o600)
		if c.dir {
			err = errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		}
		if err := errors.Join(err, os.Chmod(path, c.before), restrict(path, hclog.NewNullLogger())); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != c.after {
			t.Errorf("%04o became %04o, want %04o: %v", c.before, info.Mode().Perm(), c.after, err)
		}
	}
	if err := restrict(filepath.Join(t.TempDir(), "none"), hclog.NewNullLogger()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

// TestPageHeads checks page headers with wrong ids, or with overflow pages that do not exist.
func TestPageHeads(t *testing.T) {
	for name, c := range map[string]struct {
		id, says uint64
		further  uint32
		seen     uint64
		damaged  bool
	}{
		"itself":               {2, 2, 0, 0, false},
		"with overflow":        {2, 2, 1, 0, false},
		"overflow to the end":  {3, 3, 1, 0, false},
		"overflow past it":     {3, 3, 2, 0, true},
		"another":              {2, 3, 0, 0, true},
		"a meta page":          {1, 1, 0, 0, true},
		"past the end":         {5, 5, 0, 0, true},
		"taken":                {2, 2, 0, 2, true},
		"with overflow, taken": {2, 2, 1, 3, true},
	} {
		p := &pages{path: "log", size: 64, used: 5, data: make([]byte, 6*64), seen: map[uint64]bool{}}
		binary.NativeEndian.PutUint64(p.data[c.id*64:], c.says)
		binary.NativeEndian.PutUint32(p.data[c.id*64+12:], c.further)
		p.seen[c.seen] = c.seen != 0
		page, err := p.take(c.id)
		if errors.Is(err, ErrDamaged) != c.damaged || err == nil && len(page) != 64*int(1+c.further) {
			t.Errorf("%s: %d bytes, %v", name, len(page), err)
		}
	}
}
