package recovery

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup"
	"github.com/quorumlock/quorumlock/server/internal/peers"
	"github.com/quorumlock/quorumlock/server/internal/retired"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Reasons why no cluster can be made from a data directory.
var (
	ErrInUse   = storage.ErrInUse
	ErrDamaged = storage.ErrDamaged
	// ErrEmpty is returned for a directory without a node's data: the disk was wiped, or the node never belonged to a
	// cluster.
	ErrEmpty = errors.New("there is no cluster's data in it")
	// ErrRemoved is returned for the directory of a node that was removed from its cluster, or replaced.
	ErrRemoved = errors.New("its node is no longer a member")
	// ErrNoDirectory is returned for a path that is no directory.
	ErrNoDirectory = errors.New("no such directory")
)

// diskTimeout bounds one write to a copy or a new directory.
const diskTimeout = time.Minute

// Survivor is what the data directory of a node contains.
type Survivor struct {
	Dir string
	// Problem is why no cluster can be made from the directory, nil if one can.
	Problem error
	// Retired is why the node itself would not start on it, nil if it would. A cluster can be made from it all the same.
	Retired error

	NodeID, Incarnation, ClusterID string
	// Voters are the ids of the voters, as far as the log says.
	Voters     []string
	configured bool // whether the node belongs to the configuration of raft
	// Term is the latest term known. LastIndex and LastTerm are those of the last entry, and CommittedIndex is that of the
	// last entry known to be committed.
	Term, LastIndex, LastTerm, CommittedIndex uint64
	// Changed is when the last change in the log was made, by its leader's clock; zero if the log does not say.
	Changed time.Time
	// State is the state after all entries of the log.
	State *fsm.Machine
}

// Inspect reads a data directory. It works on a copy in the directory for temporary files, so that the original stays
// as it is. It returns an error if that is impossible; what is wrong with the data is the survivor's Problem.
func Inspect(dir string) (*Survivor, error) {
	s := &Survivor{Dir: dir}
	if info, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%w: %s", ErrNoDirectory, dir)
	}
	copied, err := os.MkdirTemp("", "qlock-recover-")
	if err != nil {
		return nil, fmt.Errorf("copy the data directory: %w", err)
	}
	defer os.RemoveAll(copied)
	s.NodeID, err = storage.Copy(dir, copied)
	switch {
	case errors.Is(err, ErrInUse), errors.Is(err, ErrDamaged):
		s.Problem = err
	case err != nil:
		return nil, err
	default:
		s.Problem = located(s.read(copied), copied, dir)
	}
	return s, nil
}

// located replaces the path of the copy in the text of an error.
func located(err error, copied, dir string) error {
	if err == nil || !strings.Contains(err.Error(), copied) {
		return err
	}
	return &misplaced{err, strings.ReplaceAll(err.Error(), copied, dir)}
}

type misplaced struct {
	err  error
	text string
}

func (m *misplaced) Error() string { return m.text }
func (m *misplaced) Unwrap() error { return m.err }

// open opens a copied or a new directory.
func open(dir, nodeID string) (*storage.Stores, error) {
	return storage.Open(storage.Options{
		NodeID: nodeID, DataDir: dir, NoOverlap: true, DiskTimeout: diskTimeout, Failed: func(error) {}, Logger: hclog.NewNullLogger(),
	})
}

// read reads the copy.
func (s *Survivor) read(copied string) (err error) {
	stores, err := open(copied, s.NodeID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	if began, err := stores.HasState(); err != nil || !began {
		return errors.Join(err, ErrEmpty)
	}
	s.Incarnation, s.Retired = stores.Incarnation, retired.Check(stores.Values)
	state, about, err := backup.Stored(stores.Snapshots, stores.Log)
	if err != nil {
		return readable(err)
	}
	s.State, s.ClusterID, s.LastIndex = state, state.ClusterID(), about.Index
	if ms := about.LastChangeUnixMs; ms != 0 {
		s.Changed = time.UnixMilli(ms)
	}
	committed, err := peers.Committed(stores.Values)
	if err != nil {
		return err
	}
	s.CommittedIndex = max(committed, about.CommittedIndex)
	if err := s.readLog(stores); err != nil {
		return err
	}
	return s.standing()
}

// readable reports a snapshot whose content is wrong as damage.
func readable(err error) error {
	if errors.Is(err, fsm.ErrMalformed) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// readLog reads terms and members.
func (s *Survivor) readLog(stores *storage.Stores) error {
	stored, err := stores.Stored()
	if err != nil {
		return err
	}
	s.Term = stored.Term
	snapshots, err := stores.Snapshots.List()
	if err != nil {
		return err
	}
	var members raft.Configuration
	if len(snapshots) > 0 {
		members, s.LastTerm = snapshots[0].Configuration, snapshots[0].Term
	}
	first, err := stores.Log.FirstIndex()
	if err != nil {
		return err
	}
	for i := max(first, 1); i <= s.LastIndex; i++ {
		var e raft.Log
		if err := stores.Log.GetLog(i, &e); errors.Is(err, raft.ErrLogNotFound) {
			break // a snapshot has it
		} else if err != nil {
			return err
		}
		if s.LastTerm = max(s.LastTerm, e.Term); e.Type == raft.LogConfiguration {
			members = raft.DecodeConfiguration(e.Data)
		}
	}
	for _, m := range members.Servers {
		s.configured = s.configured || string(m.ID) == s.NodeID
		if m.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, string(m.ID))
		}
	}
	return nil
}

// standing returns an error unless the node is a member.
func (s *Survivor) standing() error {
	if s.ClusterID == "" {
		return ErrEmpty
	}
	member, known := s.State.Member(s.NodeID)
	switch {
	case !known || !s.configured || s.State.WasRemoved(s.Incarnation):
		return fmt.Errorf("%w: node %q was removed from cluster %q", ErrRemoved, s.NodeID, s.ClusterID)
	case member.Incarnation != "" && member.Incarnation != s.Incarnation:
		return fmt.Errorf("%w: cluster %q knows node %q with another data directory", ErrRemoved, s.ClusterID, s.NodeID)
	}
	return nil
}

// member returns the node as the state describes it.
func (s *Survivor) member() *wire.Member {
	m, _ := s.State.Member(s.NodeID)
	return m
}
