package replica

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

const (
	logFile           = "raft.db"
	segmentDir        = "log"
	retainedSnapshots = 2
	// rest is the time without writes after which the end of the log is marked.
	rest = time.Second
)

// stores are what a node remembers.
type stores struct {
	watchdog  *watchdog
	log       raft.LogStore    // overlap, unless that is nil, then a cache, then the guard
	overlap   *overlapped      // nil if the leader waits for its disk
	stable    raft.StableStore // for this package's own keys
	snapshots raft.SnapshotStore
	close     func() error
}

// openStores opens the files in cfg.DataDir, or uses cfg.Stores. failed is called when a write fails, and for
// damage.
func openStores(cfg Config, failed func(error)) (*stores, error) {
	if cfg.Stores.Log != nil {
		return assemble(cfg, cfg.Stores, func(bool) error { return nil }, failed)
	}
	if err := makePrivate(cfg.DataDir, cfg.Logger); err != nil {
		return nil, err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(cfg.DataDir, retainedSnapshots, cfg.Logger.Named("snapshots"))
	if err != nil {
		return nil, fmt.Errorf("open the snapshots in %s: %w", cfg.DataDir, err)
	}
	snaps := &snapshots{files, filepath.Join(cfg.DataDir, snapshotDir), failed}
	newest, err := snaps.newest()
	if err != nil {
		return nil, err
	}
	if err := inspect(cfg.DataDir, newest); err != nil {
		return nil, err
	}
	bolt, err := openBolt(filepath.Join(cfg.DataDir, logFile))
	if err != nil {
		return nil, err
	}
	if err := bolt.openLog(cfg, segment.Dir(filepath.Join(cfg.DataDir, segmentDir)), failed); err != nil {
		return nil, errors.Join(err, bolt.close(false))
	}
	return assemble(cfg, Stores{Log: bolt.log(), Stable: bolt, Snapshots: snaps}, bolt.close, failed)
}

// assemble puts the guard in front of the stores. closer closes them; sound reports that every write succeeded.
func assemble(cfg Config, from Stores, closer func(sound bool) error, failed func(error)) (*stores, error) {
	g := newWatchdog(from.Log, from.Stable, cfg.DiskTimeout, failed)
	cache := newCache(g)
	s := &stores{watchdog: g, log: cache, stable: notebook{g}, snapshots: from.Snapshots}
	if err := s.whole(); err != nil {
		return nil, errors.Join(err, closer(false))
	}
	if !cfg.NoOverlap {
		s.overlap = newOverlapped(cache)
		s.log = s.overlap
	}
	s.close = func() error {
		if s.overlap != nil {
			s.overlap.close()
		}
		return closer(!g.broken.Load())
	}
	return s, nil
}

// isWritten implements peerport.TransportConfig.Written.
func (s *stores) isWritten(index uint64) (bool, <-chan struct{}) {
	if s.overlap == nil {
		return true, nil
	}
	return s.overlap.isWritten(index)
}

// whole returns an error if no snapshot covers what was before the start of the log: part of the directory is
// gone.
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
	return fmt.Errorf("%w: the log begins at entry %d, but no snapshot holds what was before", ErrDamaged, first)
}

// begun reports whether raft has ever run on these stores.
func (s *stores) begun() (bool, error) {
	return raft.HasExistingState(s.log, s.watchdog, s.snapshots)
}

// forgetCutBeginning makes a node empty again that died while it began a cluster, after it had written the
// first term and before it had written the first entry. It would count as a node with state, which others
// join instead of beginning a cluster, but it would know no members and could never lead. Nothing is lost: no
// election has that term, so a node that has voted or followed a leader has a later one.
func (s *stores) forgetCutBeginning() error {
	term, err := s.stable.GetUint64([]byte(currentTerm))
	if err != nil || term != 1 { // GetUint64 returns an error if there is no term
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
