package examine

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// rest is the time between two measurements of the disk.
	rest = 10 * time.Second
	// timeout bounds the wait for a measurement.
	timeout = 2 * time.Second
)

// Config describes the node.
type Config struct {
	// DataDir is the data directory; empty if the node has none.
	DataDir string
	// Configured has the fields of the examination that come from the configuration.
	Configured *wire.Examination
	// Uncertified returns the advertised addresses that the certificate does not name; it may be nil.
	Uncertified func() []string
}

// Examiner examines the node. Its methods are safe for concurrent use.
type Examiner struct {
	cfg     Config
	clock   *clock
	outages outages
	sync    func(dir string) (took []time.Duration, err error)

	mu       sync.Mutex // guards the fields below
	measured *measurement
}

// measurement is one measurement of the disk. The fields may be read once done is closed.
type measurement struct {
	began time.Time
	done  chan struct{}
	took  []time.Duration
	err   error
}

// FreeBytes returns the free space of the file system with that directory for this user. known is false if this program
// cannot find it out.
func FreeBytes(dir string) (free uint64, known bool) {
	free, size := diskSpace(dir)
	return free, size > 0
}

// New returns an Examiner. Run must be called.
func New(cfg Config) *Examiner {
	return &Examiner{cfg: cfg, clock: newClock(time.Now()), sync: measure}
}

// Run watches the clock until ctx ends.
func (e *Examiner) Run(ctx context.Context) {
	tick := time.NewTicker(clockInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.clock.look(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// LeaderLost records that the node knows no leader, and that it last heard from one at the given time.
func (e *Examiner) LeaderLost(last time.Time) { e.outages.begin(last) }

// LeaderFound records that the node knows a leader.
func (e *Examiner) LeaderFound() { e.outages.end(time.Now()) }

// Examine returns what the node finds out. It measures the disk unless that was done within the last ten seconds, and
// waits for at most two: a disk that hangs must not hang the caller.
func (e *Examiner) Examine(ctx context.Context) *wire.Examination {
	c := e.cfg.Configured
	found := &wire.Examination{
		OpenFilesNeeded: c.GetOpenFilesNeeded(), MemoryLimitBytes: c.GetMemoryLimitBytes(), BufferLimitBytes: c.GetBufferLimitBytes(),
		HeartbeatTimeoutMs: c.GetHeartbeatTimeoutMs(), ElectionTimeoutMs: c.GetElectionTimeoutMs(),
		OpenFilesLimit: openFilesLimit(), MachineMemoryBytes: machineMemory(), ClockStepsMs: uint64(e.clock.look(time.Now()).Milliseconds()),
		LongestOutageMs: uint64(e.outages.longest(time.Now()).Milliseconds()),
	}
	if e.cfg.Uncertified != nil {
		found.UncertifiedAddrs = e.cfg.Uncertified()
	}
	if e.cfg.DataDir == "" {
		return found
	}
	found.DiskFreeBytes, found.DiskBytes = diskSpace(e.cfg.DataDir)
	m := e.measurement()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-m.done:
		m.describe(found)
	case <-timer.C:
		found.SyncError = "a sync has not returned within " + timeout.String()
	case <-ctx.Done():
		found.SyncError = "a sync has not returned in time"
	}
	return found
}

// measurement returns the one that is running or has ended recently, or a new one.
func (e *Examiner) measurement() *measurement {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.measured; m != nil {
		select {
		case <-m.done:
		default:
			return m // it may hang
		}
		if time.Since(m.began) < rest {
			return m
		}
	}
	m := &measurement{began: time.Now(), done: make(chan struct{})}
	e.measured = m
	go func() {
		defer close(m.done)
		m.took, m.err = e.sync(e.cfg.DataDir)
	}()
	return m
}
