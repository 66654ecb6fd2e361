package process_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash/crc64"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// These functions change a snapshot of a stopped node, in the format of docs/PROTOCOL.md, and correct every checksum, as
// process.ForgeLog does with the log.

// forgeSnapshot changes the value of a lock's holder in the node's newest snapshot, to one of the same
// length.
func forgeSnapshot(t testing.TB, dir, lock, value string) {
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
func snapshotsIn(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "snapshots", "*[0-9]"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// describe updates the checksum of a state in raft's metadata.
func describe(t testing.TB, path string, state []byte) {
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
func forgedState(t testing.TB, state []byte, lock, value string) (forged []byte) {
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
