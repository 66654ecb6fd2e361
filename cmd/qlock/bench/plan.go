package bench

import (
	"errors"
	"fmt"
	"time"
)

// Workload is what the sessions do.
type Workload string

// The workloads.
const (
	// Pairs has each session lock and unlock its own lock.
	Pairs Workload = "pairs"
	// Hot has all sessions compete for one lock.
	Hot Workload = "hot"
	// Readers has all sessions read, and sometimes write, under a few locks.
	Readers Workload = "readers"
	// Idle keeps sessions open that only send heartbeats.
	Idle Workload = "idle"
	// Held keeps many locks held without using them.
	Held Workload = "held"
	// Failover is Pairs while something else makes the cluster lose its leader.
	Failover Workload = "failover"
)

// Bounds of a plan.
const (
	maxSessions    = 1_000_000
	maxConnections = 50_000
	maxLocks       = 10_000_000
	maxDuration    = 24 * time.Hour
	maxOperations  = 1_000_000_000 // of an open loop
)

// Plan describes one measurement.
type Plan struct {
	Workload Workload
	// Sessions are spread over Connections, of which there are at most as many.
	Sessions    int
	Connections int
	// Locks is the total number of locks of Readers and Held. The other workloads determine it themselves.
	Locks int
	// Writes is the share of writes among the operations of Readers, in percent.
	Writes int
	// Duration is the length of the measured window, which starts after WarmUp.
	Duration time.Duration
	WarmUp   time.Duration
	// Hold is how long a lock is held before it is unlocked.
	Hold time.Duration
	// CachedIdle makes locks cached and is how long a session keeps an unlocked one; 0 means that they are not cached.
	CachedIdle time.Duration
	// Rate is the number of operations due per second, over all sessions, in an open loop. 0 means a closed
	// loop.
	Rate float64
	// Random gives the operations of an open loop exponential gaps, as if they arrived independently;
	// otherwise the gaps are even.
	Random bool
	// Seed seeds all random choices.
	Seed uint64
	// Prefix starts the names of all locks, without the slash that follows it.
	Prefix string
	// TTL is the TTL of the sessions; 0 means the cluster's default.
	TTL time.Duration
	// Grace bounds opening one session, the additional time for operations after the window, and closing
	// everything.
	Grace time.Duration
}

// ErrPlan is returned for a plan that cannot be carried out.
var ErrPlan = errors.New("cannot measure that")

// Check returns ErrPlan if the plan cannot be carried out.
func (p *Plan) Check() error {
	operations := p.Rate * (p.WarmUp + p.Duration).Seconds()
	for _, c := range []struct {
		wrong bool
		what  string
	}{
		{p.Sessions < 1 || p.Sessions > maxSessions, fmt.Sprintf("%d sessions: give 1 to %d", p.Sessions, maxSessions)},
		{p.Connections < 1 || p.Connections > maxConnections, fmt.Sprintf("%d connections: give 1 to %d", p.Connections, maxConnections)},
		{p.Connections > p.Sessions, fmt.Sprintf("%d connections for %d sessions: a connection needs a session", p.Connections, p.Sessions)},
		{p.Locks < 1 || p.Locks > maxLocks, fmt.Sprintf("%d locks: give 1 to %d", p.Locks, maxLocks)},
		{p.Writes < 0 || p.Writes > 100, fmt.Sprintf("%d%% writes: give 0 to 100", p.Writes)},
		{p.Duration <= 0 || p.Duration > maxDuration, fmt.Sprintf("a duration of %v: give more than 0 and at most %v", p.Duration, maxDuration)},
		{p.WarmUp < 0 || p.WarmUp > maxDuration, fmt.Sprintf("a warm-up of %v: give 0 to %v", p.WarmUp, maxDuration)},
		{p.Hold < 0 || p.Hold > maxDuration, fmt.Sprintf("to hold each lock for %v: give 0 to %v", p.Hold, maxDuration)},
		{p.Hold > 0 && p.idle(), fmt.Sprintf("how long %s holds a lock: it does so to the end, or not at all", p.Workload)},
		{p.CachedIdle < 0, fmt.Sprintf("an idle time of %v: give more than 0", p.CachedIdle)},
		{p.CachedIdle > 0 && !p.caches(), fmt.Sprintf("cached locks for %s: only exclusive locks that are locked and unlocked can be cached, as in %s, %s and %s", p.Workload, Pairs, Hot, Failover)},
		{!(p.Rate >= 0), fmt.Sprintf("a rate of %v: give more than 0", p.Rate)},
		{operations > maxOperations, fmt.Sprintf("%.0f operations: give a rate and a duration that make at most %d", operations, maxOperations)},
		{p.Rate > 0 && p.idle(), fmt.Sprintf("a rate for %s, which does nothing", p.Workload)},
		{p.Prefix == "", "no prefix: locks need names"},
		{p.Grace <= 0, fmt.Sprintf("a grace period of %v", p.Grace)},
	} {
		if c.wrong {
			return fmt.Errorf("%w: %s", ErrPlan, c.what)
		}
	}
	return nil
}

// idle reports whether the workload keeps sessions or locks instead of locking and unlocking.
func (p *Plan) idle() bool { return p.Workload == Idle || p.Workload == Held }

// caches reports whether the locks of the workload can be cached.
func (p *Plan) caches() bool { return !p.idle() && p.Workload != Readers }

// locks returns the total number of locks.
func (p *Plan) locks() int {
	switch p.Workload {
	case Pairs, Failover:
		return p.Sessions
	case Hot:
		return 1
	case Idle:
		return 0
	}
	return p.Locks
}

// name returns the name of the lock with that number.
func (p *Plan) name(number int) string {
	return fmt.Sprintf("%s/%s/%d", p.Prefix, p.Workload, number)
}

// unit returns what is counted, in the plural.
func (p *Plan) unit() string {
	switch p.Workload {
	case Hot:
		return "hand-overs"
	case Idle:
		return "sessions"
	case Held:
		return "locks"
	}
	return "pairs"
}
