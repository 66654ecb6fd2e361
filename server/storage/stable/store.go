package stable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

const (
	// File is bolt's file in the data directory.
	File = "raft.db"
	// GenerationFile is the file beside it that holds the generation.
	GenerationFile = "generation"

	fileMode = 0o600
	// lockTimeout is how long to wait for another process that is just ending.
	lockTimeout = 2 * time.Second
)

// Names of raft-boltdb's buckets, and the key of the record.
var (
	logsBucket = []byte("logs")
	confBucket = []byte("conf")
	recordKey  = []byte("record")
)

var (
	// ErrInUse is returned when another process has the file open.
	ErrInUse = errors.New("the data directory is in use by another process")
	// errFailed is returned after a failed write. What is on the disk is unknown then.
	errFailed = errors.New("an earlier write of term and vote failed")
)

// Store implements raft.StableStore. It is safe for concurrent use.
type Store struct {
	bolt       *raftboltdb.BoltStore
	generation *generation

	writing  sync.Mutex // held during a write; guards failed and attached
	failed   bool
	attached map[string]func() []byte

	mu      sync.RWMutex // guards current
	current record
}

// Open opens the store in a data directory, or creates it if neither of its files exists. It returns ErrInUse,
// segment.ErrDamaged if the files do not have what was last written to them, or an error of the disk.
func Open(dir string) (*Store, error) {
	// raft-boltdb changes the file when it opens it.
	if _, err := read(dir); err != nil {
		return nil, err
	}
	path, beside := filepath.Join(dir, File), filepath.Join(dir, GenerationFile)
	if err := create(path, beside); err != nil {
		return nil, err
	}
	g, err := openGeneration(beside)
	if err != nil {
		return nil, err
	}
	bolt, err := openBolt(path)
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	s := &Store{bolt: bolt, generation: g, attached: map[string]func() []byte{}}
	if err := s.load(beside); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Read returns the values in a data directory that no process has open. It returns none if nothing was ever
// stored there, and the errors of Open.
func Read(dir string) (map[string][]byte, error) {
	found, err := read(dir)
	return found.values, err
}

// Created reports whether a store was ever opened in a data directory.
func Created(dir string) (bool, error) {
	_, exists, err := readGeneration(filepath.Join(dir, GenerationFile))
	return exists, err
}

// read returns the record in a data directory, with generation 0 if nothing was ever stored.
func read(dir string) (record, error) {
	path, beside := filepath.Join(dir, File), filepath.Join(dir, GenerationFile)
	number, exists, err := readGeneration(beside)
	if err != nil {
		return record{}, err
	}
	info, err := os.Stat(path)
	present := err == nil && info.Size() > 0
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return record{}, fmt.Errorf("open term and vote: %w", err)
	case present && !exists:
		return record{}, fmt.Errorf("%w: %s is gone", segment.ErrDamaged, beside)
	case !present && number > 0:
		return record{}, fmt.Errorf("%w: %s is gone", segment.ErrDamaged, path)
	case !present:
		return record{}, nil
	}
	found, err := readFile(path)
	if number == 0 && errors.Is(err, segment.ErrDamaged) {
		return record{}, nil // no write was completed: the process ended while it created the file
	}
	if err == nil {
		err = matches(path, number, found)
	}
	return found, err
}

// matches returns an error unless the record is the last one written, or the next one, whose write the process
// did not complete.
func matches(path string, number uint64, found record) error {
	if found.generation == number || found.generation == number+1 {
		return nil
	}
	return fmt.Errorf("%w: %s has generation %d of term and vote, and had %d", segment.ErrDamaged, path, found.generation, number)
}

// create creates the generation file if it does not exist, and empties bolt's file if bolt cannot read it.
// Called only after read, so nothing was ever stored then.
func create(path, beside string) error {
	number, exists, err := readGeneration(beside)
	if err != nil {
		return err
	}
	if !exists {
		return createGeneration(beside)
	}
	info, err := os.Stat(path)
	if number > 0 || err != nil || info.Size() == 0 {
		return nil
	}
	if _, err := readFile(path); errors.Is(err, segment.ErrDamaged) {
		return os.Truncate(path, 0)
	}
	return nil
}

// readFile returns the record in bolt's file.
func readFile(path string) (found record, err error) {
	err = guarded(path, func() error {
		db, err := openFile(path, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true, PreLoadFreelist: true})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			logs, conf := tx.Bucket(logsBucket), tx.Bucket(confBucket)
			if logs == nil || conf == nil {
				return fmt.Errorf("%w: %s has no %s or no %s", segment.ErrDamaged, path, logsBucket, confBucket)
			}
			if err := checkPages(path, tx, tx.Cursor().Bucket(), logs, conf); err != nil {
				return err
			}
			if data := conf.Get(recordKey); data != nil {
				found, err = decode(data)
			}
			return err
		})
	})
	return found, err
}

// checkPages returns an error for three kinds of damage that do not keep bolt from reading the record, but make its
// next write do harm. A page that extends beyond the last one would be freed page by page, up to four billion. A
// free page beyond the last one would be written to. A bucket's page that is listed as free would be overwritten.
func checkPages(path string, tx *bbolt.Tx, buckets ...*bbolt.Bucket) error {
	for _, bucket := range buckets {
		// A small bucket has no page of its own. A larger one has a single page: there is only one record.
		page, err := tx.Page(int(bucket.Root()))
		if err != nil || page == nil || page.Type == "free" {
			return errors.Join(err, fmt.Errorf("%w: %s lists page %d, which is in use, as free", segment.ErrDamaged, path, bucket.Root()))
		}
	}
	free := 0
	for id := 2; ; id++ { // the first two pages have checksums
		page, err := tx.Page(id)
		switch {
		case err != nil:
			return err
		case page == nil && free != tx.DB().Stats().FreePageN:
			return fmt.Errorf("%w: %s has %d free pages and lists %d", segment.ErrDamaged, path, free, tx.DB().Stats().FreePageN)
		case page == nil:
			return nil
		case page.Type == "free":
			free++
			continue // whatever was in it
		}
		id += page.OverflowCount
		if last, err := tx.Page(id); err != nil || last == nil {
			return errors.Join(err, fmt.Errorf("%w: %s: a page extends to page %d", segment.ErrDamaged, path, id))
		}
	}
}

// guarded runs an operation of bolt. If bolt panics because of the file's content, that is damage.
func guarded(path string, operation func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w: %s: %v", segment.ErrDamaged, path, reason)
		}
	}()
	return operation()
}

// openFile opens a file with bolt. It closes the file, which also releases its lock, if bolt panics.
func openFile(path string, options *bbolt.Options) (db *bbolt.DB, err error) {
	closeOnPanic := captureFile(options)
	defer closeOnPanic()
	if db, err = bbolt.Open(path, fileMode, options); err != nil {
		return nil, boltError(path, err)
	}
	return db, nil
}

// captureFile makes bolt open its file through options. The returned function closes it during a panic.
func captureFile(options *bbolt.Options) (closeOnPanic func()) {
	var file *os.File
	options.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	return func() {
		if reason := recover(); reason != nil {
			_ = file.Close() // the panic is the error to report
			panic(reason)
		}
	}
}

// openBolt opens bolt's file for raft-boltdb.
func openBolt(path string) (store *raftboltdb.BoltStore, err error) {
	err = guarded(path, func() error {
		options := &bbolt.Options{Timeout: lockTimeout}
		closeOnPanic := captureFile(options)
		defer closeOnPanic()
		store, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: options})
		return boltError(path, err)
	})
	return store, err
}

func boltError(path string, err error) error {
	errno := syscall.Errno(0)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: %s: stop that process, or give this node a --data-dir of its own", ErrInUse, path)
	case errors.As(err, &errno):
		return fmt.Errorf("open term and vote: %w", err)
	}
	return fmt.Errorf("%w: %s: %w", segment.ErrDamaged, path, err) // bolt rejects the content
}

// load reads the record again, now that no other process can change it, and completes its write.
func (s *Store) load(beside string) error {
	number, _, err := readGeneration(beside)
	if err != nil {
		return err
	}
	err = guarded(File, func() error {
		data, err := s.bolt.Get(recordKey)
		if err == nil {
			s.current, err = decode(data)
		}
		return err
	})
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return fmt.Errorf("read term and vote: %w", err)
	}
	if err := matches(File, number, s.current); err != nil {
		return err
	}
	if s.current.generation == number {
		return nil
	}
	if err := s.generation.write(s.current.generation); err != nil {
		return fmt.Errorf("write the generation of term and vote: %w", err)
	}
	return nil
}

// Attach makes every later write also store what value returns under a key. It must be called before the
// first write.
func (s *Store) Attach(key string, value func() []byte) { s.attached[key] = value }

// Set implements raft.StableStore.
func (s *Store) Set(key, value []byte) error {
	return s.write(func(next record) { next.values[string(key)] = slices.Clone(value) })
}

// Flush stores the attached values.
func (s *Store) Flush() error { return s.write(func(record) {}) }

// write stores the next generation of the record, with the change. It returns when the disk has it.
func (s *Store) write(change func(next record)) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.failed {
		return errFailed
	}
	s.mu.RLock()
	next := s.current.next()
	s.mu.RUnlock()
	change(next)
	for key, value := range s.attached {
		next.values[key] = value()
	}
	err := guarded(File, func() error { return s.bolt.Set(recordKey, next.encode()) })
	if err == nil {
		err = s.generation.write(next.generation)
	}
	if err != nil {
		s.failed = true
		return fmt.Errorf("write term and vote: %w", err)
	}
	s.mu.Lock()
	s.current = next
	s.mu.Unlock()
	return nil
}

// Get implements raft.StableStore. A key without a value gives raftboltdb.ErrKeyNotFound, whose text raft
// knows.
func (s *Store) Get(key []byte) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, ok := s.current.values[string(key)]
	if !ok {
		return nil, raftboltdb.ErrKeyNotFound
	}
	return slices.Clone(value), nil
}

// SetUint64 implements raft.StableStore.
func (s *Store) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: %s has %d bytes", segment.ErrDamaged, key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// Close closes the files.
func (s *Store) Close() error { return errors.Join(s.bolt.Close(), s.generation.close()) }
