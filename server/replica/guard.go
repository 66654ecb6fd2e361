package replica

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

// guard stands between the node and its disk. A write that failed may still be there, or
// half of it; raft would only step down and go on. A write that hangs is worse: raft's
// main loop waits in it, while other goroutines go on sending heartbeats, so nobody would
// ever replace that leader. So the first write that fails, or takes longer than patience,
// is reported, and nothing is written any more.
type guard struct {
	logs   raft.LogStore
	stable raft.StableStore
	failed func(error)
	// patience is how long one write may take. The time for which it waits for another one
	// does not count.
	patience time.Duration
	// turn is taken by who writes. It is no mutex, so that virtual time goes on meanwhile.
	turn    chan struct{}
	broken  atomic.Bool
	once    sync.Once
	running atomic.Bool // raft's goroutines write, not Open
	// bytes were logged since the last snapshot.
	bytes atomic.Int64
	// deletable returns an error if these entries must not be deleted.
	deletable func(lowest, highest uint64) error

	// late counts the steps of the present write, and slowAt is when one last took as long as a
	// leader waits before it asks for a successor; slow is told then, and after each further step.
	late   atomic.Int64
	slowAt atomic.Pointer[time.Time]
	slow   chan struct{}
}

var errBroken = fmt.Errorf("%w before", ErrStore)

func newGuard(logs raft.LogStore, stable raft.StableStore, patience time.Duration, failed func(error)) *guard {
	return &guard{logs: logs, stable: stable, patience: patience, failed: failed, turn: make(chan struct{}, 1), slow: make(chan struct{}, 1),
		deletable: func(uint64, uint64) error { return nil }}
}

// fail reports the first failure.
func (g *guard) fail(err error) {
	g.broken.Store(true)
	g.once.Do(func() { g.failed(err) })
}

// write has its turn, and is watched. A write that returns after it was given up is one
// that failed: the node has said that it stops.
func (g *guard) write(what string, write func() error) error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.broken.Load() {
		return errBroken
	}
	defer g.late.Store(0)
	return g.watch(what, g.passed, write)
}

// beside writes what the log does not wait for. It says nothing of how slow the log is.
func (g *guard) beside(what string, write func() error) error {
	if g.broken.Load() {
		return errBroken
	}
	return g.watch(what, func(int) {}, write)
}

// watch reports a write that hangs or fails. passed is told of each step of its time.
func (g *guard) watch(what string, passed func(int), write func() error) error {
	hung := startWriteTimer(g.patience, passed, func() {
		g.fail(fmt.Errorf("%w: %s has not returned for %v", ErrDiskHangs, what, g.patience))
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

// passed notes that the present write has taken so many steps.
func (g *guard) passed(steps int) {
	g.late.Store(int64(steps))
	if steps < handOverSteps(g.patience) {
		return
	}
	now := time.Now()
	g.slowAt.Store(&now)
	select {
	case g.slow <- struct{}{}:
	default:
	}
}

// isSlow reports whether a write is late, or was within the time given.
func (g *guard) isSlow(within time.Duration) bool {
	at := g.slowAt.Load()
	return g.late.Load() > 0 || at != nil && time.Since(*at) < within
}

// advice is what to do about a failed write.
func advice(err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return "\nMake room on the disk, then start this node again: nothing that was acknowledged is lost"
	}
	return ""
}

// read passes on what was read. Damage is no answer to anybody: it stops the node.
func (g *guard) read(err error) error {
	if errors.Is(err, ErrDamaged) {
		g.fail(err)
	}
	return err
}

// FirstIndex implements raft.LogStore.
func (g *guard) FirstIndex() (uint64, error) { return g.logs.FirstIndex() }

// LastIndex implements raft.LogStore.
func (g *guard) LastIndex() (uint64, error) { return g.logs.LastIndex() }

// GetLog implements raft.LogStore.
func (g *guard) GetLog(index uint64, entry *raft.Log) error {
	return g.read(g.logs.GetLog(index, entry))
}

// StoreLog implements raft.LogStore.
func (g *guard) StoreLog(entry *raft.Log) error { return g.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (g *guard) StoreLogs(entries []*raft.Log) error {
	size := int64(0)
	for _, e := range entries {
		size += int64(len(e.Data))
	}
	g.bytes.Add(size)
	return g.write("append to the log", func() error { return g.logs.StoreLogs(entries) })
}

// DeleteRange implements raft.LogStore.
func (g *guard) DeleteRange(lowest, highest uint64) error {
	if err := g.deletable(lowest, highest); err != nil {
		return err
	}
	return g.write("truncate the log", func() error { return g.logs.DeleteRange(lowest, highest) })
}

// Get implements raft.StableStore.
func (g *guard) Get(key []byte) ([]byte, error) {
	value, err := g.stable.Get(key)
	return value, g.read(err)
}

// GetUint64 implements raft.StableStore.
func (g *guard) GetUint64(key []byte) (uint64, error) {
	value, err := g.stable.GetUint64(key)
	return value, g.read(err)
}

// Set implements raft.StableStore.
func (g *guard) Set(key, value []byte) error {
	return g.keep(func() error { return g.stable.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
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

// keep writes term or vote. Raft panics, or goes on, when that fails; once the node is
// told to stop, its goroutine ends here instead.
func (g *guard) keep(write func() error) error {
	err := g.write("keep term or vote", write)
	if err != nil && g.running.Load() {
		runtime.Goexit()
	}
	return err
}

// notebook is the stable store for this package's own keys: guarded as well, and with
// errors for those who write.
type notebook struct{ *guard }

// Set implements raft.StableStore.
func (n notebook) Set(key, value []byte) error {
	return n.write(fmt.Sprintf("keep %s", key), func() error { return n.stable.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (n notebook) SetUint64(key []byte, value uint64) error {
	return n.write(fmt.Sprintf("keep %s", key), func() error { return n.stable.SetUint64(key, value) })
}
