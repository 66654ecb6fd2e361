//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// savedState returns a snapshot of a cluster with one session that holds orders/42, and one operator
// action.
func savedState(t *testing.T) []byte {
	t.Helper()
	m := fsm.New(fsm.Level)
	data, err := proto.Marshal(&wire.Entry{Level: 1, WallUnixMs: 1_700_000_000_000, Commands: []*wire.Command{
		{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c-1", TokenFloor: 1000, Lineage: "5e0f", Settings: fsm.DefaultSettings(),
			Members: []*wire.Member{{Id: "n1", Incarnation: "i1", PeerAddr: "10.0.0.1:7401", ClientAddr: "10.0.0.1:7400", HttpAddr: "10.0.0.1:7402", Level: 1}}}}},
		{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 3, LeaderId: "n1"}}},
		{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: bytes.Repeat([]byte{7}, 32), Client: &wire.ClientInfo{Name: "refund", HostName: "web1", Pid: 42}}}},
		acquireCommand(1, "pool"),
		{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "pool", Limit: 9, Reason: "more", Operator: "me"}}},
		{SessionId: 1, Seq: 2, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "orders/42"}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	applied, err := m.Apply(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range applied.Results {
		if s := r.GetStatus(); s != wire.Status_OK && s != wire.Status_GRANTED {
			t.Fatalf("command %d: %v", i, r)
		}
	}
	var b bytes.Buffer
	if err := m.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func acquireCommand(seq uint64, semaphore string) *wire.Command {
	return &wire.Command{SessionId: 1, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: semaphore, Permits: 2, Limit: 5}}}}}
}

// saving is a cluster from which such a snapshot can be saved.
func saving(t *testing.T, data []byte, err error) *fakeService {
	return &fakeService{t: t,
		statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
			return &wire.StatusResponse{LeaderId: "n2", Nodes: []*wire.NodeStatus{
				{Id: "n1", HttpAddr: "10.0.0.1:7402"}, {Id: "n2", HttpAddr: "0.0.0.0:7402", ClientAddr: "10.0.0.2:7400", Leader: true}}}, nil
		},
		save: func(addr string, to io.Writer) error {
			if addr != "10.0.0.2:7402" && addr != "elsewhere:1" {
				t.Errorf("saved from %s", addr)
			}
			_, werr := to.Write(data)
			return errors.Join(werr, err)
		}}
}

func TestSnapshotSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.snap")
	want := savedState(t)
	for _, words := range [][]string{{"snapshot", "save", path, "--reason", "r"}, {"snapshot", "save", path, "--reason", "r", "--http", "elsewhere:1"}} {
		got := execTest(t, saving(t, want, nil).dialer, words...)
		if got.code != 0 || !strings.Contains(got.out, "cluster c-1, revision 6, last token 1002; 1 session, 2 locks, 2 holds, 0 waiters") {
			t.Errorf("got %+v", got)
		}
		if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, want) {
			t.Errorf("%v: %d bytes, want %d", err, len(text), len(want))
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v: others may read it: %v", err, info.Mode())
	}
}

// TestSnapshotSaveStale checks that without a leader the node that answers is asked, and that its
// description of the snapshot is printed.
func TestSnapshotSaveStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.snap")
	f := saving(t, savedState(t), nil)
	f.statusFunc = func(req *wire.StatusRequest) (*wire.StatusResponse, error) {
		if !req.GetStale() {
			return nil, client.ErrUnavailable
		}
		return &wire.StatusResponse{NodeId: "n2", Nodes: []*wire.NodeStatus{
			{Id: "n1", HttpAddr: "10.0.0.1:7402"}, {Id: "n2", HttpAddr: "10.0.0.2:7402"}}}, nil
	}
	got := execTest(t, f.dialer, "snapshot", "save", "--stale", path, "--reason", "r")
	for _, text := range []string{"saved ", "it is stale: node n1 ", "the last changes that were acknowledged may be missing", "log entry 57, revision 7, of which the last change was made 1m30s ago",
		"entries up to 50 to be committed: later ones may have been acknowledged, or never have been"} {
		if got.code != 0 || !strings.Contains(got.out, text) {
			t.Errorf("not said: %q in %+v", text, got)
		}
	}
	if got := execTest(t, f.dialer, "snapshot", "save", "--stale", path, "--reason", "r", "-o", "json"); got.code != 0 || !strings.Contains(strings.ReplaceAll(got.out, " ", ""), `"committedIndex":"50"`) {
		t.Errorf("got %+v", got)
	}
	if got := execTest(t, f.dialer, "snapshot", "save", path, "--reason", "r"); got.code != exitNoLeader {
		t.Errorf("without --stale: %+v", got)
	}
}

// TestSnapshotSaveAllOrNothing checks that after any failure the older snapshot is unchanged and no other
// file remains.
func TestSnapshotSaveAllOrNothing(t *testing.T) {
	good := savedState(t)
	for name, c := range map[string]struct {
		data []byte
		err  error
		code int
	}{
		"truncated": {good[:len(good)-1], nil, exitInternal},
		"flipped":   {append([]byte{good[0] ^ 1}, good[1:]...), nil, exitInternal},
		"broken":    {good, client.ErrUnavailable, exitNoLeader},
		"empty":     {nil, nil, exitInternal},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "a.snap")
		if err := os.WriteFile(path, []byte("older"), 0o600); err != nil {
			t.Fatal(err)
		}
		got := execTest(t, saving(t, c.data, c.err).dialer, "snapshot", "save", path, "--reason", "r")
		if got.code != c.code || got.out != "" {
			t.Errorf("%s: %+v, want %d", name, got, c.code)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "older" {
			t.Errorf("%s: %v: the older snapshot is gone: %q", name, err, text)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%s: %v: left behind: %v", name, err, entries)
		}
	}
}

func TestSnapshotSaveNeedsAnHTTPPort(t *testing.T) {
	f := &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		return &wire.StatusResponse{LeaderId: "n1", Nodes: []*wire.NodeStatus{{Id: "n1", Leader: true}}}, nil
	}}
	got := execTest(t, f.dialer, "snapshot", "save", filepath.Join(t.TempDir(), "a"), "--reason", "r")
	if got.code != exitInternal || !strings.Contains(got.err, "leader n1 has no HTTP port") {
		t.Errorf("%+v", got)
	}
}

func TestSnapshotInspect(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	data := savedState(t)
	if err := os.WriteFile("a.snap", data, 0o600); err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for name, line := range map[string]string{"inspect": "snapshot inspect a.snap", "inspect-locks": "snapshot inspect a.snap --locks", "snapshot-verify": "snapshot verify a.snap"} {
		for _, format := range formats {
			got := execTest(t, nil, append(strings.Fields(line), "-o", format)...)
			if got.code != 0 || got.err != "" || format == "json" && !json.Valid([]byte(got.out)) {
				t.Errorf("%s: %+v", line, got)
			}
			shown[name+"."+format] = got.out
		}
	}
	for _, bad := range [][]byte{data[:len(data)/2], append(data, 0), {}, []byte("PK\x03\x04 something else altogether")} {
		if err := os.WriteFile("bad", bad, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"verify", "inspect", "restore"} {
			words := []string{"snapshot", verb, "bad"}
			if verb == "restore" {
				words = append(words, "--reason", "r")
			}
			got := execTest(t, (&fakeService{t: t}).dialer, words...)
			if got.code != exitInternal || got.out != "" || !strings.Contains(got.err, "bad is damaged or no snapshot") {
				t.Errorf("%s of %d bytes: %+v", verb, len(bad), got)
			}
		}
	}
	if got := execTest(t, nil, "snapshot", "verify", "nowhere"); got.code != exitNoSuch {
		t.Errorf("%+v", got)
	}
	if err := os.Chdir(origin); err != nil {
		t.Fatal(err)
	}
	for name, text := range shown {
		golden.Compare(t, name, text)
	}
}

// origin is the directory where the tests run, which contains testdata.
var origin, _ = os.Getwd()

func TestSnapshotRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.snap")
	if err := os.WriteFile(path, savedState(t), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked *wire.RestoreRequest
	f := &fakeService{t: t, restore: func(req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
		asked = req
		return &wire.RestoreResponse{TokenFloor: 1 << 50, Revision: 3}, nil
	}}
	got := execTest(t, f.dialer, "snapshot", "restore", path, "--token-floor", "77", "--operator", "me", "--reason", "disaster", "--replace", "c-2")
	if got.code != 0 || got.out != "restored: every token is above 1125899906842624 from now on; 1 session and 2 locks of the snapshot are over\n" {
		t.Errorf("%+v", got)
	}
	if asked.GetBackup().GetToken() != 1002 || asked.GetBackup().GetClusterId() != "c-1" || len(asked.GetBackup().GetSha256()) != 32 || asked.GetClusterId() != "c-2" || asked.GetTokenFloor() != 77 || asked.GetOperator() != "me" || asked.GetReason() != "disaster" ||
		asked.GetSettings().GetDefaultTtlMs() != 15_000 || len(asked.GetAudit()) != 1 || asked.GetAudit()[0].GetLock() != "pool" {
		t.Errorf("asked for %v", asked)
	}

	f.restore = func(*wire.RestoreRequest) (*wire.RestoreResponse, error) {
		return nil, &client.StatusError{Status: client.StatusFailedPrecondition, Message: "2 sessions are open"}
	}
	got = execTest(t, f.dialer, "snapshot", "restore", path, "--reason", "disaster")
	if got.code != exitInternal || !strings.Contains(got.err, "2 sessions are open") {
		t.Errorf("%+v", got)
	}
}

// TestRestoreBringsThePolicyBack checks that a cluster that was lost is not open to everybody after its restore.
func TestRestoreBringsThePolicyBack(t *testing.T) {
	m, err := fsm.Restore(bytes.NewReader(savedState(t)), fsm.Level)
	if err != nil {
		t.Fatal(err)
	}
	secret := sha256.Sum256([]byte("a token"))
	for _, cmd := range []*wire.Command{
		{Op: &wire.Command_CreateToken{CreateToken: &wire.CreateToken{Sha256: secret[:], Name: "ci", Reason: "r"}}},
		{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: examplePolicy(), Reason: "r"}}},
	} {
		applied(t, m, cmd)
	}
	var b bytes.Buffer
	if err := m.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	path := writeFile(t, "a.snap", b.String())
	var asked *wire.RestoreRequest
	f := &fakeService{t: t, restore: func(req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
		asked = req
		return &wire.RestoreResponse{}, nil
	}}
	if got := execTest(t, f.dialer, "snapshot", "restore", path, "--reason", "disaster"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if !proto.Equal(asked.GetPolicy(), examplePolicy()) || len(asked.GetTokens()) != 1 || !bytes.Equal(asked.GetTokens()[0].GetSha256(), secret[:]) {
		t.Errorf("asked for the policy %v with the tokens %v", asked.GetPolicy(), asked.GetTokens())
	}
}

// TestUnknownOutcomeOfARestoreIsReported is a regression test: a restore whose connection broke was
// reported as one that found no leader.
func TestUnknownOutcomeOfARestoreIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.snap")
	if err := os.WriteFile(path, savedState(t), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fakeService{t: t, restore: func(*wire.RestoreRequest) (*wire.RestoreResponse, error) {
		return nil, &client.StatusError{Status: client.StatusUncertain, Message: "connection to 10.0.0.1:7400: EOF"}
	}}
	got := execTest(t, f.dialer, "snapshot", "restore", path, "--reason", "disaster")
	if got.code != exitNoLeader || strings.Contains(got.err, "no serving leader") || !strings.Contains(got.err, "the outcome of the restore is unknown") ||
		!strings.Contains(got.err, "10.0.0.1:7400: EOF") || !strings.Contains(got.err, "qlock audit") {
		t.Errorf("%+v", got)
	}
}

// TestDryRunOfARestore checks that a dry run shows the snapshot, the cluster and what would end, and whether the restore
// would be refused.
func TestDryRunOfARestore(t *testing.T) {
	path := writeFile(t, "a.snap", string(savedState(t)))
	var asked *wire.RestoreRequest
	f := &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		s := clusterStatus()
		s.Lineage = "9a9a"
		return s, nil
	}, restore: func(req *wire.RestoreRequest) (*wire.RestoreResponse, error) {
		if asked = req; req.GetClusterId() == "" {
			return nil, &client.StatusError{Status: client.StatusFailedPrecondition, Message: "it is not empty"}
		}
		return &wire.RestoreResponse{TokenFloor: 1 << 50}, nil
	}}
	got := execTest(t, f.dialer, "snapshot", "restore", path, "--dry-run", "--replace", "c-1")
	if got.code != 0 || !asked.GetDryRun() || asked.GetReason() != "dry run" {
		t.Errorf("%+v, asked for %v", got, asked)
	}
	for _, want := range []string{
		"nothing was changed", "the snapshot: cluster c-1, revision 6, last token 1002; 1 session, 2 locks", "lineage 5e0f", "its file was written 0.",
		"lineage 9a9a", "there would end: 3 sessions, 1 lock, 1 hold, 2 waiters", "would keep its policy", "1 record of the snapshot", "above 1125899906842624",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is missing in\n%s", want, got.out)
		}
	}
	got = execTest(t, f.dialer, "snapshot", "restore", path, "--dry-run", "-o", "json")
	var shown struct {
		Snapshot struct{ Revision string }
		Cluster  struct{ Lineage string }
		Policy   string
		Refusal  string
	}
	if err := json.Unmarshal([]byte(got.out), &shown); err != nil || shown.Snapshot.Revision != "6" || shown.Cluster.Lineage != "9a9a" || shown.Policy != "kept" || shown.Refusal != "it is not empty" {
		t.Errorf("%v: %+v", err, shown)
	}
	if got.code != exitInternal || !strings.Contains(got.err, "it would be refused: it is not empty") {
		t.Errorf("%+v", got)
	}
}
