package bench

import (
	"errors"
	"fmt"
	"time"
)

// Workload says what the sessions do.
type Workload string

// The workloads.
const (
	// Pairs: each session locks and unlocks a lock of its own.
	Pairs Workload = "pairs"
	// Hot: all sessions want the same lock.
	Hot Workload = "hot"
	// Readers: all sessions read, and now and then write, under a few locks.
	Readers Workload = "readers"
	// Idle: sessions are open and do nothing but stay alive.
	Idle Workload = "idle"
	// Held: sessions hold many locks and do nothing with them.
	Held Workload = "held"
	// Failover: Pairs, while somebody else makes the cluster lose its leader.
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

// Plan is one measurement.
type Plan struct {
	Workload Workload
	// Sessions are spread over Connections, which are at most as many.
	Sessions    int
	Connections int
	// Locks are those of Readers and Held together. The other workloads have their own.
	Locks int
	// Writes are the operations of Readers that write, in percent.
	Writes int
	// Duration is how long is measured, after WarmUp.
	Duration time.Duration
	WarmUp   time.Duration
	// Hold is how long a lock is held before it is unlocked.
	Hold time.Duration
	// Rate is how many operations are due each second, over all sessions: an open loop.
	// 0 is a closed loop.
	Rate float64
	// Random spreads the operations of an open loop as if each came by itself, with
	// exponential gaps; otherwise the gaps are even.
	Random bool
	// Seed decides over all that is random.
	Seed uint64
	// Prefix begins the names of all locks, without the slash behind it.
	Prefix string
	// TTL of the sessions; 0 is the cluster's default.
	TTL time.Duration
	// Patience bounds the opening of one session, the time that is left to operations
	// after the end, and the closing of everything.
	Patience time.Duration
}

// ErrPlan is returned for a plan that cannot be carried out.
var ErrPlan = errors.New("cannot measure that")

// Check refuses what cannot be carried out, with ErrPlan.
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
		{p.Hold > 0 && p.parked(), fmt.Sprintf("how long %s holds a lock: it does so to the end, or not at all", p.Workload)},
		{!(p.Rate >= 0), fmt.Sprintf("a rate of %v: give more than 0", p.Rate)},
		{operations > maxOperations, fmt.Sprintf("%.0f operations: give a rate and a duration that make at most %d", operations, maxOperations)},
		{p.Rate > 0 && p.parked(), fmt.Sprintf("a rate for %s, which does nothing", p.Workload)},
		{p.Prefix == "", "no prefix: locks need names"},
		{p.Patience <= 0, fmt.Sprintf("a patience of %v", p.Patience)},
	} {
		if c.wrong {
			return fmt.Errorf("%w: %s", ErrPlan, c.what)
		}
	}
	return nil
}

// parked tells workloads that only stay from those that lock and unlock.
func (p *Plan) parked() bool { return p.Workload == Idle || p.Workload == Held }

// locks is how many locks there are in all.
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

// name is that of the lock with this number.
func (p *Plan) name(number int) string {
	return fmt.Sprintf("%s/%s/%d", p.Prefix, p.Workload, number)
}

// unit is what is counted, in the plural.
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
