package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// A node whose memory has holes must not take part: it would vote and acknowledge as if it had never known
// what is missing. So everything in the data directory is checked before any of it is used. Bolt would crash
// on some damaged pages and silently ignore others, so it opens the file only after this check.

// inspect checks an existing data directory. snapshot is the index of its newest snapshot, 0 if it has none.
func inspect(dir string, snapshot uint64) error {
	path := filepath.Join(dir, logFile)
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return errors.Join(noSegments(dir), nothingLeft(dir, snapshot))
	}
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	return inspectLog(dir, snapshot)
}

// nothingLeft returns an error if other parts of the directory exist although its log does not.
func nothingLeft(dir string, snapshot uint64) error {
	_, err := os.Stat(filepath.Join(dir, identityFile))
	if snapshot == 0 && errors.Is(err, os.ErrNotExist) {
		return nil // a new directory
	}
	return fmt.Errorf("%w: %s is gone", ErrDamaged, filepath.Join(dir, logFile))
}

// noSegments returns an error if the directory has segments of a log. The file that is created before them
// does not exist.
func noSegments(dir string) error {
	found, err := os.ReadDir(filepath.Join(dir, segmentDir))
	if errors.Is(err, os.ErrNotExist) || err == nil && len(found) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the log: %w", err)
	}
	return fmt.Errorf("%w: %s is gone", ErrDamaged, filepath.Join(dir, logFile))
}

// inspectLog checks the content of bolt's file. Segments are checked when they are opened.
func inspectLog(dir string, snapshot uint64) error {
	path := filepath.Join(dir, logFile)
	return readBolt(path, func(tx *bbolt.Tx) error {
		logs, values, err := buckets(tx)
		if err != nil {
			return err
		}
		if logs == nil {
			// The process may have ended between creating the file and its first use.
			return errors.Join(noSegments(dir), nothingLeft(dir, snapshot))
		}
		end, err := inspectValues(values)
		if err == nil {
			err = inspectEntries(logs, snapshot, end.last)
		}
		if err == nil && end.values == 0 {
			err = nothingLeft(dir, snapshot)
		}
		if err == nil && end.segments != nil && end.last != 0 {
			err = fmt.Errorf("%w: %s has entries, and the log is in segments", ErrDamaged, path)
		}
		return err
	})
}

// buckets returns both buckets, or nil for both if the file has neither. They are created in one transaction,
// so a file with only one of them is damaged.
func buckets(tx *bbolt.Tx) (logs, values *bbolt.Bucket, err error) {
	logs, values = tx.Bucket(logsBucket), tx.Bucket(valuesBucket)
	if (logs == nil) != (values == nil) {
		return nil, nil, fmt.Errorf("%w: it has no %s or no %s", ErrDamaged, logsBucket, valuesBucket)
	}
	return logs, values, nil
}

func inspectValues(values *bbolt.Bucket) (end tail, err error) {
	if err := values.ForEach(func(key, stored []byte) error {
		_, err := unsealed(key, stored)
		return err
	}); err != nil {
		return tail{}, err
	}
	end, err = readTail(values)
	if count := countValues(values); err == nil && end.values != count {
		err = fmt.Errorf("%w: %d values of %d are left", ErrDamaged, count, end.values)
	}
	return end, err
}

// inspectEntries returns an error unless every entry after the snapshot is there, up to last. Before the
// snapshot there may be gaps: a node that was sent a snapshot keeps its earlier entries.
func inspectEntries(logs *bbolt.Bucket, snapshot, last uint64) error {
	due := snapshot + 1
	before, newest := uint64(0), raft.Log{}
	err := logs.ForEach(func(key, stored []byte) error {
		if len(key) != 8 {
			return fmt.Errorf("%w: %x is no index", ErrDamaged, key)
		}
		var e raft.Log
		if err := readEntry(key, stored, &e); err != nil {
			return err
		}
		if e.Index <= before || e.Index > due || e.Term < newest.Term {
			return fmt.Errorf("%w: log entry %d of term %d stands behind %d of term %d, and the snapshot ends at %d", ErrDamaged, e.Index, e.Term, before, newest.Term, snapshot)
		}
		before, newest = e.Index, e
		due = max(due, e.Index+1)
		return nil
	})
	if err == nil && before != last {
		err = fmt.Errorf("%w: the log ends at entry %d, and ended at %d", ErrDamaged, before, last)
	}
	return err
}

// readBolt calls visit with the content of a file that no process has open. A page on which bolt panics is
// damage.
func readBolt(path string, visit func(*bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w: %s: %v", ErrDamaged, path, reason)
		}
	}()
	db, err := openFile(path, true)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := inspectPages(path); err != nil {
		return err
	}
	if err := db.View(visit); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ReadLog calls visit with the log entries of a node that is not running, in order, for tools and tests that
// inspect what a cluster has decided. It returns ErrInUse, ErrDamaged, an error of the disk, or the first
// error of visit, after which it stops.
func ReadLog(dataDir string, visit func(*raft.Log) error) error {
	return readBolt(filepath.Join(dataDir, logFile), func(tx *bbolt.Tx) error {
		logs, values, err := buckets(tx)
		if logs == nil {
			return err // nil if nothing has been written yet
		}
		end, err := readTail(values)
		if err != nil {
			return err
		}
		if end.segments != nil {
			return end.segments.read(dataDir, visit)
		}
		return logs.ForEach(func(key, stored []byte) error {
			var e raft.Log
			if err := readEntry(key, stored, &e); err != nil {
				return err
			}
			return visit(&e)
		})
	})
}
