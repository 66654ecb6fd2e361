package replica

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

// Once bolt's file says so, the log is in segments next to it. The same transaction deletes bolt's own
// entries, so at any moment there is exactly one log, and it is complete.

// movedAtOnce is the size of a batch, in bytes of entries, when the log is moved.
const movedAtOnce = 1 << 20

// segments is what bolt's file records about a log in segments: its id, and a position that it has reached.
type segments struct {
	id      segment.ID
	reached segment.Position
}

func (s segments) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(append(b, s.id[:]...), s.reached.File)
	return binary.BigEndian.AppendUint32(b, s.reached.Sector)
}

func readSegments(b []byte) *segments {
	s := &segments{reached: segment.Position{File: binary.BigEndian.Uint64(b[8:]), Sector: binary.BigEndian.Uint32(b[16:])}}
	copy(s.id[:], b)
	return s
}

// read calls visit with the entries.
func (s *segments) read(dataDir string, visit func(*raft.Log) error) error {
	return segment.Read(segment.Dir(filepath.Join(dataDir, segmentDir)), segment.Options{ID: s.id, Reached: s.reached}, visit)
}

// log returns the store that has raft's log.
func (s *boltStore) log() raft.LogStore {
	if s.segments != nil {
		return s.segments
	}
	return s
}

// openLog opens the log in segments, or moves it there unless cfg keeps it in bolt. failed is called when a
// write fails that nothing waits for.
func (s *boltStore) openLog(cfg Config, dir segment.Directory, failed func(error)) error {
	var known *segments
	if err := s.db.View(func(tx *bbolt.Tx) error {
		end, err := readTail(tx.Bucket(valuesBucket))
		known = end.segments
		return err
	}); err != nil {
		return err
	}
	options := segment.Options{Size: cfg.SegmentBytes, Rest: rest, Logger: cfg.Logger.Named("log"), Failed: func(err error) {
		failed(fmt.Errorf("%w: mark the end of the log: %w%s", ErrStore, err, advice(err)))
	}}
	switch {
	case cfg.LogStore == LogInBolt && known != nil:
		return fmt.Errorf("%w: start this node with --log-store %s, or replace it by one with an empty --data-dir, which may keep its log in bolt", ErrLogMoved, LogInSegments)
	case cfg.LogStore == LogInBolt:
		return nil
	case known == nil:
		return s.move(cfg, dir, options)
	}
	options.ID, options.Reached = known.id, known.reached
	log, err := segment.Open(dir, options)
	if err != nil {
		return fmt.Errorf("open the log in %s: %w", filepath.Join(cfg.DataDir, segmentDir), missing(err))
	}
	s.segments = log
	return nil
}

// move writes bolt's log to segments and then switches to them in one transaction. If the process ends before
// that, it leaves segments that are not used, and the next start moves the log again.
func (s *boltStore) move(cfg Config, dir segment.Directory, options segment.Options) error {
	if err := os.MkdirAll(filepath.Join(cfg.DataDir, segmentDir), 0o700); err != nil {
		return fmt.Errorf("make a directory for the log: %w", err)
	}
	// Bolt does not sync the directory. Sync it, so that its file cannot be lost while the segments remain.
	if err := segment.Dir(cfg.DataDir).Sync(); err != nil {
		return fmt.Errorf("make a directory for the log: %w", err)
	}
	_, _ = rand.Read(options.ID[:]) // never fails
	log, err := segment.Create(dir, options)
	if err != nil {
		return fmt.Errorf("begin the log: %w", err)
	}
	count, err := s.copyTo(log)
	if err == nil {
		err = s.handOver(log)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("move the log to segments: %w", err), log.Close())
	}
	if count > 0 {
		cfg.Logger.Info("the log was moved to segments", "entries", count)
	}
	return nil
}

// copyTo copies the entries from the last gap on. A snapshot covers everything before the gap.
func (s *boltStore) copyTo(log *segment.Log) (count int, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(logsBucket).Cursor()
		var batch []*raft.Log
		size := 0
		for key, stored := startOfLastRun(cursor); key != nil; key, stored = cursor.Next() {
			e := &raft.Log{}
			if err := readEntry(key, stored, e); err != nil {
				return err
			}
			batch, size, count = append(batch, e), size+len(e.Data), count+1
			if size < movedAtOnce {
				continue
			}
			if err := log.StoreLogs(batch); err != nil {
				return err
			}
			batch, size = nil, 0
		}
		return log.StoreLogs(batch)
	})
	return count, err
}

func startOfLastRun(cursor *bbolt.Cursor) (key, stored []byte) {
	key, stored = cursor.Last()
	for key != nil {
		before, _ := cursor.Prev()
		if before == nil || binary.BigEndian.Uint64(before)+1 != binary.BigEndian.Uint64(key) {
			return cursor.Seek(key)
		}
		key, stored = cursor.Seek(before)
	}
	return key, stored
}

// handOver switches from bolt's log to the segments.
func (s *boltStore) handOver(log *segment.Log) error {
	s.segments = log
	err := s.db.Update(func(tx *bbolt.Tx) error {
		err := tx.DeleteBucket(logsBucket)
		if err == nil {
			_, err = tx.CreateBucket(logsBucket)
		}
		if err == nil {
			err = s.conclude(tx)
		}
		return err
	})
	if err != nil {
		s.segments = nil
	}
	return err
}

// close closes bolt's file and the segments. If sound is set, because all writes have succeeded, it first
// writes the position of the log's end.
func (s *boltStore) close(sound bool) (err error) {
	if s.segments != nil {
		if sound {
			err = s.segments.Mark()
		}
		if sound && err == nil {
			err = s.update(func(_, _ *bbolt.Bucket) error { return nil })
		}
		err = errors.Join(err, s.segments.Close())
	}
	return errors.Join(err, s.db.Close())
}
