package recovery_test

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/recovery"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// disk is a data directory that a test writes like a node.
type disk struct {
	t   *testing.T
	dir string
	*storage.Stores
	last, term uint64
}

// began returns the open data directory of a node of a new cluster with the voters n1, n2 and n3.
func began(t *testing.T, id, cluster string) *disk {
	t.Helper()
	d := &disk{t: t, dir: filepath.Join(t.TempDir(), id), last: 2, term: 1}
	var err error
	d.Stores, err = storage.Open(storage.Options{NodeID: id, DataDir: d.dir, NoOverlap: true, DiskTimeout: time.Minute, Failed: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	var voters raft.Configuration
	members := []*wire.Member{}
	for _, n := range []string{"n1", "n2", "n3"} {
		m := &wire.Member{Id: n, PeerAddr: n + ":7401", ClientAddr: n + ":7400", Incarnation: "of " + n}
		if n == id {
			m.Incarnation = d.Incarnation
		}
		members = append(members, m)
		voters.Servers = append(voters.Servers, raft.Server{ID: raft.ServerID(n), Address: raft.ServerAddress(m.PeerAddr)})
	}
	now := uint64(time.Now().UnixMilli())
	bootstrap := &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{
		ClusterId: cluster, Lineage: "first", Settings: fsm.DefaultSettings(), Members: members, TokenFloor: fsm.ClockToken(now), ClockUnixMs: now}}}
	if err := d.Begin(voters, entry(t, time.Now(), bootstrap)); err != nil {
		t.Fatal(err)
	}
	return d
}

func entry(t *testing.T, at time.Time, commands ...*wire.Command) []byte {
	t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: 1, WallUnixMs: at.UnixMilli(), Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// commits appends an entry with these commands.
func (d *disk) commits(commands ...*wire.Command) { d.t.Helper(); d.commitsAt(time.Now(), commands...) }

func (d *disk) commitsAt(at time.Time, commands ...*wire.Command) {
	d.t.Helper()
	d.last++
	if err := d.Log.StoreLog(&raft.Log{Index: d.last, Term: d.term, Type: raft.LogCommand, Data: entry(d.t, at, commands...)}); err != nil {
		d.t.Fatal(err)
	}
}

// grants appends a session with a hold.
func (d *disk) grants() {
	d.t.Helper()
	secret := sha256.Sum256([]byte("secret"))
	d.commits(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secret[:]}}})
	opened, _, err := machineOf(d)
	if err != nil {
		d.t.Fatal(err)
	}
	d.commits(&wire.Command{SessionId: opened, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "orders/42"}}}}})
}

// machineOf applies the log, and returns the last session and the state.
func machineOf(d *disk) (session uint64, m *fsm.Machine, err error) {
	m = fsm.New(fsm.Level)
	for i := uint64(2); i <= d.last; i++ {
		var e raft.Log
		if err := d.Log.GetLog(i, &e); err != nil {
			return 0, nil, err
		}
		done, err := m.Apply(e.Data)
		if err != nil {
			return 0, nil, err
		}
		for _, r := range done.Results {
			session = max(session, r.GetSession().GetSessionId())
		}
	}
	return session, m, nil
}

// close ends the node.
func (d *disk) close() *disk {
	d.t.Helper()
	if err := d.Close(); err != nil {
		d.t.Fatal(err)
	}
	return d
}

// inspect reads a data directory.
func inspect(t *testing.T, dir string) *recovery.Survivor {
	t.Helper()
	s, err := recovery.Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// usable reads the data directory of a node that has ended, from which a cluster can be made.
func (d *disk) usable() *recovery.Survivor {
	d.t.Helper()
	s := inspect(d.t, d.close().dir)
	if s.Problem != nil {
		d.t.Fatal(s.Problem)
	}
	return s
}

// contents returns all files below a directory.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		sum := sha256.Sum256(data)
		all.WriteString(path + " ")
		all.Write(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// order confirms the survivor's cluster.
func order(t *testing.T, s *recovery.Survivor) recovery.Order {
	return recovery.Order{Confirm: s.ClusterID, To: filepath.Join(t.TempDir(), "new"), Operator: "ann", Reason: "the data centre is lost"}
}
