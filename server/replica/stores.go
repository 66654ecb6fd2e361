package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	logFile           = "raft.db"
	retainedSnapshots = 2
	// cachedLogs bounds raft's cache of entries; each may have maxEntryBytes.
	cachedLogs = 128
	// lockTimeout is how long to wait for a process that is just going.
	lockTimeout = 2 * time.Second
)

// stores are what a node remembers.
type stores struct {
	guard     *guard
	log       raft.LogStore    // the guard behind a cache
	stable    raft.StableStore // unguarded, for this package's own keys
	snapshots raft.SnapshotStore
	close     func() error
}

// openStores opens the files in dir, or takes those given. failed is told of the first
// write that failed.
func openStores(cfg Config, failed func(error)) (*stores, error) {
	if cfg.Stores.Log != nil {
		return assemble(cfg.Stores.Log, cfg.Stores.Stable, cfg.Stores.Snapshots, func() error { return nil }, failed)
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(cfg.DataDir, logFile),
		BoltOptions: &bbolt.Options{
			Timeout:        lockTimeout,
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, cfg.DataDir)
	}
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", cfg.DataDir, err)
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(cfg.DataDir, retainedSnapshots, cfg.Logger.Named("snapshots"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the snapshots in %s: %w", cfg.DataDir, err), bolt.Close())
	}
	return assemble(bolt, bolt, snapshots, bolt.Close, failed)
}

func assemble(logs raft.LogStore, stable raft.StableStore, snapshots raft.SnapshotStore, closer func() error, failed func(error)) (*stores, error) {
	g := &guard{logs: logs, stable: stable, failed: failed}
	cache, err := raft.NewLogCache(cachedLogs, g)
	if err != nil {
		return nil, errors.Join(err, closer())
	}
	s := &stores{guard: g, log: cache, stable: stable, snapshots: snapshots, close: closer}
	if err := s.whole(); err != nil {
		return nil, errors.Join(err, closer())
	}
	return s, nil
}

// whole refuses a log whose beginning is in no snapshot: part of the directory is gone.
func (s *stores) whole() error {
	first, err := s.log.FirstIndex()
	if err != nil || first <= 1 {
		return err
	}
	list, err := s.snapshots.List()
	if err != nil {
		return err
	}
	for _, meta := range list {
		if meta.Index+1 >= first {
			return nil
		}
	}
	return fmt.Errorf("the log begins at entry %d, but no snapshot holds what was before: "+
		"part of the data directory is missing; restore it, or replace this node", first)
}

// begun tells whether raft has ever run on these stores.
func (s *stores) begun() (bool, error) {
	return raft.HasExistingState(s.log, s.guard, s.snapshots)
}

// forgetCutBeginning makes a node empty again that died while it began a cluster, after it
// had written the first term and before the first entry. It would count as one with state,
// which others join rather than begin a cluster, but know of no members and never lead.
// Nothing is lost: no election has that term, so whoever has voted or heard of a leader
// has a later one.
func (s *stores) forgetCutBeginning() error {
	term, err := s.stable.GetUint64([]byte(currentTerm))
	if err != nil || term != 1 { // an error, if there is no term
		return nil
	}
	last, err := s.log.LastIndex()
	if err != nil || last != 0 {
		return err
	}
	if list, err := s.snapshots.List(); err != nil || len(list) != 0 {
		return err
	}
	return s.stable.SetUint64([]byte(currentTerm), 0)
}

// guard stands between raft and the disk. A write that failed may still be there, or
// half of it; raft would only step down and go on. So the first failure is reported,
// and nothing is written any more.
type guard struct {
	logs    raft.LogStore
	stable  raft.StableStore
	failed  func(error)
	once    sync.Once
	broken  atomic.Bool
	running atomic.Bool // raft's goroutines write, not Open
	// bytes were logged since the last snapshot.
	bytes atomic.Int64
}

var errBroken = fmt.Errorf("%w before", ErrStore)

func (g *guard) check(what string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%w: %s: %w", ErrStore, what, err)
	g.broken.Store(true)
	g.once.Do(func() { g.failed(err) })
	return err
}

func (g *guard) FirstIndex() (uint64, error)                { return g.logs.FirstIndex() }
func (g *guard) LastIndex() (uint64, error)                 { return g.logs.LastIndex() }
func (g *guard) GetLog(index uint64, entry *raft.Log) error { return g.logs.GetLog(index, entry) }
func (g *guard) StoreLog(entry *raft.Log) error             { return g.StoreLogs([]*raft.Log{entry}) }
func (g *guard) Get(key []byte) ([]byte, error)             { return g.stable.Get(key) }
func (g *guard) GetUint64(key []byte) (uint64, error)       { return g.stable.GetUint64(key) }
func (g *guard) Set(key, value []byte) error {
	return g.keep(func() error { return g.stable.Set(key, value) })
}
func (g *guard) SetUint64(key []byte, value uint64) error {
	return g.keep(func() error {
		if string(key) == lastVoteTerm {
			if err := g.stable.Set([]byte(lastVoteCandidate), []byte(nobody)); err != nil {
				return err
			}
		}
		return g.stable.SetUint64(key, value)
	})
}

// Raft keeps a vote under two keys, the term first. Dying between the two would leave
// the new term with the candidate of an older one, who would then be granted the vote
// again without a look at its log. So the candidate is blotted out before: such a term
// is one in which this node has voted, for nobody.
const (
	currentTerm       = "CurrentTerm"
	lastVoteTerm      = "LastVoteTerm"
	lastVoteCandidate = "LastVoteCand"
	nobody            = "\x00"
)

func (g *guard) StoreLogs(entries []*raft.Log) error {
	if g.broken.Load() {
		return errBroken
	}
	size := int64(0)
	for _, e := range entries {
		size += int64(len(e.Data))
	}
	g.bytes.Add(size)
	return g.check("append to the log", g.logs.StoreLogs(entries))
}

func (g *guard) DeleteRange(lowest, highest uint64) error {
	if g.broken.Load() {
		return errBroken
	}
	return g.check("truncate the log", g.logs.DeleteRange(lowest, highest))
}

// keep writes term or vote. Raft panics, or goes on, when that fails; once the node is
// told to stop, its goroutine ends here instead.
func (g *guard) keep(write func() error) error {
	err := errBroken
	if !g.broken.Load() {
		err = g.check("keep term or vote", write())
	}
	if err != nil && g.running.Load() {
		runtime.Goexit()
	}
	return err
}
