package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/generate"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// FuzzSnapshotFile checks that any file is either read whole or refused, and that a file that was read can
// be shown, and restored into a cluster whose state is consistent afterwards. The bytes are tried as a
// file, and as changes to the records of a valid file under a correct checksum.
func FuzzSnapshotFile(f *testing.F) {
	good := fuzzedSnapshot(f)
	f.Add(good)
	f.Add(good[:len(good)/2])
	random := rand.NewChaCha8([32]byte{13})
	for range 64 {
		data := make([]byte, 1_024)
		_, _ = random.Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		restoreFile(t, data)
		restoreFile(t, altered(t, good, generate.NewSource(data)))
	})
}

// applied makes a machine apply one command.
func applied(t testing.TB, m *fsm.Machine, cmd *wire.Command) *wire.Result {
	t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: fsm.Level, WallUnixMs: 1_700_000_000_000, Commands: []*wire.Command{cmd}})
	if err != nil {
		t.Fatal(err)
	}
	done, err := m.Apply(data)
	if err != nil || len(done.Failures) > 0 {
		t.Fatalf("%v, %+v", err, done)
	}
	return done.Results[0]
}

func started(t testing.TB) *fsm.Machine {
	m := fsm.New(fsm.Level)
	applied(t, m, &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Lineage: "first", Settings: fsm.DefaultSettings()}}})
	return m
}

// fuzzedSnapshot returns a file with an example of everything.
func fuzzedSnapshot(t testing.TB) []byte {
	t.Helper()
	m := started(t)
	for i := range byte(3) {
		hash := sha256.Sum256([]byte{i})
		session := applied(t, m, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash[:]}}}).GetSession().GetSessionId()
		acquire := func(seq uint64, of *wire.Acquire) *wire.Result {
			return applied(t, m, &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: of}})
		}
		acquire(1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}, WaitForever: true, Value: []byte("v")})
		acquire(2, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "s", Limit: 5}, {Name: "r", Mode: wire.Mode_SHARED}}, MaxHoldMs: 60_000})
		gone := acquire(3, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "d/" + string('a'+rune(i))}}, LockDelayMs: 30_000})
		applied(t, m, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: gone.GetHoldId(), Token: gone.GetToken(), Reason: "because"}}})
	}
	var file bytes.Buffer
	if err := m.WriteSnapshot(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// altered changes some records of a file and appends the right trailer.
func altered(t testing.TB, file []byte, s *generate.Source) []byte {
	t.Helper()
	var records []*wire.SnapshotRecord
	known := generate.NewMemory(nil)
	for r := bufio.NewReader(bytes.NewReader(file)); ; {
		record := &wire.SnapshotRecord{}
		err := protodelim.UnmarshalFrom(r, record)
		if err != nil {
			t.Fatal(err)
		}
		if record.GetTrailer() != nil {
			break
		}
		records = append(records, record)
		known.Learn(record.ProtoReflect())
	}
	for n := 0; n < 4 && s.More(); n++ {
		record := records[s.Below(len(records))].ProtoReflect()
		kind := record.WhichOneof(record.Descriptor().Oneofs().Get(0))
		generate.Messages(s, known, record.Mutable(kind).Message())
	}
	var out bytes.Buffer
	for _, record := range records {
		if _, err := protodelim.MarshalTo(&out, record); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(out.Bytes())
	trailer := &wire.SnapshotRecord{Record: &wire.SnapshotRecord_Trailer{Trailer: &wire.SnapshotTrailer{Records: uint64(len(records)), Sha256: sum[:]}}}
	data, err := proto.Marshal(trailer)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.AppendUvarint(out.Bytes(), uint64(len(data))), data...)
}

// restoreFile does with a file what the verbs below snapshot do.
func restoreFile(t *testing.T, file []byte) (read bool) {
	t.Helper()
	m, err := parseSnapshot("backup.snap", bytes.NewReader(file))
	if err != nil {
		return false
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	locks, err := allLocks(context.Background(), machineLocks{m}, &wire.ListLocksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	writeSnapshot(io.Discard, "backup.snap", m)
	writeSavedLocks(io.Discard, locks)
	cluster := started(t)
	applied(t, cluster, &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{
		Backup: &wire.Backup{ClusterId: m.ClusterID(), Revision: m.Revision(), Token: m.Token()}, ClusterId: cluster.ClusterID(),
		Settings: m.Settings(), Audit: fsm.RestorableAudit(auditOf(m)), Lineage: "second", Operator: "ann", Reason: "because",
	}}})
	if err := cluster.Check(); err != nil {
		t.Fatal(err)
	}
	return true
}

// TestFuzzedSnapshotsAreRead checks that not all files of the fuzzer are refused.
func TestFuzzedSnapshotsAreRead(t *testing.T) {
	good := fuzzedSnapshot(t)
	if !restoreFile(t, good) || !restoreFile(t, altered(t, good, generate.NewSource(nil))) {
		t.Fatal("a good file was refused")
	}
	random := rand.NewChaCha8([32]byte{13})
	read := 0
	for range 400 {
		data := make([]byte, 64)
		_, _ = random.Read(data)
		if restoreFile(t, altered(t, good, generate.NewSource(data[:16+data[0]%48]))) {
			read++
		}
	}
	t.Logf("%d of 400 files were read", read)
	if read == 0 || read == 400 {
		t.Errorf("%d of 400 files were read", read)
	}
}
