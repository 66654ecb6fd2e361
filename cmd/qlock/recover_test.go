//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// survivor writes the data directory of node n1 of a cluster with three voters.
func survivor(t *testing.T, dir, cluster string) {
	t.Helper()
	s, err := storage.Open(storage.Options{NodeID: "n1", DataDir: dir, NoOverlap: true, DiskTimeout: time.Minute, Failed: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	var voters raft.Configuration
	for _, id := range []string{"n1", "n2", "n3"} {
		voters.Servers = append(voters.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ":7401")})
	}
	data, err := proto.Marshal(&wire.Entry{Level: 1, WallUnixMs: time.Now().UnixMilli(), Commands: []*wire.Command{{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{
		ClusterId: cluster, TokenFloor: 1000, Lineage: "5e0f", Settings: fsm.DefaultSettings(), Members: []*wire.Member{{Id: "n1", Incarnation: s.Incarnation, PeerAddr: "n1:7401"}},
	}}}}})
	if err := errors.Join(err, s.Begin(voters, data), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// noCluster is a cluster that does not serve.
func noCluster(t *testing.T) *fakeService {
	return &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) { return nil, client.ErrUnavailable }}
}

// TestRecoverInTwoSteps takes the command of the second step from the output of the first.
func TestRecoverInTwoSteps(t *testing.T) {
	t.Chdir(t.TempDir())
	survivor(t, "data", "prod")
	got := execTest(t, noCluster(t).dialer, "cluster", "recover", "data")
	const next = "qlock cluster recover data --to data.recovered --confirm prod --reason TEXT"
	for _, text := range []string{"node n1 of cluster prod, whose voters are n1, n2, n3", "log up to entry 2 of term 1", "the most advanced is data", "lost: all sessions", "remove the data directories of n2, n3", next} {
		if got.code != 0 || got.err != "" || !strings.Contains(got.out, text) {
			t.Errorf("not said: %q in %+v", text, got)
		}
	}
	if _, err := os.Stat("data.recovered"); err == nil {
		t.Error("the first step has written something")
	}
	got = execTest(t, noCluster(t).dialer, append(strings.Fields(next)[1:len(strings.Fields(next))-1], "the data centre is lost")...)
	for _, text := range []string{"recovered: cluster prod+", "of node n1 alone, in data.recovered", "every token is above", "--id n1 --data-dir data.recovered", "never start a node of cluster prod again"} {
		if got.code != 0 || !strings.Contains(got.out, text) {
			t.Errorf("not said: %q in %+v", text, got)
		}
	}
	got = execTest(t, noCluster(t).dialer, "cluster", "recover", "data.recovered")
	if got.code != exitInternal || !strings.Contains(got.err, "the cluster is not lost: n1 have their data and are 1 of 1 voters") {
		t.Errorf("a cluster of one node that is whole: %+v", got)
	}
}

// TestRecoverShowsEveryDirectory verifies the machine-readable output, and that problems do not hide the others.
func TestRecoverShowsEveryDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	survivor(t, "data", "prod")
	if err := os.Mkdir("empty", 0o700); err != nil {
		t.Fatal(err)
	}
	got := execTest(t, noCluster(t).dialer, "cluster", "recover", "empty", "data/", "-o", "json")
	var shown survivorsJSON
	if err := json.Unmarshal([]byte(got.out), &shown); err != nil || got.code != 0 || len(shown.Survivors) != 2 || shown.Best != "data" || shown.Refusal != "" {
		t.Fatalf("%v, %+v", err, got)
	}
	if empty, n1 := shown.Survivors[0], shown.Survivors[1]; !strings.Contains(empty.Problem, "no cluster's data") || n1.Problem != "" || n1.NodeID != "n1" || n1.LastIndex != "2" || n1.Token != "1000" {
		t.Errorf("%+v", shown.Survivors)
	}
}

// TestRecoverIsRefused verifies that nothing is made from what is not lost, not confirmed or not there.
func TestRecoverIsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	survivor(t, "data", "prod")
	survivor(t, "test", "test")
	if err := os.Mkdir("empty", 0o700); err != nil {
		t.Fatal(err)
	}
	serving := &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		return &wire.StatusResponse{ClusterId: "prod", LeaderId: "n2"}, nil
	}}
	for line, c := range map[string]struct {
		fake *fakeService
		code int
		says string
	}{
		"data":      {serving, exitInternal, "cluster prod serves at"},
		"data test": {noCluster(t), exitInternal, "belong to different clusters"},
		"empty":     {noCluster(t), exitInternal, "restore a backup"},
		"nothing":   {noCluster(t), exitNoSuch, "no such directory: nothing"},
		"data --to new --confirm prod --reason r":   {serving, exitInternal, "nothing was done: the cluster is not lost"},
		"data --to new --confirm other --reason r":  {noCluster(t), exitInternal, `data belongs to cluster "prod", not "other"`},
		"data --to test --confirm prod --reason r":  {noCluster(t), exitInternal, "must not exist: test"},
		"empty --to new --confirm prod --reason r":  {noCluster(t), exitInternal, "there is no cluster's data in it"},
		"data --to a/new --confirm prod --reason r": {noCluster(t), exitInternal, "no such file or directory"},
	} {
		got := execTest(t, c.fake.dialer, append([]string{"cluster", "recover"}, strings.Fields(line)...)...)
		if got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%s: %+v, want %d, %q", line, got, c.code, c.says)
		}
		if left, err := filepath.Glob("new*"); err != nil || len(left) > 0 {
			t.Errorf("%s: it left %v, %v", line, left, err)
		}
	}
	used, err := storage.Open(storage.Options{NodeID: "n1", DataDir: "test", DiskTimeout: time.Minute, Failed: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	for says, fake := range map[string]*fakeService{"stop the node first": noCluster(t), "cluster prod serves at": serving} {
		if got := execTest(t, fake.dialer, "cluster", "recover", "test"); got.code != exitInternal || !strings.Contains(got.err, says) {
			t.Errorf("a node runs: %+v, want %q", got, says)
		}
	}
	other := &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		return &wire.StatusResponse{ClusterId: "another", LeaderId: "n2"}, nil
	}}
	if got := execTest(t, other.dialer, "cluster", "recover", "data"); got.code != 0 {
		t.Errorf("another cluster serves at the endpoints: %+v", got)
	}
}
