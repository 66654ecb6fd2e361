package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Replicated is a [Machine] under raft. raft applies entries to it from one goroutine; it may be
// read from any.
type Replicated struct {
	level uint32
	halt  func(error)
	// limits are the machine's settings, for callers that must not wait while an entry is applied.
	limits atomic.Pointer[wire.Settings]
	access atomic.Pointer[Access]
	// units are the units of the state.
	units atomic.Uint64

	mu      sync.RWMutex // guards the fields below
	machine *Machine
	frozen  error
}

var _ raft.FSM = (*Replicated)(nil)

// NewReplicated returns an empty state for a program that understands feature levels up to level. halt is
// called, at most once and without any lock held, when the node must stop before it applies something
// that it does not understand. It may be called on raft's own goroutine and must not wait for raft.
func NewReplicated(level uint32, halt func(error)) *Replicated {
	return &Replicated{level: level, halt: halt, machine: New(level)}
}

// Apply applies a log entry. It returns an *[Applied] or an error: ErrMalformed, which is the same on
// every node, or ErrUpgrade, after which nothing is applied any more.
func (r *Replicated) Apply(entry *raft.Log) any {
	applied, halting, err := r.apply(entry)
	if halting {
		r.halt(err)
	}
	if err != nil {
		return err
	}
	return applied
}

func (r *Replicated) apply(entry *raft.Log) (applied *Applied, halting bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen != nil {
		return nil, false, r.frozen
	}
	applied, err = r.machine.Apply(entry.Data)
	if errors.Is(err, ErrUpgrade) {
		r.frozen = fmt.Errorf("log entry %d: %w", entry.Index, err)
		return nil, true, r.frozen
	}
	r.machine.state.index = entry.Index
	r.show()
	return applied, false, err
}

// show publishes the values that are read without the lock.
func (r *Replicated) show() {
	if s := r.machine.state.settings; s != r.limits.Load() {
		r.limits.Store(s)
	}
	if a := r.machine.Access(); a != r.access.Load() {
		r.access.Store(a)
	}
	r.units.Store(r.machine.Units())
}

// Limits returns the replicated settings as applied on this node, nil before bootstrap. They are shared
// and must not be changed.
func (r *Replicated) Limits() *wire.Settings { return r.limits.Load() }

// Access is [Machine.Access]. It takes no lock.
func (r *Replicated) Access() *Access { return cmp.Or(r.access.Load(), noAccess) }

// Units is [Machine.Units]. It takes no lock.
func (r *Replicated) Units() uint64 { return r.units.Load() }

// Near reports whether the state may have no room for so many more units, in which case the caller must
// ask [Machine.Exhausted]. It takes no lock.
func (r *Replicated) Near(units uint64) bool {
	limits := r.limits.Load()
	return limits != nil && r.units.Load()+units+operatorUnits > limits.MaxStateBytes
}

// Recycle is [Machine.Recycle]. Only the goroutine that applies entries may call it.
func (r *Replicated) Recycle(last *Applied) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machine.Recycle(last)
}

// Snapshot forks the state in constant time. It fails once the state is frozen, because the snapshot
// would claim to include entries that were not applied.
func (r *Replicated) Snapshot() (raft.FSMSnapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen != nil {
		return nil, r.frozen
	}
	return &image{r.machine.Fork()}, nil
}

// Restore replaces the state with a snapshot. A snapshot that is refused leaves the state as it was; one
// of a newer feature level freezes it.
func (r *Replicated) Restore(snapshot io.ReadCloser) error {
	defer snapshot.Close()
	machine, err := Restore(snapshot, r.level)
	halting, err := r.replace(machine, err)
	if halting {
		r.halt(err)
	}
	return err
}

func (r *Replicated) replace(machine *Machine, err error) (halting bool, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen != nil {
		return false, r.frozen
	}
	if errors.Is(err, ErrUpgrade) {
		r.frozen = err
		return true, err
	}
	if err == nil {
		r.machine = machine
		r.show()
	}
	return false, err
}

// View calls fn with the state, which does not change during the call. fn must be short and must not
// keep the machine.
func (r *Replicated) View(fn func(*Machine)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	fn(r.machine)
}

// Fork returns a copy of the state in constant time, for long reads.
func (r *Replicated) Fork() *Machine {
	r.mu.Lock() // forking changes the tables of both sides
	defer r.mu.Unlock()
	return r.machine.Fork()
}

// Ahead returns a copy of the state with the entries of rest applied, and the index of the last entry
// that it includes. rest is called with the index of the state. The state itself does not change. Ahead
// returns ErrUpgrade or an error of rest.
func (r *Replicated) Ahead(rest func(after uint64) iter.Seq2[*raft.Log, error]) (m *Machine, index uint64, err error) {
	m = r.Fork()
	for entry, err := range rest(m.state.index) {
		if err != nil {
			return nil, 0, err
		}
		if entry.Type == raft.LogCommand {
			if _, err = m.Apply(entry.Data); errors.Is(err, ErrUpgrade) {
				return nil, 0, fmt.Errorf("log entry %d: %w", entry.Index, err)
			}
		}
		m.state.index = entry.Index
	}
	return m, m.state.index, nil
}

// AppliedIndex returns the raft index of the last entry that the state includes.
func (r *Replicated) AppliedIndex() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.machine.state.index
}

// image is a snapshot of the state that is being written.
type image struct{ machine *Machine }

// Persist writes the snapshot while the machine keeps applying.
func (i *image) Persist(sink raft.SnapshotSink) error {
	if err := i.machine.WriteSnapshot(sink); err != nil {
		_ = sink.Cancel() // the first error is the one to report
		return err
	}
	return sink.Close()
}

// Release does nothing: the fork becomes garbage when raft drops it.
func (i *image) Release() {}
