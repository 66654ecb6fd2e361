package recovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/retired"
	"github.com/quorumlock/quorumlock/server/recovery"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestSurvivorIsDescribed verifies what is read, that entries count which are not known to be committed, and that the
// data directory stays as it is.
func TestSurvivorIsDescribed(t *testing.T) {
	d := began(t, "n1", "prod")
	d.term = 4
	if err := d.Votes.SetUint64([]byte("CurrentTerm"), 6); err != nil {
		t.Fatal(err)
	}
	d.grants()
	_, state, err := machineOf(d)
	if err != nil {
		t.Fatal(err)
	}
	before := contents(t, d.close().dir)
	s := inspect(t, d.dir)
	if s.Problem != nil || s.NodeID != "n1" || s.ClusterID != "prod" || strings.Join(s.Voters, " ") != "n1 n2 n3" || strings.Join(s.Lost(), " ") != "n2 n3" {
		t.Fatalf("%+v", s)
	}
	if s.Term != 6 || s.LastTerm != 4 || s.LastIndex != 4 || s.CommittedIndex != 0 || s.State.Token() != state.Token() || s.State.Totals().Holds != 1 {
		t.Errorf("%+v, token %d, want %d", s, s.State.Token(), state.Token())
	}
	if age := time.Since(s.Changed); age < 0 || age > time.Minute {
		t.Errorf("the last change was %v ago", age)
	}
	if after := contents(t, d.dir); after != before {
		t.Error("the data directory was changed")
	}
}

// TestStateContinuesASnapshot verifies that the snapshot and the log after it are read.
func TestStateContinuesASnapshot(t *testing.T) {
	d := began(t, "n1", "prod")
	d.snapshot()
	d.grants()
	if s := d.usable(); s.CommittedIndex != 2 || s.LastIndex != 4 || s.State.Totals().Holds != 1 || len(s.Voters) != 3 {
		t.Errorf("%+v, %+v", s, s.State.Totals())
	}
}

// snapshot writes a snapshot up to the last entry.
func (d *disk) snapshot() {
	d.t.Helper()
	_, state, err := machineOf(d)
	if err != nil {
		d.t.Fatal(err)
	}
	var voters raft.Configuration
	for _, m := range state.Members() {
		voters.Servers = append(voters.Servers, raft.Server{ID: raft.ServerID(m.Id), Address: raft.ServerAddress(m.PeerAddr)})
	}
	_, trans := raft.NewInmemTransport("")
	sink, err := d.Snapshots.Create(1, d.last, d.term, voters, 1, trans)
	if err == nil {
		err = errors.Join(state.WriteSnapshot(sink), sink.Close())
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// TestUnusableDirectories verifies that each of them is recognised, and says where it is.
func TestUnusableDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		want error
		make func(*disk)
	}{
		"removed":  {recovery.ErrRemoved, func(d *disk) { d.commits(drop("n1")) }},
		"replaced": {recovery.ErrRemoved, func(d *disk) { d.commits(drop("n1"), put(&wire.Member{Id: "n1", Incarnation: "new"})) }},
		"removed from raft only": {recovery.ErrRemoved, func(d *disk) {
			d.last++
			e := &raft.Log{Index: d.last, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "n2", Address: "n2:1"}}})}
			if err := d.Log.StoreLog(e); err != nil {
				d.t.Fatal(err)
			}
		}},
		"newer": {fsm.ErrUpgrade, func(d *disk) {
			d.commits(&wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: 99}}})
		}},
		"a damaged log":           {recovery.ErrDamaged, func(d *disk) { d.close(); spoil(d.t, d.dir, "log", "*.segment") }},
		"a torn snapshot":         {recovery.ErrDamaged, func(d *disk) { d.snapshot(); d.close(); spoil(d.t, d.dir, "snapshots", "*", "state.bin") }},
		"damaged values":          {recovery.ErrDamaged, func(d *disk) { d.close(); remove(d.t, d.dir, "raft.db") }},
		"a log that is not there": {recovery.ErrDamaged, func(d *disk) { d.close(); remove(d.t, d.dir, "log") }},
		"in use":                  {recovery.ErrInUse, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := began(t, "n1", "prod")
			d.grants()
			if c.make == nil {
				defer d.close()
			} else if c.make(d); c.want == recovery.ErrRemoved || c.want == fsm.ErrUpgrade {
				d.close()
			}
			s := inspect(t, d.dir)
			if !errors.Is(s.Problem, c.want) || strings.Contains(s.Problem.Error(), "qlock-recover-") {
				t.Errorf("%v", s.Problem)
			}
			if _, err := recovery.Choose([]*recovery.Survivor{s}); err == nil {
				t.Error("it was chosen")
			}
			if _, err := s.Recover(t.Context(), order(t, s)); !errors.Is(err, c.want) {
				t.Errorf("recovered: %v", err)
			}
		})
	}
}

func drop(id string) *wire.Command {
	return &wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: id}}}
}

func put(m *wire.Member) *wire.Command {
	return &wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: m}}}
}

// spoil changes a byte of the first file with that name.
func spoil(t *testing.T, path ...string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(path...))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	data[min(2*512+100, len(data)/2)] ^= 1 // in a log: in its first batch
	if err := os.WriteFile(found[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path ...string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(path...)); err != nil {
		t.Fatal(err)
	}
}

// TestDirectoriesWithoutACluster verifies the errors for an empty directory, a file and a path without anything.
func TestDirectoriesWithoutACluster(t *testing.T) {
	empty := t.TempDir()
	if s := inspect(t, empty); !errors.Is(s.Problem, recovery.ErrEmpty) || contents(t, empty) != "" {
		t.Errorf("an empty one: %v", s.Problem)
	}
	file := filepath.Join(empty, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(empty, "nothing")} {
		if _, err := recovery.Inspect(path); !errors.Is(err, recovery.ErrNoDirectory) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestRetiredNodeIsUsable verifies that a node that does not start any more can be the survivor, and says why.
func TestRetiredNodeIsUsable(t *testing.T) {
	d := began(t, "n1", "prod")
	if err := retired.Retire(d.Values, status.ErrRolledBack, "an old copy"); err != nil {
		t.Fatal(err)
	}
	if s := d.usable(); !errors.Is(s.Retired, status.ErrRolledBack) {
		t.Errorf("%v", s.Retired)
	}
}
