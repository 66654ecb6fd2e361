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

	"github.com/quorumlock/quorumlock/server/replica/segment"
)

// The log is in segments, beside bolt's file, once that says so. Bolt's own entries are gone
// in the same transaction, so there is one log at any moment, and it is whole.

// movedAtOnce is how many bytes of entries are written in one batch when the log is moved.
const movedAtOnce = 1 << 20

// segments is what bolt's file knows of a log in segments: which one that is, and a position
// that it has reached.
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

// read visits the entries.
func (s *segments) read(dataDir string, visit func(*raft.Log) error) error {
	return segment.Read(segment.Dir(filepath.Join(dataDir, segmentDir)), segment.Options{ID: s.id, Reached: s.reached}, visit)
}

// log is where raft's log is.
func (s *boltStore) log() raft.LogStore {
	if s.segments != nil {
		return s.segments
	}
	return s
}

// openLog opens the log in segments, or moves it there, unless it is to stay.
// failed is told of a write that nobody waits for.
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

// move writes bolt's log to segments and then, in one transaction, has it there and no longer
// here. A process that ends before leaves segments that nobody asks for, and the next one
// begins again.
func (s *boltStore) move(cfg Config, dir segment.Directory, options segment.Options) error {
	if err := os.MkdirAll(filepath.Join(cfg.DataDir, segmentDir), 0o700); err != nil {
		return fmt.Errorf("make a directory for the log: %w", err)
	}
	// Bolt does not sync the directory: its file must not be lost where segments are not.
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

// copyTo copies the entries that end with the last one and have no gap. Behind a gap stands
// a snapshot, which has what was before.
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

// handOver is the moment in which the log moves.
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

// close closes bolt's file and the segments. If everything was written, what is known of the
// log's end is written as well.
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
