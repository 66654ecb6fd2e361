package process_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/workload"
)

const (
	// afterFault is how many grants prove that the cluster serves again.
	afterFault = 50
	// loadTTL is much longer than a failover, so that a lost session indicates a defect and not a slow
	// machine.
	loadTTL = 20 * time.Second
)

// load is the load on a cluster under faults, by clients that must not lose anything: contended locks, long
// holds, and a queue behind one of them.
type load struct {
	*process.Trial
	t *testing.T
}

// startLoad starts the load and returns once it is well in progress.
func startLoad(t *testing.T, c *process.Cluster) *load {
	t.Helper()
	l := &load{t: t, Trial: process.Try(t, c, 1, workload.Options{
		Parts: []workload.Part{workload.Line, workload.Lone, workload.Hot}, TTL: loadTTL, Pace: 20 * time.Millisecond,
	})}
	l.AwaitGrants(0, afterFault)
	return l
}

func open(t *testing.T, cl *client.Client, ttl time.Duration) *client.Session {
	t.Helper()
	s, err := cl.NewSession(t.Context(), client.SessionOptions{TTL: ttl})
	if err != nil {
		t.Fatal("open a session: ", err)
	}
	return s
}

// outage logs the longest time without a grant since a fault, and checks it against a bound that allows for a
// busy machine.
func (l *load) outage(fault time.Duration, what string, bound time.Duration) {
	l.t.Helper()
	gap := l.Outage(fault)
	l.t.Logf("%s: %v without a grant", what, gap.Round(time.Millisecond))
	if gap > bound {
		l.t.Errorf("%s: %v without a grant, more than %v", what, gap, bound)
	}
}

// finish ends the load and checks everything.
func (l *load) finish() {
	l.t.Helper()
	l.Recover()
	l.t.Log(l.Finish())
	l.t.Log(l.Judge())
}

func TestKillLeader(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	old := c.Leader()
	fault := l.Log.Now()
	c.Kill9(old)
	t.Logf("%s led, now %s", old, c.AwaitLeader(old))
	l.AwaitGrants(l.Log.Now(), afterFault)
	c.Restart(old)
	c.AwaitAll()
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(fault, "kill -9 of the leader", 8*time.Second)
	l.finish()
}

func TestKillFollower(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	leader := c.Leader()
	follower := c.Others(leader)[0]
	fault := l.Log.Now()
	c.Kill9(follower)
	l.AwaitGrants(l.Log.Now(), afterFault)
	c.Restart(follower)
	c.AwaitAll()
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(fault, "kill -9 of a follower", 4*time.Second)
	l.finish()
}

func TestKillAll(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	fault := l.Log.Now()
	c.Kill9(c.IDs()...)
	c.Restart(c.IDs()...)
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(fault, "kill -9 of all", 10*time.Second)
	c.AwaitAll()
	l.finish()
}
