package process_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
)

// afterFault is how many grants prove that the cluster serves again.
const afterFault = 200

// nothingKept are the metrics of a cluster that nobody uses any more: on every node, since
// all of them have applied the same.
var nothingKept = map[string]float64{
	"quorumlock_sessions": 0, "quorumlock_locks": 0, "quorumlock_holds": 0, "quorumlock_waiters": 0,
}

// outage is the longest time without a grant since a fault. It is checked against a bound
// that leaves room for a busy machine, and logged.
func (l *load) outage(fault time.Duration, what string, bound time.Duration) {
	l.t.Helper()
	gap := l.ledger.gap(fault)
	l.t.Logf("%s: %v without a grant", what, gap.Round(time.Millisecond))
	if gap > bound {
		l.t.Errorf("%s: %v without a grant, more than %v", what, gap, bound)
	}
}

func TestKillLeader(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	old := c.Leader()
	fault := l.ledger.now()
	c.Kill9(old)
	t.Logf("%s led, now %s", old, c.AwaitLeader(old))
	l.awaitGrants(l.ledger.now(), afterFault)
	c.Restart(old)
	c.AwaitAll()
	l.awaitGrants(l.ledger.now(), afterFault)
	l.outage(fault, "kill -9 of the leader", 8*time.Second)
	l.finish()
	c.AwaitMetrics("nothing kept", c.IDs(), nothingKept)
}

func TestKillFollower(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	leader := c.Leader()
	follower := c.Others(leader)[0]
	fault := l.ledger.now()
	c.Kill9(follower)
	l.awaitGrants(l.ledger.now(), afterFault)
	c.Restart(follower)
	c.AwaitAll()
	l.awaitGrants(l.ledger.now(), afterFault)
	l.outage(fault, "kill -9 of a follower", 4*time.Second)
	l.finish()
	c.AwaitMetrics("nothing kept", c.IDs(), nothingKept)
}

func TestKillAll(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	fault := l.ledger.now()
	c.Kill9(c.IDs()...)
	c.Restart(c.IDs()...)
	l.awaitGrants(l.ledger.now(), afterFault)
	l.outage(fault, "kill -9 of all", 10*time.Second)
	c.AwaitAll()
	l.finish()
	c.AwaitMetrics("nothing kept", c.IDs(), nothingKept)
}
