package process_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"hash/crc64"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/server/storage/segment"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// These functions change the disk contents of a stopped node, in the formats of docs/PROTOCOL.md, and correct
// every checksum. Nothing that the node checks at its start reveals the change.

// forgeLog changes the value in the acquire of a lock in the node's log. It rewrites the log and the record
// of its end.
func forgeLog(t *testing.T, dir, lock, value string) {
	t.Helper()
	var entries []*raft.Log
	changed := 0
	if err := storage.ReadLog(dir, func(e *raft.Log) error {
		if now := forgedEntry(e, lock, value); now != nil {
			e.Data = now
			changed++
		}
		entries = append(entries, e)
		return nil
	}); err != nil || changed != 1 {
		t.Fatalf("%d entries changed: %v", changed, err)
	}
	db, err := bbolt.Open(filepath.Join(dir, "raft.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bbolt.Tx) error {
		conf, key := tx.Bucket([]byte("conf")), []byte("record")
		record := bytes.Clone(conf.Get(key))
		_, value, ok := bytes.Cut(record, []byte("\x03log\x14")) // the log's ID, file, sector
		if !ok {
			t.Fatal("the end of the log is not recorded")
		}
		end := rewriteLog(t, filepath.Join(dir, "log"), segment.ID(value[:8]), entries)
		binary.BigEndian.PutUint64(value[8:], end.File)
		binary.BigEndian.PutUint32(value[16:], end.Sector)
		binary.BigEndian.PutUint32(record, crc32.Checksum(record[4:], crc32.MakeTable(crc32.Castagnoli)))
		return conf.Put(key, record)
	}); err != nil {
		t.Fatal(err)
	}
}

func rewriteLog(t *testing.T, dir string, id segment.ID, entries []*raft.Log) segment.Position {
	t.Helper()
	log, err := segment.Create(segment.Dir(dir), segment.Options{ID: id})
	if err == nil {
		err = log.StoreLogs(entries)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return log.End()
}

// forgedEntry returns the changed entry, or nil if e is not the lock's acquire.
func forgedEntry(e *raft.Log, lock, value string) []byte {
	entry := &wire.Entry{}
	if e.Type != raft.LogCommand || proto.Unmarshal(e.Data, entry) != nil {
		return nil
	}
	for _, cmd := range entry.GetCommands() {
		if a := cmd.GetAcquire(); len(a.GetLocks()) == 1 && a.GetLocks()[0].GetName() == lock {
			a.Value = []byte(value)
			if data, err := proto.Marshal(entry); err == nil {
				return data
			}
		}
	}
	return nil
}

// forgeSnapshot changes the value of a lock's holder in the node's newest snapshot, to one of the same
// length.
func forgeSnapshot(t *testing.T, dir, lock, value string) {
	t.Helper()
	found := snapshotsIn(t, dir)
	newest := found[len(found)-1]
	path := filepath.Join(newest, "state.bin")
	state, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	caption := bytes.IndexByte(state, '\n') + 1
	forged := append(bytes.Clone(state[:caption]), forgedState(t, state[caption:], lock, value)...)
	if len(forged) != len(state) {
		t.Fatalf("%s had %d bytes and has %d", path, len(state), len(forged))
	}
	if err := os.WriteFile(path, forged, 0o600); err != nil {
		t.Fatal(err)
	}
	describe(t, filepath.Join(newest, "meta.json"), forged)
}

// snapshotsIn returns the directories of a node's completed snapshots, oldest first.
func snapshotsIn(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "snapshots", "*[0-9]"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// describe updates the checksum of a state in raft's metadata.
func describe(t *testing.T, path string, state []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	meta := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &meta); err != nil {
		t.Fatal(err)
	}
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	_, _ = sum.Write(state)
	if meta["CRC"], err = json.Marshal(sum.Sum(nil)); err == nil {
		text, err = json.Marshal(meta)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// forgedState rewrites a state, record by record, with another value in the lock's claim and a matching
// checksum.
func forgedState(t *testing.T, state []byte, lock, value string) (forged []byte) {
	t.Helper()
	changed := 0
	for len(state) > 0 {
		size, width := binary.Uvarint(state)
		if width <= 0 || size > uint64(len(state)-width) {
			t.Fatal("a record is cut off")
		}
		body := state[width : width+int(size)]
		state = state[width+int(size):]
		record := &wire.SnapshotRecord{}
		if err := proto.Unmarshal(body, record); err != nil {
			t.Fatal(err)
		}
		claim, trailer := record.GetClaim(), record.GetTrailer()
		if len(claim.GetLocks()) == 1 && claim.GetLocks()[0].GetName() == lock {
			claim.Value = []byte(value)
			changed++
		}
		if trailer != nil {
			sum := sha256.Sum256(forged)
			trailer.Sha256 = sum[:]
		}
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		forged = append(binary.AppendUvarint(forged, uint64(len(body))), body...)
	}
	if changed != 1 {
		t.Fatalf("%d claims changed", changed)
	}
	return forged
}
