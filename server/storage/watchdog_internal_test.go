package storage

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// refusing is a store that fails to write or to read certain keys.
type refusing struct {
	*raft.InmemStore
	keys      []string // in the order in which they were written
	entries   bool     // changes of the log are refused
	key, read string   // the key that is refused on writing, and on reading
}

func (r *refusing) refuse(key []byte) error {
	if string(key) == r.key {
		return errDisk
	}
	r.keys = append(r.keys, string(key))
	return nil
}

func (r *refusing) Set(key, value []byte) error {
	return errors.Join(r.refuse(key), r.InmemStore.Set(key, value))
}

func (r *refusing) SetUint64(key []byte, value uint64) error {
	return errors.Join(r.refuse(key), r.InmemStore.SetUint64(key, value))
}

func (r *refusing) Get(key []byte) ([]byte, error) {
	if string(key) == r.read {
		return nil, errDisk
	}
	return r.InmemStore.Get(key)
}

func (r *refusing) DeleteRange(lowest, highest uint64) error {
	if r.entries {
		return errDisk
	}
	return r.InmemStore.DeleteRange(lowest, highest)
}

// TestEveryFailedWriteIsReported verifies that each kind of failed write is reported, and that nothing of a
// vote is written after the part that failed.
func TestEveryFailedWriteIsReported(t *testing.T) {
	key := []byte("key")
	for name, c := range map[string]struct {
		refused string
		write   func(*watchdog) error
		written []string
	}{
		"a deletion":                  {"", func(g *watchdog) error { return g.DeleteRange(1, 2) }, nil},
		"a candidate":                 {lastVoteCandidate, func(g *watchdog) error { return g.Set([]byte(lastVoteCandidate), key) }, nil},
		"a term":                      {currentTerm, func(g *watchdog) error { return g.SetUint64([]byte(currentTerm), 7) }, nil},
		"the candidate before a vote": {lastVoteCandidate, func(g *watchdog) error { return g.SetUint64([]byte(lastVoteTerm), 7) }, nil},
		"the term of a vote":          {lastVoteTerm, func(g *watchdog) error { return g.SetUint64([]byte(lastVoteTerm), 7) }, []string{lastVoteCandidate}},
		"a value":                     {"key", func(g *watchdog) error { return values{g}.Set(key, key) }, nil},
		"a number":                    {"key", func(g *watchdog) error { return values{g}.SetUint64(key, 7) }, nil},
		"what the log does not wait for": {"key", func(g *watchdog) error {
			return g.writeIndependently("try", func() error { return g.stable.Set(key, key) })
		}, nil},
	} {
		var told []error
		store := &refusing{InmemStore: raft.NewInmemStore(), entries: true, key: c.refused}
		g := newWatchdog(store, store, time.Hour, func(err error) { told = append(told, err) })
		if err := c.write(g); !errors.Is(err, ErrStore) || !errors.Is(err, errDisk) || len(told) != 1 || !errors.Is(told[0], errDisk) {
			t.Errorf("%s: %v, told %v", name, err, told)
		}
		if !slices.Equal(store.keys, c.written) {
			t.Errorf("%s: written was %q", name, store.keys)
		}
	}
}

// TestRaftEndsInAFailedVote verifies that raft's goroutine ends if a term or vote was not written, and that
// Open's goroutine gets the error instead.
func TestRaftEndsInAFailedVote(t *testing.T) {
	for _, running := range []bool{true, false} {
		store := &refusing{InmemStore: raft.NewInmemStore(), key: currentTerm}
		g := newWatchdog(store, store, time.Hour, func(error) {})
		g.running.Store(running)
		returned, ended := false, make(chan struct{})
		go func() {
			defer close(ended)
			if err := g.SetUint64([]byte(lastVoteTerm), 7); err != nil {
				t.Errorf("a write that did not fail: %v", err)
			}
			_ = g.SetUint64([]byte(currentTerm), 7)
			returned = true
		}()
		if <-ended; returned == running {
			t.Errorf("raft runs %v, and the write returned: %v", running, returned)
		}
	}
}

// TestWriteThatWasGivenUp verifies that a write of either kind that returns after its time limit counts as
// failed.
func TestWriteThatWasGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for name, write := range map[string]func(*watchdog, func() error) error{
			"in turn":            func(g *watchdog, do func() error) error { return g.write("try", do) },
			"writeIndependently": func(g *watchdog, do func() error) error { return g.writeIndependently("try", do) },
		} {
			var told []error
			g := newWatchdog(nil, nil, 7*time.Second, func(err error) { told = append(told, err) })
			if err := write(g, func() error { time.Sleep(6 * time.Second); return nil }); err != nil || len(told) != 0 {
				t.Errorf("%s: late: %v, told %v", name, err, told)
			}
			err := write(g, func() error { time.Sleep(8 * time.Second); return nil })
			synctest.Wait()
			if !errors.Is(err, errBroken) || len(told) != 1 || !errors.Is(told[0], ErrDiskHangs) {
				t.Errorf("%s: given up: %v, told %v", name, err, told)
			}
		}
	})
}

// TestTurnsAreSlowAndWhatIsBesideIsNot verifies that only writes that the log waits for make a leader hand
// over.
func TestTurnsAreSlowAndWhatIsBesideIsNot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newWatchdog(nil, nil, 7*time.Second, func(err error) { t.Error(err) })
		last := func() error { time.Sleep(6 * time.Second); return nil }
		if err := g.writeIndependently("try", last); err != nil || g.isSlow(time.Minute) || len(g.slow) != 0 {
			t.Errorf("writeIndependently: %v, slow %v, told %d", err, g.isSlow(time.Minute), len(g.slow))
		}
		if err := g.write("try", last); err != nil || !g.isSlow(time.Minute) || g.late.Load() != 0 || len(g.slow) != 1 {
			t.Errorf("in turn: %v, slow %v, late %d, told %d", err, g.isSlow(time.Minute), g.late.Load(), len(g.slow))
		}
	})
}

// lateLog is a log that takes its time.
type lateLog struct {
	*raft.InmemStore
	takes time.Duration
	fails bool
}

func (l lateLog) StoreLogs(entries []*raft.Log) error {
	time.Sleep(l.takes)
	if l.fails {
		return errDisk
	}
	return l.InmemStore.StoreLogs(entries)
}

// TestWritesToTheLogAreTimed verifies that Options.Synced gets the duration of each write to the log, without the time
// that it waits for its turn, and neither that of other writes nor of those that fail.
func TestWritesToTheLogAreTimed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var took []time.Duration
		log := lateLog{InmemStore: raft.NewInmemStore(), takes: 3 * time.Millisecond}
		s, err := assemble(Options{
			NoOverlap: true, DiskTimeout: time.Minute, Failed: func(error) {}, Synced: func(d time.Duration) { took = append(took, d) },
		}.withDefaults(), Backend{Log: log, Stable: log, Snapshots: raft.NewInmemSnapshotStore()}, func(bool) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		wrote := make(chan error, 2)
		go func() { wrote <- s.Log.StoreLog(&raft.Log{Index: 1}) }()
		synctest.Wait() // until it is written
		go func() { wrote <- s.Log.StoreLogs([]*raft.Log{{Index: 2}, {Index: 3}}) }()
		if err := errors.Join(<-wrote, <-wrote, s.Votes.SetUint64([]byte(currentTerm), 7), s.SetIndependently([]byte("k"), nil), s.Log.DeleteRange(1, 1)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(took, []time.Duration{3 * time.Millisecond, 3 * time.Millisecond}) {
			t.Errorf("the writes took %v", took)
		}
		g := newWatchdog(lateLog{InmemStore: log.InmemStore, fails: true}, log, time.Minute, func(error) {})
		g.synced = s.watchdog.synced
		if err := g.StoreLog(&raft.Log{Index: 4}); !errors.Is(err, errDisk) || len(took) != 2 {
			t.Errorf("a write that failed: %v, %v", err, took)
		}
	})
}

// TestFailedWrites verifies that a failed write comes with advice only if there is a remedy.
func TestFailedWrites(t *testing.T) {
	for err, room := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false} {
		if got := advice(fmt.Errorf("write: %w", err)) != ""; got != room {
			t.Errorf("%v: advice to make room: %v", err, got)
		}
		var failures []error
		g := newWatchdog(raft.NewInmemStore(), raft.NewInmemStore(), time.Hour, func(err error) { failures = append(failures, err) })
		if got := g.write("try", func() error { return err }); !errors.Is(got, ErrStore) || !errors.Is(got, err) {
			t.Errorf("the write returns %v", got)
		}
		for name, later := range map[string]error{"write": g.write("try", nil), "writeIndependently": g.writeIndependently("try", nil), "store": g.StoreLog(&raft.Log{Index: 1})} {
			if !errors.Is(later, errBroken) {
				t.Errorf("after a failure %s returns %v", name, later)
			}
		}
		if len(failures) != 1 || !errors.Is(failures[0], err) {
			t.Errorf("reported %v", failures)
		}
	}
}

// TestWhatReadingReturns verifies that reading damage stops the node, and that no other error does.
func TestWhatReadingReturns(t *testing.T) {
	for err, stops := range map[error]bool{nil: false, raft.ErrLogNotFound: false, fmt.Errorf("%w: x", ErrDamaged): true} {
		stopped := false
		g := newWatchdog(nil, nil, time.Hour, func(error) { stopped = true })
		if got := g.read(err); got != err || stopped != stops || g.broken.Load() != stops {
			t.Errorf("%v: returned %v, stopped %v", err, got, stopped)
		}
	}
}

// TestSlowDisks verifies that a disk counts as slow while a write is late, and for some time after one that
// took very long.
func TestSlowDisks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newWatchdog(nil, nil, 7*time.Second, nil)
		want := func(when string, slow bool, told int) {
			t.Helper()
			if g.isSlow(time.Minute) != slow || len(g.slow) != told {
				t.Errorf("%s: slow %v, told %d", when, !slow, len(g.slow))
			}
		}
		want("at first", false, 0)
		g.passed(1)
		want("late", true, 0)
		g.late.Store(0)
		want("in time again", false, 0)
		g.passed(handOverSteps(g.timeout) - 1)
		g.late.Store(0)
		want("almost as late as a hand-over takes", false, 0)
		g.passed(handOverSteps(g.timeout))
		g.late.Store(0)
		want("as late as a hand-over takes", true, 1)
		g.passed(handOverSteps(g.timeout) + 1)
		g.late.Store(0)
		want("very late", true, 1)
		time.Sleep(time.Minute - 1)
		want("within a minute", true, 1)
		time.Sleep(time.Nanosecond)
		want("after a minute", false, 1)
	})
}
