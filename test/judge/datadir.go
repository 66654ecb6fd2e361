package judge

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
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
	err = db.View(func(tx *bbolt.Tx) error {
		conf := tx.Bucket([]byte("conf"))
		if conf == nil || conf.Get([]byte("record")) == nil {
			return nil // it was never used
		}
		values, err := readValues(conf.Get([]byte("record")))
		if err == nil && len(values["log"]) >= 8 {
			all, err = readSegments(filepath.Join(dir, "log"), values["log"][:8]) // the log's id comes first
		}
		return err
	})
	return all, err
}

// readValues decodes the record of a node's values: a checksum, a version, a generation, then keys and values,
// each preceded by its length.
func readValues(record []byte) (map[string][]byte, error) {
	if len(record) < 5 || crc32.Checksum(record[4:], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(record) {
		return nil, errors.New("the checksum of the values is wrong")
	}
	from := bytes.NewReader(record[5:])
	_, err := binary.ReadUvarint(from) // the generation
	values := map[string][]byte{}
	for err == nil && from.Len() > 0 {
		var texts [2][]byte
		for i := range texts {
			var size uint64
			if size, err = binary.ReadUvarint(from); err != nil || size > uint64(from.Len()) {
				return nil, fmt.Errorf("a value of %d bytes: %w", size, cmp.Or(err, io.ErrUnexpectedEOF))
			}
			texts[i] = make([]byte, size)
			_, err = io.ReadFull(from, texts[i])
		}
		values[string(texts[0])] = texts[1]
	}
	return values, err
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
