package judge

import (
	"bytes"
	"cmp"
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

// ErrCompacted is returned when no node has the log from its beginning any more, and no
// snapshot joins on to what is left.
var ErrCompacted = errors.New("the beginning of the log is gone: have the nodes keep more of it")

// ErrForked is returned when two nodes have different entries where both must be committed:
// what raft promises never to happen.
var ErrForked = errors.New("two nodes have committed different entries")

// ReadLogs reads the committed log out of the data directories of all nodes of a cluster,
// which have stopped. It changes nothing. An entry counts as committed if a majority of
// them has it, under the same term; dirs are those of all voters. If the log was compacted
// everywhere, it begins after the oldest snapshot from which it is whole, and that snapshot
// is returned as well. It returns ErrForked or ErrCompacted, or an error of a file.
func ReadLogs(dirs ...string) (entries []Entry, snapshot []byte, err error) {
	var logs []map[uint64]*raft.Log
	for _, dir := range dirs {
		log, err := readLog(dir)
		if err != nil {
			return nil, nil, fmt.Errorf("read the log in %s: %w", dir, err)
		}
		logs = append(logs, log)
	}
	all, last, err := committed(logs)
	if err != nil {
		return nil, nil, err
	}
	first := last + 1
	for first > 1 && all[first-1] != nil {
		first--
	}
	if first > 1 {
		if first, snapshot, err = readSnapshot(first, last, dirs); err != nil {
			return nil, nil, err
		}
	}
	for i := first; i <= last; i++ {
		if l := all[i]; l.Type == raft.LogCommand {
			entries = append(entries, Entry{Index: l.Index, Term: l.Term, Data: l.Data})
		}
	}
	return entries, snapshot, nil
}

// readLog reads all that one node has, committed or not, from its file as docs/PROTOCOL.md
// describes it.
func readLog(dir string) (all map[uint64]*raft.Log, err error) {
	db, err := bbolt.Open(filepath.Join(dir, "raft.db"), 0, &bbolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	all = map[uint64]*raft.Log{}
	return all, db.View(func(tx *bbolt.Tx) error {
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
}

// readEntry takes an entry apart: a checksum over key and all that follows, the term, the
// type, when the leader had it, and the data.
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

// committed joins the logs of all voters up to the last entry that a majority has. Two
// entries of one index and term are the same entry. Below that no node may have another
// one, unless it lags behind: then what it has is not yet replaced, and of an older term.
func committed(logs []map[uint64]*raft.Log) (all map[uint64]*raft.Log, last uint64, err error) {
	all = map[uint64]*raft.Log{}
	votes := map[[2]uint64]int{}
	for _, log := range logs {
		for i, l := range log {
			key := [2]uint64{i, l.Term}
			if votes[key]++; votes[key] > len(logs)/2 {
				last = max(last, i)
			}
		}
	}
	best := slices.MaxFunc(logs, func(a, b map[uint64]*raft.Log) int {
		ta, ia := lastOf(a)
		tb, ib := lastOf(b)
		return cmp.Or(cmp.Compare(ta, tb), cmp.Compare(ia, ib))
	})
	for _, log := range append(slices.Clone(logs), best) { // the best has the last word
		for i, l := range log {
			known := all[i]
			if i > last || known != nil && known.Term > l.Term {
				continue
			}
			if known != nil && known.Term == l.Term && !slices.Equal(known.Data, l.Data) {
				return nil, 0, fmt.Errorf("%w: index %d, term %d", ErrForked, i, l.Term)
			}
			all[i] = l
		}
	}
	for i, l := range all {
		if own := best[i]; own != nil && own.Term != l.Term && votes[[2]uint64{i, l.Term}] > len(logs)/2 {
			return nil, 0, fmt.Errorf("%w: index %d, terms %d and %d", ErrForked, i, l.Term, own.Term)
		}
	}
	return all, last, nil
}

func lastOf(log map[uint64]*raft.Log) (term, index uint64) {
	for i, l := range log {
		if i > index {
			term, index = l.Term, i
		}
	}
	return term, index
}

// readSnapshot finds the oldest snapshot of any node that a log from first on goes on from,
// and says where the log goes on. It reads raft's files itself, since raft's own reader
// writes to the directory.
func readSnapshot(first, last uint64, dirs []string) (begin uint64, found []byte, err error) {
	for _, dir := range dirs {
		metas, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "meta.json"))
		if err != nil {
			return 0, nil, err
		}
		for _, path := range metas {
			text, err := os.ReadFile(path)
			if err != nil {
				return 0, nil, fmt.Errorf("read a snapshot: %w", err)
			}
			meta := raft.SnapshotMeta{}
			if err := json.Unmarshal(text, &meta); err != nil {
				return 0, nil, fmt.Errorf("read %s: %w", path, err)
			}
			unfinished := strings.HasSuffix(filepath.Dir(path), ".tmp")
			if unfinished || meta.Index+1 < first || meta.Index > last || found != nil && meta.Index+1 >= begin {
				continue
			}
			data, err := os.ReadFile(filepath.Join(filepath.Dir(path), "state.bin"))
			if err != nil {
				return 0, nil, fmt.Errorf("read a snapshot: %w", err)
			}
			_, state, _ := bytes.Cut(data, []byte{'\n'}) // after the line that describes it
			begin, found = meta.Index+1, state
		}
	}
	if found == nil {
		return 0, nil, fmt.Errorf("%w: it begins at entry %d", ErrCompacted, first)
	}
	return begin, found, nil
}
