package judge

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// remains is what one node's data directory contains of the log.
type remains struct {
	// log is the run of consecutive entries that ends with the last one, committed or not.
	log map[uint64]*raft.Log
	// snapshots are the completed ones.
	snapshots []savedState
}

// savedState is a snapshot: the state after the log up to its entry.
type savedState struct {
	index, term uint64
	dir         string
}

// readDir reads everything except the states themselves.
func readDir(dir string) (remains, error) {
	log, err := readLog(dir)
	if err != nil {
		return remains{}, fmt.Errorf("read the log in %s: %w", dir, err)
	}
	snapshots, err := readSnapshots(dir)
	if err != nil {
		return remains{}, fmt.Errorf("read the snapshots in %s: %w", dir, err)
	}
	return remains{lastRun(log), snapshots}, nil
}

// lastEntry returns the term and index of the last entry that the node has.
func (n remains) lastEntry() (term, index uint64) {
	for i, l := range n.log {
		if i > index {
			term, index = l.Term, i
		}
	}
	for _, s := range n.snapshots {
		if s.index > index {
			term, index = s.term, s.index
		}
	}
	return term, index
}

// lastRun drops what precedes a gap. A follower that installed a snapshot keeps its earlier entries there,
// which may never have been committed.
func lastRun(log map[uint64]*raft.Log) map[uint64]*raft.Log {
	last := uint64(0)
	for i := range log {
		last = max(last, i)
	}
	run := map[uint64]*raft.Log{}
	for i := last; log[i] != nil; i-- {
		run[i] = log[i]
	}
	return run
}

// readLog reads a node's whole log from its files, as docs/PROTOCOL.md describes them.
func readLog(dir string) (all map[uint64]*raft.Log, err error) {
	db, err := bbolt.Open(filepath.Join(dir, "raft.db"), 0, &bbolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	all = map[uint64]*raft.Log{}
	err = db.View(func(tx *bbolt.Tx) (err error) {
		if values := tx.Bucket([]byte("values")); values != nil {
			// A checksum, the last index, the number of values, then the log's ID.
			if tail := values.Get([]byte("\x00tail")); len(tail) > 4+8+4+8 {
				all, err = readSegments(filepath.Join(dir, "log"), tail[4+8+4:][:8])
				return err
			}
		}
		entries := tx.Bucket([]byte("entries"))
		if entries == nil {
			return nil
		}
		return entries.ForEach(func(key, value []byte) error {
			l, err := readEntry(key, value)
			if err == nil {
				all[l.Index] = l
			}
			return err
		})
	})
	return all, err
}

// readEntry decodes an entry: a checksum over the key and everything after it, the term, the type, the time
// at which the leader appended it, and the data.
func readEntry(key, value []byte) (*raft.Log, error) {
	const header = 4 + 8 + 1 + 8
	if len(key) != 8 || len(value) < header {
		return nil, fmt.Errorf("an entry under %x has %d bytes", key, len(value))
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	_, _ = sum.Write(key)
	_, _ = sum.Write(value[4:])
	index := binary.BigEndian.Uint64(key)
	if sum.Sum32() != binary.BigEndian.Uint32(value) {
		return nil, fmt.Errorf("the checksum of entry %d is wrong", index)
	}
	return &raft.Log{
		Index: index, Term: binary.BigEndian.Uint64(value[4:]), Type: raft.LogType(value[12]), Data: bytes.Clone(value[header:]),
	}, nil
}

// readSnapshots lists a node's snapshots. It reads raft's files directly, since raft's own reader writes to
// the directory.
func readSnapshots(dir string) (all []savedState, err error) {
	metas, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "meta.json"))
	if err != nil {
		return nil, err
	}
	metas = slices.DeleteFunc(metas, func(path string) bool { return strings.HasSuffix(filepath.Dir(path), ".tmp") })
	for _, path := range metas {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		meta := raft.SnapshotMeta{}
		if err := json.Unmarshal(text, &meta); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, savedState{meta.Index, meta.Term, filepath.Dir(path)})
	}
	return all, nil
}

// read returns the state, which follows a header line.
func (s savedState) read() ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(s.dir, "state.bin"))
	if err != nil {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	_, state, _ := bytes.Cut(data, []byte{'\n'})
	return state, nil
}
