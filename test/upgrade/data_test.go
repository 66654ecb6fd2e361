package upgrade_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// state is what a recorded data directory contains.
type state struct {
	HashFormat  uint32 `json:"hashFormat"`
	Hash        string `json:"hash"`
	Index       uint64 `json:"index"`
	Revision    uint64 `json:"revision"`
	Token       uint64 `json:"token"`
	Holds       []hold `json:"holds"`
	Sessions    int    `json:"sessions"`
	Waiters     uint64 `json:"waiters"`
	BackupHash  string `json:"backupHash"`
	BackupIndex uint64 `json:"backupIndex"`
}

// hold is a hold of a session.
type hold struct {
	Session uint64 `json:"session"`
	Name    string `json:"name"`
	Token   uint64 `json:"token"`
}

func snapshotOf(t *testing.T, m *fsm.Machine) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := m.WriteSnapshot(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// snapshotRecords returns the records of a snapshot.
func snapshotRecords(t *testing.T, snapshot []byte) (all []*wire.SnapshotRecord) {
	t.Helper()
	for len(snapshot) > 0 {
		size, n := binary.Uvarint(snapshot)
		if n <= 0 || size > uint64(len(snapshot)-n) {
			t.Fatalf("a record of %d bytes, %d are left", size, len(snapshot))
		}
		record := &wire.SnapshotRecord{}
		if err := proto.Unmarshal(snapshot[n:n+int(size)], record); err != nil {
			t.Fatal(err)
		}
		all, snapshot = append(all, record), snapshot[n+int(size):]
	}
	return all
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// stateOf describes a machine.
func stateOf(t *testing.T, m *fsm.Machine) state {
	t.Helper()
	snapshot := snapshotOf(t, m)
	records := snapshotRecords(t, snapshot)
	s := state{HashFormat: fsm.HashFormat, Hash: hashOf(snapshot), Index: records[0].GetHeader().GetAppliedIndex(), Revision: m.Revision(), Token: m.Token(), Waiters: m.Totals().Waiters}
	for _, r := range records {
		if session := r.GetSession(); session != nil {
			s.Sessions++
			for _, h := range m.HoldsOf(session.Id) {
				s.Holds = append(s.Holds, hold{session.Id, h.Name, h.Token})
			}
		}
	}
	return s
}

// history is what a data directory contains without the node.
type history struct {
	entries   []*raft.Log
	snapshots [][]byte
}

// readHistory reads the log and the snapshots of a data directory.
func readHistory(t *testing.T, dir string) (h history) {
	t.Helper()
	err := storage.ReadLog(dir, func(e *raft.Log) error {
		h.entries = append(h.entries, &raft.Log{Index: e.Index, Term: e.Term, Type: e.Type, Data: bytes.Clone(e.Data)})
		return nil
	})
	if err != nil || len(h.entries) == 0 || h.entries[0].Index != 1 {
		t.Fatalf("the log has %d entries, %v", len(h.entries), err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d snapshots, %v", len(paths), err)
	}
	for _, path := range paths {
		_, snapshot, found := bytes.Cut(readFile(t, path), []byte("\n"))
		if !found {
			t.Fatalf("%s has no first line", path)
		}
		h.snapshots = append(h.snapshots, snapshot)
	}
	return h
}

// replay applies the log to a snapshot, nil for the empty state, and calls each with every command and its result.
func (h history) replay(t *testing.T, snapshot []byte, each func(*wire.Command, *wire.Result)) (m *fsm.Machine) {
	t.Helper()
	r := fsm.NewReplicated(fsm.Level, func(err error) { t.Fatal(err) })
	if snapshot != nil {
		if err := r.Restore(io.NopCloser(bytes.NewReader(snapshot))); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range h.entries {
		if e.Type != raft.LogCommand || e.Index <= r.AppliedIndex() {
			continue
		}
		applied, ok := r.Apply(e).(*fsm.Applied)
		if !ok || len(applied.Failures) > 0 {
			t.Fatalf("entry %d: %v", e.Index, applied)
		}
		var entry wire.Entry
		if err := proto.Unmarshal(e.Data, &entry); err != nil {
			t.Fatal(err)
		}
		for i, cmd := range entry.Commands {
			each(cmd, applied.Results[i])
		}
	}
	return r.Fork()
}

// TestDataDirectory replays what each level wrote: from its beginning and from each snapshot, the log leads to the
// recorded state.
func TestDataDirectory(t *testing.T) {
	eachLevel(t, func(t *testing.T, level uint32) {
		want := recordedState(t, level)
		h := readHistory(t, unpacked(t, level))
		for _, snapshot := range append([][]byte{nil}, h.snapshots...) {
			m := h.replay(t, snapshot, func(*wire.Command, *wire.Result) {})
			if err := m.Check(); err != nil {
				t.Error(err)
			}
			got := stateOf(t, m)
			if want.HashFormat != fsm.HashFormat {
				want.HashFormat, want.Hash = got.HashFormat, got.Hash // equal states have other bytes now
			}
			got.BackupHash, got.BackupIndex = want.BackupHash, want.BackupIndex
			sameState(t, got, want)
		}
	})
}

func sameState(t *testing.T, got, want state) {
	t.Helper()
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
		t.Errorf("got  %s\nwant %s (%v)", a, b, err)
	}
}

// TestNodeOnADataDirectory starts a node on what each level wrote. It keeps every hold with its token and every wait,
// and grants with higher tokens.
func TestNodeOnADataDirectory(t *testing.T) {
	eachLevel(t, func(t *testing.T, level uint32) {
		want := recordedState(t, level)
		node, term, _ := openNode(t, unpacked(t, level))
		var got state
		node.View(func(m *fsm.Machine) { got = stateOf(t, m) })
		if !slices.Equal(got.Holds, want.Holds) || got.Sessions != want.Sessions || got.Waiters != want.Waiters || len(want.Holds) < 5 {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		s := &script{t: t, node: node, term: term, seqs: map[uint64]uint64{}}
		if token := s.ask(s.open("new"), acquiring(acquire("new"))).Token; token <= want.Token || got.Token < want.Token {
			t.Errorf("token %d was granted after %d", token, want.Token)
		}
	})
}

// TestBackup restores the backup of each level.
func TestBackup(t *testing.T) {
	eachLevel(t, func(t *testing.T, level uint32) {
		want := recordedState(t, level)
		file := readFile(t, fixture(level, backupFile))
		m, err := fsm.Restore(bytes.NewReader(file), fsm.Level)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); err != nil {
			t.Error(err)
		}
		got := stateOf(t, m)
		if want.HashFormat == fsm.HashFormat && (hashOf(file) != want.BackupHash || got.Hash != want.BackupHash) {
			t.Errorf("the file has the hash %s, what was restored %s, want %s", hashOf(file), got.Hash, want.BackupHash)
		}
		if !slices.Equal(got.Holds, want.Holds) || got.Token != want.Token {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// TestEveryCommandIsRecorded verifies that the logs of the levels have every kind of command at least once with success,
// and the last states every kind of record, every act of operators, and a drained member.
func TestEveryCommandIsRecorded(t *testing.T) {
	commands, rows := map[protoreflect.Name]bool{}, map[protoreflect.Name]bool{}
	acts, drained := map[wire.AuditRecord_Action]bool{}, false
	kind := func(m protoreflect.Message, oneof protoreflect.Name) protoreflect.Name {
		return m.WhichOneof(m.Descriptor().Oneofs().ByName(oneof)).Name()
	}
	eachLevel(t, func(t *testing.T, level uint32) {
		m := readHistory(t, unpacked(t, level)).replay(t, nil, func(cmd *wire.Command, result *wire.Result) {
			if succeeded(result) {
				commands[kind(cmd.ProtoReflect(), "op")] = true
			}
		})
		for _, r := range snapshotRecords(t, snapshotOf(t, m)) {
			rows[kind(r.ProtoReflect(), "record")] = true
			if r.GetAudit().GetImported() == nil {
				acts[r.GetAudit().GetAction()] = true
			}
			drained = drained || r.GetMember().GetDrained()
		}
	})
	for _, all := range []struct {
		oneof protoreflect.OneofDescriptor
		seen  map[protoreflect.Name]bool
	}{
		{(&wire.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("op"), commands},
		{(&wire.SnapshotRecord{}).ProtoReflect().Descriptor().Oneofs().ByName("record"), rows},
	} {
		for i := range all.oneof.Fields().Len() {
			if name := all.oneof.Fields().Get(i).Name(); !all.seen[name] {
				t.Errorf("%s is in no data directory: %s", name, addIt)
			}
		}
	}
	for act := range wire.AuditRecord_Action_name {
		if act := wire.AuditRecord_Action(act); act != wire.AuditRecord_UNSPECIFIED && !acts[act] {
			t.Errorf("the act %s is in no data directory: %s", act, addIt)
		}
	}
	if !drained {
		t.Errorf("a drained member is in no data directory: %s", addIt)
	}
}

const addIt = "add it to script_test.go, and run go test ./test/upgrade -record"

func recordedState(t *testing.T, level uint32) (s state) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, fixture(level, stateFile)), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// pack returns a directory as a compressed archive.
func pack(t *testing.T, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	to := tar.NewWriter(&out)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := to.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o600, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = to.Write(data)
		return err
	})
	if err := errors.Join(err, to.Close()); err != nil {
		t.Fatal(err)
	}
	return zipped(t, out.Bytes())
}

// unpacked returns a new copy of the data directory of a level.
func unpacked(t *testing.T, level uint32) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	for from := tar.NewReader(bytes.NewReader(unzipped(t, readFile(t, fixture(level, dataFile))))); ; {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil || !filepath.IsLocal(header.Name) || strings.Contains(header.Name, "\\") {
			t.Fatalf("%v, %v", header, err)
		}
		data, err := io.ReadAll(from)
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}
