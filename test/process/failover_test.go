package process_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
)

// leaderLoss is one way to lose a leader, with bounds for a connected client's time from the loss to its next
// grant.
type leaderLoss struct {
	name string
	// lose removes the leader. The function that it returns brings it back once another node leads.
	lose func(c *process.Cluster, leader string) (back func())
	// apart requires that each node has its own network namespace.
	apart bool
	// median and worst are the bounds of the long version, which needs a quiet machine. The short version
	// only requires that no wait exceeds lenient.
	median, worst, lenient time.Duration
}

// silentMedian bounds the median if only raft's timeouts notice the loss. Each follower waits for 0.5 to 1 s. The
// first one's pre-vote is refused by the other, which still waits, and the other's by the first one if that has
// the longer log. Then the first one tries again after another 0.5 to 1 s. So either about 0.9 or about 1.5 s is
// typical, depending on which log is longer, and the median of twenty rounds may be close to either.
const silentMedian = 2 * time.Second

var leaderLosses = []leaderLoss{{
	name:   "killed",
	lose:   func(c *process.Cluster, leader string) func() { return end(c, leader, syscall.SIGKILL) },
	median: 150 * time.Millisecond, worst: time.Second, lenient: 5 * time.Second,
}, {
	name: "stopped",
	lose: func(c *process.Cluster, leader string) func() {
		c.Stop(leader)
		return func() { c.Continue(leader) }
	},
	median: silentMedian, worst: shortestTTL, lenient: 10 * time.Second,
}, {
	name: "cut off",
	lose: func(c *process.Cluster, leader string) func() {
		return c.Isolate(leader, append(c.Others(leader), process.Clients)...)
	},
	apart:  true,
	median: silentMedian, worst: shortestTTL, lenient: 10 * time.Second,
}, {
	name:   "cut off from the nodes",
	lose:   func(c *process.Cluster, leader string) func() { return c.Isolate(leader, c.Others(leader)...) },
	apart:  true,
	median: silentMedian, worst: shortestTTL, lenient: 10 * time.Second,
}, {
	name:   "ended well",
	lose:   func(c *process.Cluster, leader string) func() { return end(c, leader, syscall.SIGTERM) },
	median: 100 * time.Millisecond, worst: shortestTTL, lenient: 5 * time.Second,
}}

// end ends a process, without waiting for it.
func end(c *process.Cluster, id string, sig syscall.Signal) (back func()) {
	c.Signal(sig, id)
	return func() { c.Ended(id); c.Restart(id) }
}

var errTooFew = errors.New("there were too few")

// TestFailover measures the cost of losing a leader. On a quiet machine, with the strict bounds and twenty
// rounds of each:
//
//	QUORUMLOCK_CHECK=1 go test ./test/process -run '^TestFailover$' -v
func TestFailover(t *testing.T) {
	rounds, strict := 3, os.Getenv("QUORUMLOCK_CHECK") == "1"
	if strict {
		rounds = 20
	}
	for _, loss := range leaderLosses {
		t.Run(loss.name, func(t *testing.T) {
			if !strict {
				t.Parallel()
			}
			c := process.StartWith(t, programs, process.Options{Nodes: 3, Apart: loss.apart})
			f := openShortest(t, c)
			var outages []time.Duration
			for range rounds {
				outages = append(outages, outageOf(t, c, loss))
				f.kept(t, loss.name)
			}
			slices.Sort(outages)
			median, worst := outages[len(outages)/2], outages[len(outages)-1]
			t.Logf("%s: median %v, maximum %v of %d rounds", loss.name, median.Round(time.Millisecond), worst.Round(time.Millisecond), rounds)
			if worst > loss.lenient || strict && (median > loss.median || worst > loss.worst) {
				t.Errorf("%s: median %v, maximum %v; want %v and %v", loss.name, median, worst, loss.median, loss.worst)
			}
		})
	}
}

// outageOf loses the leader once, while a client continuously acquires and releases.
func outageOf(t *testing.T, c *process.Cluster, loss leaderLoss) time.Duration {
	t.Helper()
	c.AwaitCaughtUp()
	cl := c.NewClient()
	g := &grants{session: open(t, cl, shortestTTL)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.keepOn(ctx, t) })
	c.Await("grants before the loss", process.WaitTimeout, func(context.Context) error { return g.since(time.Time{}, 20) })
	leader := c.Leader()
	lost := time.Now()
	back := loss.lose(c, leader)
	c.AwaitLeader(leader)
	next := time.Now()
	c.Await("grants by the next leader", process.WaitTimeout, func(context.Context) error { return g.since(next, 20) })
	cancel()
	running.Wait()
	back()
	c.AwaitAll()
	if err := g.session.Err(); err != nil {
		t.Errorf("%s: a session with a TTL of %v was lost: %v", loss.name, shortestTTL, err)
	}
	if err := g.session.Close(t.Context()); err != nil {
		t.Error(err)
	}
	_ = cl.Close()
	return g.longest(lost)
}

// grants are the times at which one session was granted a lock.
type grants struct {
	session *client.Session

	mu  sync.Mutex
	all []time.Time
}

// keepOn acquires and releases until ctx ends.
func (g *grants) keepOn(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		hold, err := g.session.Lock(ctx, "fail-over")
		if err != nil {
			if ctx.Err() == nil {
				t.Error("lock: ", err)
			}
			return
		}
		g.mu.Lock()
		g.all = append(g.all, time.Now())
		g.mu.Unlock()
		if err := hold.Unlock(ctx); err != nil && ctx.Err() == nil {
			t.Error("unlock: ", err)
			return
		}
	}
}

// since returns an error unless there have been n grants since begin.
func (g *grants) since(begin time.Time, n int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.all) < n || g.all[len(g.all)-n].Before(begin) {
		return errTooFew
	}
	return nil
}

// longest returns the longest interval without a grant since from.
func (g *grants) longest(from time.Time) (gap time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.all {
		if at.Before(from) {
			continue
		}
		gap, from = max(gap, at.Sub(from)), at
	}
	return gap
}
