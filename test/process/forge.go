package process

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/server/storage/segment"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ForgeLog changes the value in the acquire of a lock in the log of a stopped node, in the format of docs/PROTOCOL.md. It
// rewrites the log and the record of its end, with every checksum, so nothing that the node checks at its start reveals the
// change.
func ForgeLog(t testing.TB, dir, lock, value string) {
	t.Helper()
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

func rewriteLog(t testing.TB, dir string, id segment.ID, entries []*raft.Log) segment.Position {
	t.Helper()
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
