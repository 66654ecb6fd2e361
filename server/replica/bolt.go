package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

// lockTimeout is how long to wait for another process that is just exiting.
const lockTimeout = 2 * time.Second

// boltStore stores raft's stable values in a bolt file, and its log unless that is in segments. It is safe
// for concurrent use.
//
// Bolt trusts its pages and has checksums only for the first two. So every stored value has a checksum of its
// own, which also covers its key and is verified on every read. A checksum cannot detect a missing value. So
// every transaction also writes the tail, which records where the log ends and how many values there are.
type boltStore struct {
	db *bbolt.DB
	// segments has the log, once it is no longer in the file. From then on, every transaction records how far
	// it extends; a log that ends earlier has lost something.
	segments *segment.Log
}

var (
	logsBucket   = []byte("entries") // big-endian index → entry
	valuesBucket = []byte("values")
	// tailKey differs from all keys of raft and of this package.
	tailKey = []byte("\x00tail")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	// errNoValue has the text by which raft recognizes it.
	errNoValue = errors.New("not found")
)

// openBolt opens the file, or creates it. An existing file must have been checked before.
func openBolt(path string) (*boltStore, error) {
	db, err := openFile(path, false)
	if err != nil {
		return nil, err
	}
	store := &boltStore{db: db}
	err = store.layOut()
	if err == nil {
		err = db.Sync() // a killed process may have left pages that only the kernel has
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log: %w", err), db.Close())
	}
	return store, nil
}

// openFile opens a file with bolt. If bolt panics because of the file's content, openFile returns an error
// and closes the file, which also releases its lock.
func openFile(path string, readOnly bool) (db *bbolt.DB, err error) {
	var file *os.File
	defer func() {
		if reason := recover(); reason != nil {
			err = errors.Join(fmt.Errorf("%w: %s: %v", ErrDamaged, path, reason), file.Close())
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        lockTimeout,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		ReadOnly:       readOnly,
		OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	})
	if err != nil {
		return nil, boltError(path, err)
	}
	return db, nil
}

func boltError(path string, err error) error {
	errno := syscall.Errno(0)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: %s", ErrInUse, path)
	case errors.As(err, &errno):
		return fmt.Errorf("open the log: %w", err)
	}
	return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err) // bolt rejects the content
}

// layOut creates the buckets of a new file.
func (s *boltStore) layOut() error {
	laidOut := false
	if err := s.db.View(func(tx *bbolt.Tx) error {
		laidOut = tx.Bucket(valuesBucket) != nil
		return nil
	}); err != nil || laidOut {
		return err
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		_, logs := tx.CreateBucket(logsBucket)
		_, values := tx.CreateBucket(valuesBucket)
		if err := errors.Join(logs, values); err != nil {
			return err
		}
		return s.conclude(tx)
	})
}

// update changes log and values together with the tail.
func (s *boltStore) update(change func(logs, values *bbolt.Bucket) error) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		if err := change(tx.Bucket(logsBucket), tx.Bucket(valuesBucket)); err != nil {
			return err
		}
		return s.conclude(tx)
	})
}

// conclude writes the tail, at the end of every transaction.
func (s *boltStore) conclude(tx *bbolt.Tx) error {
	logs, values := tx.Bucket(logsBucket), tx.Bucket(valuesBucket)
	now := tail{values: countValues(values)}
	if last, _ := logs.Cursor().Last(); last != nil {
		now.last = binary.BigEndian.Uint64(last)
	}
	if s.segments != nil {
		now.segments = &segments{s.segments.ID(), s.segments.End()}
	}
	return values.Put(tailKey, sealed(tailKey, now.bytes()))
}

func countValues(values *bbolt.Bucket) (n uint32) {
	cursor := values.Cursor()
	for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
		if string(key) != string(tailKey) {
			n++
		}
	}
	return n
}

// FirstIndex implements raft.LogStore.
func (s *boltStore) FirstIndex() (index uint64, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		if first, _ := tx.Bucket(logsBucket).Cursor().First(); first != nil {
			index = binary.BigEndian.Uint64(first)
		}
		return nil
	})
	return index, err
}

// LastIndex implements raft.LogStore.
func (s *boltStore) LastIndex() (index uint64, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		if last, _ := tx.Bucket(logsBucket).Cursor().Last(); last != nil {
			index = binary.BigEndian.Uint64(last)
		}
		return nil
	})
	return index, err
}

// GetLog implements raft.LogStore.
func (s *boltStore) GetLog(index uint64, entry *raft.Log) error {
	key := indexKey(index)
	return s.db.View(func(tx *bbolt.Tx) error {
		value := tx.Bucket(logsBucket).Get(key)
		if value == nil {
			return raft.ErrLogNotFound
		}
		return readEntry(key, value, entry)
	})
}

// StoreLog implements raft.LogStore.
func (s *boltStore) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (s *boltStore) StoreLogs(entries []*raft.Log) error {
	return s.update(func(logs, _ *bbolt.Bucket) error {
		for _, e := range entries {
			key := indexKey(e.Index)
			if err := logs.Put(key, writeEntry(key, e)); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteRange implements raft.LogStore.
func (s *boltStore) DeleteRange(lowest, highest uint64) error {
	return s.update(func(logs, _ *bbolt.Bucket) error {
		cursor, from := logs.Cursor(), indexKey(lowest)
		// Deleting moves the following keys, so the cursor has to seek again each time.
		for key, _ := cursor.Seek(from); key != nil && binary.BigEndian.Uint64(key) <= highest; key, _ = cursor.Seek(from) {
			if err := cursor.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Set implements raft.StableStore.
func (s *boltStore) Set(key, value []byte) error {
	return s.update(func(_, values *bbolt.Bucket) error { return values.Put(key, sealed(key, value)) })
}

// Get implements raft.StableStore.
func (s *boltStore) Get(key []byte) (value []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		stored := tx.Bucket(valuesBucket).Get(key)
		if stored == nil {
			return errNoValue
		}
		body, err := unsealed(key, stored)
		value = append([]byte{}, body...)
		return err
	})
	return value, err
}

// SetUint64 implements raft.StableStore.
func (s *boltStore) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (s *boltStore) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: %s has %d bytes", ErrDamaged, key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

func indexKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// sealed returns the body, preceded by the checksum of key and body.
func sealed(key, body []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), sum), body...)
}

// unsealed returns the body after verifying the checksum.
func unsealed(key, stored []byte) ([]byte, error) {
	if len(stored) < 4 || crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, stored[4:]) != binary.BigEndian.Uint32(stored) {
		return nil, fmt.Errorf("%w: the checksum of %q is wrong", ErrDamaged, key)
	}
	return stored[4:], nil
}

// entryHeader is the size of what precedes an entry's data: term, type, and the time when the leader appended
// it, in nanoseconds since 1970, 0 if unknown.
const entryHeader = 8 + 1 + 8

// Size of a tail (index and number of values), and of its part about segments (their id and a position).
const (
	tailSize     = 8 + 4
	segmentsSize = 8 + 8 + 4
)

func writeEntry(key []byte, e *raft.Log) []byte {
	body := make([]byte, 0, entryHeader+len(e.Data))
	body = binary.BigEndian.AppendUint64(body, e.Term)
	body = append(body, byte(e.Type))
	appended := int64(0)
	if !e.AppendedAt.IsZero() {
		appended = e.AppendedAt.UnixNano()
	}
	body = binary.BigEndian.AppendUint64(body, uint64(appended))
	return sealed(key, append(body, e.Data...))
}

func readEntry(key, stored []byte, e *raft.Log) error {
	index := binary.BigEndian.Uint64(key)
	body, err := unsealed(key, stored)
	if err != nil || len(body) < entryHeader {
		return fmt.Errorf("%w: the checksum of log entry %d is wrong", ErrDamaged, index)
	}
	*e = raft.Log{Index: index, Term: binary.BigEndian.Uint64(body), Type: raft.LogType(body[8])}
	if appended := int64(binary.BigEndian.Uint64(body[9:])); appended != 0 {
		e.AppendedAt = time.Unix(0, appended)
	}
	e.Data = append([]byte{}, body[entryHeader:]...)
	return nil
}

// tail is what every transaction records: the index of the last entry in this file, 0 if there is none, the
// number of values, and the position of the log if it is in segments.
type tail struct {
	last     uint64
	values   uint32
	segments *segments
}

func (t tail) bytes() []byte {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, t.last), t.values)
	if t.segments != nil {
		b = t.segments.append(b)
	}
	return b
}

// readTail reads the tail, which every file must have.
func readTail(values *bbolt.Bucket) (t tail, err error) {
	stored := values.Get(tailKey)
	body, err := unsealed(tailKey, stored)
	if err != nil || len(body) != tailSize && len(body) != tailSize+segmentsSize {
		return tail{}, fmt.Errorf("%w: where the log ends is not written down", ErrDamaged)
	}
	t = tail{last: binary.BigEndian.Uint64(body), values: binary.BigEndian.Uint32(body[8:])}
	if len(body) > tailSize {
		t.segments = readSegments(body[tailSize:])
	}
	return t, nil
}
