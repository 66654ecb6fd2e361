package storage

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// watchdog stops the node when its disk fails or hangs. After a failed write, the data may be on the disk or not, or half
// of it, but raft would only step down and continue. A write that hangs is worse: raft's main loop waits for
// it while other goroutines keep sending heartbeats, so that leader would never be replaced. So the first
// write that fails, or takes longer than timeout, is reported, and nothing is written after it.
type watchdog struct {
	logs   raft.LogStore
	stable raft.StableStore
	failed func(error)
	// timeout bounds one write, not counting the time that it waits for another one.
	timeout time.Duration
	// turn is held during a write. It is not a mutex, so that synctest's clock can advance while writers wait
	// for it.
	turn    chan struct{}
	broken  atomic.Bool
	once    sync.Once
	running atomic.Bool // raft's goroutines write, not Open
	// bytes is the size of the entries logged since Stores.GrownBy last reported true.
	bytes atomic.Int64
	// deletable returns an error if these entries must not be deleted.
	deletable func(lowest, highest uint64) error
	// synced gets the duration of each write to the log that succeeded.
	synced func(time.Duration)

	// late is the number of time steps of the current write that have passed. slowAt is when a write last
	// took so long that a leader asks for a successor. slow is signalled then, and after each further step.
	late   atomic.Int64
	slowAt atomic.Pointer[time.Time]
	slow   chan struct{}
}

var errBroken = fmt.Errorf("%w before", ErrStore)

func newWatchdog(logs raft.LogStore, stable raft.StableStore, timeout time.Duration, failed func(error)) *watchdog {
	return &watchdog{logs: logs, stable: stable, timeout: timeout, failed: failed, turn: make(chan struct{}, 1), slow: make(chan struct{}, 1),
		deletable: func(uint64, uint64) error { return nil }, synced: func(time.Duration) {}}
}

// fail reports the first failure.
func (g *watchdog) fail(err error) {
	g.broken.Store(true)
	g.once.Do(func() { g.failed(err) })
}

// write runs a write exclusively and with a time limit. A write that returns after it was given up counts as
// failed, because the node has already reported that it stops.
func (g *watchdog) write(what string, write func() error) error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.broken.Load() {
		return errBroken
	}
	defer g.late.Store(0)
	return g.watch(what, g.passed, write)
}

// writeIndependently runs a write that the log does not wait for. It does not count towards the log's slowness.
func (g *watchdog) writeIndependently(what string, write func() error) error {
	if g.broken.Load() {
		return errBroken
	}
	return g.watch(what, func(int) {}, write)
}

// watch runs a write and reports it if it hangs or fails. passed is called after each time step.
func (g *watchdog) watch(what string, passed func(int), write func() error) error {
	hung := startWriteTimer(g.timeout, passed, func() {
		g.fail(fmt.Errorf("%w: %s has not returned for %v", ErrDiskHangs, what, g.timeout))
	})
	err := write()
	hung.stop()
	if err != nil {
		err = fmt.Errorf("%w: %s: %w%s", ErrStore, what, err, advice(err))
		g.fail(err)
	}
	if err == nil && g.broken.Load() {
		err = errBroken
	}
	return err
}

// passed records that the current write has taken that many steps.
func (g *watchdog) passed(steps int) {
	g.late.Store(int64(steps))
	if steps < handOverSteps(g.timeout) {
		return
	}
	now := time.Now()
	g.slowAt.Store(&now)
	select {
	case g.slow <- struct{}{}:
	default:
	}
}

// isSlow reports whether a write is late now, or was slow within the given time.
func (g *watchdog) isSlow(within time.Duration) bool {
	at := g.slowAt.Load()
	return g.late.Load() > 0 || at != nil && time.Since(*at) < within
}

// advice returns what to do about a failed write, if there is a remedy.
func advice(err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return "\nMake room on the disk, then start this node again: nothing that was acknowledged is lost"
	}
	return ""
}

// read passes on the error of a read. Damage stops the node, since no answer may be based on it.
func (g *watchdog) read(err error) error {
	if errors.Is(err, ErrDamaged) {
		g.fail(err)
	}
	return err
}

// FirstIndex implements raft.LogStore.
func (g *watchdog) FirstIndex() (uint64, error) { return g.logs.FirstIndex() }

// LastIndex implements raft.LogStore.
func (g *watchdog) LastIndex() (uint64, error) { return g.logs.LastIndex() }

// GetLog implements raft.LogStore.
func (g *watchdog) GetLog(index uint64, entry *raft.Log) error {
	return g.read(g.logs.GetLog(index, entry))
}

// StoreLog implements raft.LogStore.
func (g *watchdog) StoreLog(entry *raft.Log) error { return g.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (g *watchdog) StoreLogs(entries []*raft.Log) error {
	size := int64(0)
	for _, e := range entries {
		size += int64(len(e.Data))
	}
	g.bytes.Add(size)
	return g.write("append to the log", func() error {
		began := time.Now()
		err := g.logs.StoreLogs(entries)
		if err == nil {
			g.synced(time.Since(began))
		}
		return err
	})
}

// DeleteRange implements raft.LogStore.
func (g *watchdog) DeleteRange(lowest, highest uint64) error {
	if err := g.deletable(lowest, highest); err != nil {
		return err
	}
	return g.write("truncate the log", func() error { return g.logs.DeleteRange(lowest, highest) })
}

// Get implements raft.StableStore.
func (g *watchdog) Get(key []byte) ([]byte, error) {
	value, err := g.stable.Get(key)
	return value, g.read(err)
}

// GetUint64 implements raft.StableStore.
func (g *watchdog) GetUint64(key []byte) (uint64, error) {
	value, err := g.stable.GetUint64(key)
	return value, g.read(err)
}

// Set implements raft.StableStore.
func (g *watchdog) Set(key, value []byte) error {
	return g.keep(func() error { return g.stable.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (g *watchdog) SetUint64(key []byte, value uint64) error {
	return g.keep(func() error {
		if string(key) == lastVoteTerm {
			if err := g.stable.Set([]byte(lastVoteCandidate), []byte(nobody)); err != nil {
				return err
			}
		}
		return g.stable.SetUint64(key, value)
	})
}

// Raft stores a vote under two keys, the term first. If the process died in between, the new term would be
// combined with the candidate of an older one, which would then be granted the vote again without a check of
// its log. So the candidate is overwritten first: the node then counts as having voted for nobody in that
// term.
const (
	currentTerm       = "CurrentTerm"
	lastVoteTerm      = "LastVoteTerm"
	lastVoteCandidate = "LastVoteCand"
	nobody            = "\x00"
)

// keep writes term or vote. Raft would panic or continue if that failed. A failure stops the node, so once raft
// runs, keep ends the calling goroutine instead of returning an error.
func (g *watchdog) keep(write func() error) error {
	err := g.write("store term or vote", write)
	if err != nil && g.running.Load() {
		runtime.Goexit()
	}
	return err
}

// values stores the node's own values. It is guarded as well, but returns errors to its callers.
type values struct{ *watchdog }

// Set implements raft.StableStore.
func (v values) Set(key, value []byte) error {
	return v.write(fmt.Sprintf("store %s", key), func() error { return v.stable.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (v values) SetUint64(key []byte, value uint64) error {
	return v.write(fmt.Sprintf("store %s", key), func() error { return v.stable.SetUint64(key, value) })
}
