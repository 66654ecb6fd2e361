package storage

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/raftlog"
	"github.com/quorumlock/quorumlock/server/storage/segment"
	"github.com/quorumlock/quorumlock/server/storage/stable"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	segmentDir        = "log"
	retainedSnapshots = 2
	// markInterval is the time without writes after which the end of the log is marked.
	markInterval = time.Second
)

// Backend replaces the files of a data directory, for tests. Set either all of its stores or none.
type Backend struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	// Incarnation replaces the identity.
	Incarnation string
}

// Options configure Open.
type Options struct {
	// NodeID is the id of the node that the directory belongs to.
	NodeID string
	// DataDir is the data directory. Unused with Backend.
	DataDir string
	Backend Backend
	// SegmentBytes is the size of a segment; see segment.Options.
	SegmentBytes int64
	// NoOverlap makes the leader write an entry before it sends it, instead of concurrently.
	NoOverlap bool
	// DiskTimeout bounds one write.
	DiskTimeout time.Duration
	// Leads reports whether this node leads and needs other voters to commit anything.
	Leads func() bool
	// Deletable returns an error if these entries must not be deleted.
	Deletable func(lowest, highest uint64) error
	// Synced is called with the duration of each write to the log that succeeded. It must not block.
	Synced func(time.Duration)
	// Failed is called once, with the first failed write, or when damage is read.
	Failed func(error)
	Logger hclog.Logger
}

func (o Options) withDefaults() Options {
	if o.Leads == nil {
		o.Leads = func() bool { return false }
	}
	if o.Deletable == nil {
		o.Deletable = func(uint64, uint64) error { return nil }
	}
	if o.Synced == nil {
		o.Synced = func(time.Duration) {}
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// Stores are what a node stores. All methods are safe for concurrent use.
type Stores struct {
	// Log is raft's log, and Votes its term and vote.
	Log   raft.LogStore
	Votes raft.StableStore
	// Values are the node's own values. They are in the same file as term and vote.
	Values    raft.StableStore
	Snapshots raft.SnapshotStore
	// Incarnation identifies the data directory.
	Incarnation string

	watchdog *watchdog
	overlap  *overlapped // nil if the leader waits for its disk
	// closer closes the files. sound reports that every write succeeded.
	closer func(sound bool) error
}

// Open opens the files in o.DataDir, or uses o.Backend. It returns ErrInUse, ErrDamaged, ErrNotPrivate,
// ErrOtherNode, ErrIdentityFile, or an error of the disk.
func Open(o Options) (*Stores, error) {
	o = o.withDefaults()
	backend, closer := o.Backend, func(bool) error { return nil }
	if backend.Log == nil {
		var err error
		if backend, closer, err = openFiles(o); err != nil {
			return nil, err
		}
	}
	s, err := assemble(o, backend, closer)
	if err != nil {
		return nil, err
	}
	if s.Incarnation, err = openIdentity(o, s.Values); err == nil {
		err = logOrigin(s.Values, o.Logger)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openFiles opens the files in the data directory, or creates them.
func openFiles(o Options) (Backend, func(sound bool) error, error) {
	if err := makePrivate(o.DataDir, o.Logger); err != nil {
		return Backend{}, nil, err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(o.DataDir, retainedSnapshots, raftlog.New(raftlog.Config{NodeID: o.NodeID, Logger: o.Logger}))
	if err != nil {
		return Backend{}, nil, fmt.Errorf("open the snapshots in %s: %w", o.DataDir, err)
	}
	snaps := &snapshots{files, filepath.Join(o.DataDir, snapshotDir), o.Failed}
	newest, err := snaps.newest()
	if err != nil {
		return Backend{}, nil, err
	}
	if err := inspect(o.DataDir, newest); err != nil {
		return Backend{}, nil, err
	}
	values, err := stable.Open(o.DataDir)
	if err != nil {
		return Backend{}, nil, err
	}
	log, err := openLog(o, values)
	if err != nil {
		return Backend{}, nil, errors.Join(err, values.Close())
	}
	closer := func(sound bool) (err error) {
		if sound {
			if err = log.Mark(); err == nil {
				err = values.Flush() // stores the position of the mark
			}
		}
		return errors.Join(err, log.Close(), values.Close())
	}
	return Backend{Log: log, Stable: values, Snapshots: snaps}, closer, nil
}

// logKey is the key under which the values record which log belongs to them and how far it extends. Each
// write of a value updates it, and a log that ends earlier has lost something.
var logKey = []byte("log")

// openLog opens the log, or creates it if there is none yet.
func openLog(o Options, values *stable.Store) (log *segment.Log, err error) {
	path := filepath.Join(o.DataDir, segmentDir)
	options := segment.Options{Size: o.SegmentBytes, Rest: markInterval, Logger: o.Logger.Named("log"), Failed: func(err error) {
		o.Failed(fmt.Errorf("%w: mark the end of the log: %w%s", ErrStore, err, advice(err)))
	}}
	known, err := Get(values, logKey)
	if err != nil {
		return nil, err
	}
	if known == nil {
		log, err = createLog(o.DataDir, options)
	} else if options.ID, options.Reached, err = decodeLogEnd(known); err == nil {
		log, err = segment.Open(segment.Dir(path), options)
	}
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", path, missing(err))
	}
	values.Attach(string(logKey), func() []byte { return encodeLogEnd(log.ID(), log.End()) })
	if known == nil {
		if err := values.Flush(); err != nil {
			return nil, errors.Join(err, log.Close())
		}
	}
	return log, nil
}

// createLog creates an empty log. If the process ends before the values record it, the next start creates
// another one.
func createLog(dir string, options segment.Options) (*segment.Log, error) {
	path := filepath.Join(dir, segmentDir)
	if err := os.MkdirAll(path, privateDir); err != nil {
		return nil, err
	}
	if err := segment.Dir(dir).Sync(); err != nil {
		return nil, err
	}
	_, _ = rand.Read(options.ID[:]) // never fails
	return segment.Create(segment.Dir(path), options)
}

// encodeLogEnd encodes the log's id and the position of its end.
func encodeLogEnd(id segment.ID, end segment.Position) []byte {
	b := binary.BigEndian.AppendUint64(append([]byte{}, id[:]...), end.File)
	return binary.BigEndian.AppendUint32(b, end.Sector)
}

func decodeLogEnd(b []byte) (id segment.ID, end segment.Position, err error) {
	if len(b) != len(id)+8+4 {
		return id, end, fmt.Errorf("%w: the recorded end of the log has %d bytes", ErrDamaged, len(b))
	}
	n := copy(id[:], b)
	return id, segment.Position{File: binary.BigEndian.Uint64(b[n:]), Sector: binary.BigEndian.Uint32(b[n+8:])}, nil
}

// assemble puts watchdog, cache and overlap in front of the stores. closer closes them.
func assemble(o Options, backend Backend, closer func(sound bool) error) (*Stores, error) {
	g := newWatchdog(backend.Log, backend.Stable, o.DiskTimeout, o.Failed)
	g.deletable, g.synced = o.Deletable, o.Synced
	cache := newCache(g)
	s := &Stores{Log: cache, Votes: g, Values: values{g}, Snapshots: backend.Snapshots, watchdog: g, closer: closer}
	if err := s.checkBeginning(); err != nil {
		return nil, errors.Join(err, closer(false))
	}
	if !o.NoOverlap {
		s.overlap = newOverlapped(cache, o.Leads)
		s.Log = s.overlap
	}
	return s, nil
}

// Close closes the files. Raft must not run any more.
func (s *Stores) Close() error {
	if s.overlap != nil {
		s.overlap.close()
	}
	return s.closer(!s.watchdog.broken.Load())
}

// RaftRuns declares that raft's goroutines write from now on. A failed write of term or vote then ends the
// calling goroutine, because raft would panic or continue.
func (s *Stores) RaftRuns() { s.watchdog.running.Store(true) }

// IsWritten reports whether every entry up to index that raft has stored is on the disk. If not, the caller
// should ask again when the channel is closed; a nil channel means that the answer will not change.
func (s *Stores) IsWritten(index uint64) (bool, <-chan struct{}) {
	if s.overlap == nil {
		return true, nil
	}
	return s.overlap.isWritten(index)
}

// SetIndependently stores one of the node's values without making the log wait. It does not count as a slow write.
func (s *Stores) SetIndependently(key, value []byte) error {
	return s.watchdog.writeIndependently(fmt.Sprintf("store %s", key), func() error { return s.watchdog.stable.Set(key, value) })
}

// GrownBy reports whether entries of that many bytes were logged since it last reported true.
func (s *Stores) GrownBy(bytes int64) bool {
	if s.watchdog.bytes.Load() < bytes {
		return false
	}
	s.watchdog.bytes.Store(0)
	return true
}

// SlowWrites is signalled when a write takes so long that a leader should hand over.
func (s *Stores) SlowWrites() <-chan struct{} { return s.watchdog.slow }

// Late reports whether a write is taking long at present.
func (s *Stores) Late() bool { return s.watchdog.late.Load() > 0 }

// DiskSlow reports whether a write is late, or was slow within the given time.
func (s *Stores) DiskSlow(within time.Duration) bool { return s.watchdog.isSlow(within) }

// checkBeginning returns an error if no snapshot covers what was before the start of the log: part of the
// directory is gone.
func (s *Stores) checkBeginning() error {
	first, err := s.Log.FirstIndex()
	if err != nil || first <= 1 {
		return err
	}
	list, err := s.Snapshots.List()
	if err != nil {
		return err
	}
	for _, meta := range list {
		if meta.Index+1 >= first {
			return nil
		}
	}
	return fmt.Errorf("%w: the log begins at entry %d, but no snapshot holds what was before", ErrDamaged, first)
}

// HasState reports whether raft has ever run on these stores.
func (s *Stores) HasState() (bool, error) {
	return raft.HasExistingState(s.Log, s.Votes, s.Snapshots)
}

// ForgetInterruptedBootstrap makes a node empty again that died while it began a cluster, after it had written
// the first term and before it had written the first entry. It would count as a node with state, which others
// join instead of beginning a cluster, but it would know no members and could never lead. Nothing is lost: no
// election has that term, so a node that has voted or followed a leader has a later one.
func (s *Stores) ForgetInterruptedBootstrap() error {
	term, err := s.Values.GetUint64([]byte(currentTerm))
	if err != nil || term != 1 { // GetUint64 returns an error if there is no term
		return nil
	}
	last, err := s.Log.LastIndex()
	if err != nil || last != 0 {
		return err
	}
	if list, err := s.Snapshots.List(); err != nil || len(list) != 0 {
		return err
	}
	return s.Values.SetUint64([]byte(currentTerm), 0)
}

// Begin writes the start of a cluster's log into empty stores: the members, and a command that every node applies
// first. Both are written at once, so that no cluster begins without the command.
func (s *Stores) Begin(members raft.Configuration, command []byte) error {
	if err := s.Values.SetUint64([]byte(currentTerm), 1); err != nil {
		return err
	}
	return s.Log.StoreLogs([]*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(members)},
		{Index: 2, Term: 1, Type: raft.LogCommand, Data: command},
	})
}

// Stored returns what raft will find on the disk.
func (s *Stores) Stored() (*wire.StoredState, error) {
	state := &wire.StoredState{}
	for key, field := range map[string]*uint64{currentTerm: &state.Term, lastVoteTerm: &state.VoteTerm} {
		value, err := s.Values.GetUint64([]byte(key))
		if err != nil && err.Error() != notFound {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		*field = value
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return nil, err
	}
	snapshot, err := s.SnapshotIndex()
	state.LastIndex = max(last, snapshot)
	return state, err
}

// SnapshotIndex returns the last entry that is in a snapshot, 0 if there is none.
func (s *Stores) SnapshotIndex() (index uint64, err error) {
	list, err := s.Snapshots.List()
	for _, meta := range list {
		index = max(index, meta.Index)
	}
	return index, err
}

// notFound is the text of the error for a key without a value, by which raft recognizes it.
const notFound = "not found"

// Get returns the value of a key, or nil if there is none.
func Get(from raft.StableStore, key []byte) ([]byte, error) {
	value, err := from.Get(key)
	if err != nil && err.Error() != notFound {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return value, nil
}

// ReadLog calls visit with the log entries of a node that is not running, in order, for tools and tests that
// inspect what a cluster has decided. It returns ErrInUse, ErrDamaged, an error of the disk, or the first
// error of visit, after which it stops.
func ReadLog(dataDir string, visit func(*raft.Log) error) error {
	values, err := stable.Read(dataDir)
	if err != nil || values[string(logKey)] == nil {
		return err // nil if nothing has been written yet
	}
	options := segment.Options{}
	if options.ID, options.Reached, err = decodeLogEnd(values[string(logKey)]); err != nil {
		return err
	}
	return segment.Read(segment.Dir(filepath.Join(dataDir, segmentDir)), options, visit)
}
