package judge

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

var logID = segment.ID{7, 7, 7}

// segmentsDir writes the files of a stopped node.
func segmentsDir(t *testing.T, write func(*segment.Log)) string {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	must(t, os.Mkdir(log, 0o700))
	l, err := segment.Create(segment.Dir(log), segment.Options{ID: logID, Size: 64 << 10})
	must(t, err)
	write(l)
	must(t, errors.Join(l.Mark(), l.Close()))
	writeRecord(t, dir, recordOf(map[string]string{"CurrentTerm": "\x07", "log": string(logID[:]) + strings.Repeat("\x00", 12)}))
	return dir
}

// recordOf encodes values, as docs/PROTOCOL.md describes it.
func recordOf(values map[string]string) []byte {
	body := []byte{1, 9} // version, generation
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, text := range []string{key, values[key]} {
			body = append(binary.AppendUvarint(body, uint64(len(text))), text...)
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))), body...)
}

// writeRecord stores the record of a node's values.
func writeRecord(t *testing.T, dir string, record []byte) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "raft.db"), 0o600, &bbolt.Options{NoSync: true})
	must(t, err)
	err = db.Update(func(tx *bbolt.Tx) error {
		conf, err := tx.CreateBucketIfNotExists([]byte("conf"))
		must(t, err)
		return conf.Put([]byte("record"), record)
	})
	must(t, errors.Join(err, db.Close()))
}

// TestDamagedValues verifies that a record of values that is not what was written is rejected.
func TestDamagedValues(t *testing.T) {
	whole := recordOf(map[string]string{"key": "value"})
	sealed := func(body []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))), body...)
	}
	for what, record := range map[string][]byte{
		"nothing":              {},
		"a flipped bit":        append([]byte{whole[0] ^ 1}, whole[1:]...),
		"no generation":        sealed([]byte{1}),
		"a value cut off":      sealed(whole[4 : len(whole)-1]),
		"a key without length": sealed([]byte{1, 9, 0x80}),
	} {
		if values, err := readValues(record); err == nil {
			t.Errorf("%s: %q", what, values)
		}
	}
	if values, err := readValues(whole); err != nil || string(values["key"]) != "value" {
		t.Errorf("%q, %v", values, err)
	}
}

// TestSegmentsAreRead verifies that the entries written to a segment log are the entries read from its files.
func TestSegmentsAreRead(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		want := map[uint64]*raft.Log{}
		var first uint64
		dir := segmentsDir(t, func(l *segment.Log) {
			last, term := uint64(0), uint64(1)
			for range 60 {
				if random.IntN(12) == 0 { // after a snapshot
					last += 10
					clear(want)
				}
				var batch []*raft.Log
				for range 1 + random.IntN(5) {
					last++
					e := &raft.Log{Index: last, Term: term, Type: raft.LogType(random.IntN(2)), Data: make([]byte, random.IntN(3000))}
					e.Data = append(e.Data, byte(last))
					batch, want[last] = append(batch, e), e
				}
				must(t, l.StoreLogs(batch))
				switch at, _ := l.FirstIndex(); random.IntN(12) {
				case 0:
					lowest := at + random.Uint64N(last-at+1)
					must(t, l.DeleteRange(lowest, last))
					for i := lowest; i <= last; i++ {
						delete(want, i)
					}
					last, term = lowest-1, term+1
				case 1:
					must(t, l.DeleteRange(at, at+random.Uint64N(last-at+1)))
				}
			}
			first, _ = l.FirstIndex()
		})
		got, err := readLog(dir)
		must(t, err)
		for i, e := range got {
			if w := want[i]; w == nil || w.Term != e.Term || w.Type != e.Type || string(w.Data) != string(e.Data) {
				t.Fatalf("seed %d: entry %d of term %d, %d bytes, is not what was written", seed, i, e.Term, len(e.Data))
			}
		}
		for i := range want {
			if i >= first && first > 0 && got[i] == nil {
				t.Fatalf("seed %d: entry %d is missing", seed, i)
			}
		}
	}
}

// TestDamagedSegments verifies that damaged files are rejected.
func TestDamagedSegments(t *testing.T) {
	for what, test := range map[string]struct {
		spoil func(t *testing.T, first, second string)
		fault string
	}{
		"a flipped bit": {func(t *testing.T, first, _ string) {
			content, err := os.ReadFile(first)
			must(t, err)
			content[5000] ^= 1
			must(t, os.WriteFile(first, content, 0o600))
		}, "is not whole"},
		"another's header": {func(t *testing.T, first, second string) { must(t, os.Rename(second, first)) }, "not its own"},
		"a file missing":   {func(t *testing.T, _, second string) { must(t, os.Remove(second)) }, "is missing"},
		"none left":        {func(t *testing.T, first, _ string) { must(t, os.RemoveAll(filepath.Dir(first))) }, "no segments"},
	} {
		dir := segmentsDir(t, func(l *segment.Log) {
			for i := range uint64(200) {
				must(t, l.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: make([]byte, 1000)}))
			}
		})
		test.spoil(t, filepath.Join(dir, "log", "0000000000000001.segment"), filepath.Join(dir, "log", "0000000000000002.segment"))
		if _, err := readLog(dir); err == nil || !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
