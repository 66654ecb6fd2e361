package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var (
	// ErrNotConfirmed is returned if the order names another cluster than that of the data directory.
	ErrNotConfirmed = errors.New("not confirmed")
	// ErrExists is returned if the new data directory exists.
	ErrExists = errors.New("the new data directory must not exist")
	// ErrClock is returned if the machine's clock is behind the cluster's: tokens continue above the clock.
	ErrClock = errors.New("the clock of this machine is wrong")
)

// maxBehind is how far the clock may be behind the last change.
const maxBehind = time.Minute

// Order says how to make the new cluster.
type Order struct {
	// Confirm is the id of the lost cluster.
	Confirm string
	// To is the new data directory. It must not exist, the directory that contains it must.
	To string
	// TokenFloor is the highest token that any resource has seen, if that is known.
	TokenFloor uint64
	// Operator, Reason and Ticket are for the audit log.
	Operator, Reason, Ticket string
}

// Outcome is the new cluster.
type Outcome struct {
	ClusterID, Dir string
	// TokenFloor is below every token of the new cluster, and above every token of the old one.
	TokenFloor uint64
}

// Recover makes a new cluster of one node with the survivor's node id. It takes up to a second, so that each recovery
// from the same data has another second of the clock, and with it another token floor. The survivor's directory is not
// changed.
func (s *Survivor) Recover(ctx context.Context, o Order) (*Outcome, error) {
	now := time.Now()
	if err := s.check(o, now); err != nil {
		return nil, err
	}
	unfinished := o.To + ".unfinished"
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return nil, fmt.Errorf("write the new data directory: %w", err)
	}
	done, err := s.write(unfinished, o, now)
	if err == nil {
		err = done.verify(unfinished, s.NodeID)
	}
	if err == nil {
		err = giveTo(unfinished, s.Dir)
	}
	if err == nil {
		err = backup.NextSecond(ctx, now)
	}
	if err == nil {
		err = publish(unfinished, o.To)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(unfinished))
	}
	return done, nil
}

// check returns an error unless the order fits the survivor and the machine.
func (s *Survivor) check(o Order, now time.Time) error {
	if s.Problem != nil {
		return s.Problem
	}
	if o.Confirm != s.ClusterID {
		return fmt.Errorf("%w: %s belongs to cluster %q, not %q", ErrNotConfirmed, s.Dir, s.ClusterID, o.Confirm)
	}
	if _, err := os.Lstat(o.To); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("%w: %s", ErrExists, o.To), err)
	}
	if now.Add(maxBehind).Before(s.Changed) {
		return fmt.Errorf("%w: it shows %s, and the last change was made at %s: set it, because tokens continue above it",
			ErrClock, now.UTC().Format(time.RFC3339), s.Changed.UTC().Format(time.RFC3339))
	}
	return nil
}

// write writes the data directory of the new cluster.
func (s *Survivor) write(dir string, o Order, now time.Time) (_ *Outcome, err error) {
	stores, err := open(dir, s.NodeID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	self := s.member()
	self.Incarnation = stores.Incarnation
	entry := s.begin(self, o, now)
	state, err := applied(entry)
	if err != nil {
		return nil, err
	}
	if err := record(stores, self, state.ClusterID()); err != nil {
		return nil, err
	}
	origin := fmt.Sprintf("node %s of cluster %s, up to log entry %d, recovered as cluster %s by %s at %s: %s",
		s.NodeID, s.ClusterID, s.LastIndex, state.ClusterID(), o.Operator, now.UTC().Format(time.RFC3339), o.Reason)
	if err := stores.SetOrigin(origin); err != nil {
		return nil, err
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(entry)
	if err != nil {
		return nil, err
	}
	alone := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(s.NodeID), Address: raft.ServerAddress(self.PeerAddr)}}}
	if err := stores.Begin(alone, data); err != nil {
		return nil, err
	}
	return &Outcome{ClusterID: state.ClusterID(), Dir: o.To, TokenFloor: state.Token()}, nil
}

// begin returns the entry with which the log of the new cluster begins.
func (s *Survivor) begin(self *wire.Member, o Order, now time.Time) *wire.Entry {
	clock := uint64(max(0, now.UnixMilli()))
	policy, _ := s.State.Access().Policy()
	most := fsm.ClockToken(clock) + fsm.MaxAhead // more than that is refused
	start := &wire.Bootstrap{
		ClusterId: wire.RecoveredID(s.ClusterID, storage.NewID()), TokenFloor: min(max(fsm.ClockToken(clock), s.State.Token()), most),
		Settings: s.State.Settings(), Members: []*wire.Member{self}, Lineage: storage.NewID(), ClockUnixMs: clock,
	}
	restore := &wire.RestoreBackup{
		TokenFloor: o.TokenFloor, Settings: s.State.Settings(), Audit: fsm.RestorableAudit(s.State.AuditAfter(0)), Lineage: storage.NewID(),
		Operator: o.Operator, Reason: o.Reason, Ticket: o.Ticket, ClockUnixMs: clock, Policy: policy, Tokens: s.State.Access().TokenRecords(),
		Backup: &wire.Backup{ClusterId: s.ClusterID, Lineage: s.State.Lineage(), Revision: s.State.Revision(), Token: s.State.Token()},
	}
	restore.TokenFloor = fsm.RestoreFloor(restore, start.TokenFloor)
	return &wire.Entry{Level: s.State.FeatureLevel(), WallUnixMs: now.UnixMilli(), Commands: []*wire.Command{
		{Op: &wire.Command_Bootstrap{Bootstrap: start}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: restore}},
	}}
}

// applied returns the state after the entry. It returns an error if a command is refused.
func applied(entry *wire.Entry) (*fsm.Machine, error) {
	data, err := proto.Marshal(entry)
	if err != nil {
		return nil, err
	}
	m := fsm.New(fsm.Level)
	done, err := m.Apply(data)
	if err != nil {
		return nil, err
	}
	for _, result := range done.Results {
		if result.GetStatus() != wire.Status_OK {
			return nil, fmt.Errorf("the new cluster would refuse its state: %s", result.GetMessage())
		}
	}
	return m, m.Check()
}

// record stores the members, which a node must know before it applies its log.
func record(stores *storage.Stores, self *wire.Member, cluster string) error {
	d, err := directory.Open(directory.Config{
		ID: self.Id, Incarnation: self.Incarnation, Values: stores.Values, View: func(uint64, func(*fsm.Machine)) bool { return false },
	})
	if err == nil {
		_, err = d.Store(0, &wire.Membership{ClusterId: cluster, Members: []*wire.Member{self}})
	}
	return err
}

// verify reads the new directory as a start does.
func (o *Outcome) verify(dir, nodeID string) error {
	made := &Survivor{Dir: o.Dir, NodeID: nodeID}
	if err := made.read(dir); err != nil {
		return fmt.Errorf("the new data directory cannot be used: %w", err)
	}
	if made.ClusterID != o.ClusterID || made.State.Token() != o.TokenFloor {
		return fmt.Errorf("the new data directory has cluster %q and token %d, instead of %q and %d", made.ClusterID, made.State.Token(), o.ClusterID, o.TokenFloor)
	}
	return nil
}

// publish gives the finished directory its name.
func publish(unfinished, to string) error {
	if err := os.Rename(unfinished, to); err != nil {
		return fmt.Errorf("write the new data directory: %w", err)
	}
	parent, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}
