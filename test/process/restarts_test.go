package process_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
)

// quickRestart bounds the time without grants after nodes were killed and restarted immediately, on a quiet
// machine. The short version allows for a busy one.
const quickRestart = 3 * time.Second

// restarted is which nodes are killed and restarted, and what happens to the third one in the meantime.
type restarted struct {
	name  string
	long  bool
	count int
	third func(c *process.Cluster, id string) (back func()) // nil means nothing
}

// TestRestartsAreFast kills nodes and restarts them. A start waits at most half a second for members that do
// not respond. On a quiet machine:
//
//	QUORUMLOCK_CHECK=1 go test ./test/process -run '^TestRestartsAreFast$' -v
func TestRestartsAreFast(t *testing.T) {
	beside(t)
	for _, r := range []restarted{
		{name: "all", count: 3},
		{name: "two beside a frozen third", count: 2, third: func(c *process.Cluster, id string) func() {
			c.Stop(id)
			return func() { c.Continue(id) }
		}},
		{name: "one", long: true, count: 1},
		{name: "two", long: true, count: 2},
		{name: "two beside a dead third", long: true, count: 2, third: func(c *process.Cluster, id string) func() {
			c.Kill9(id)
			return func() { c.Restart(id) }
		}},
	} {
		t.Run(r.name, func(t *testing.T) {
			if r.long && !full {
				t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
			}
			beside(t)
			rounds, bound := 1, quickRestart+2*busy
			if full {
				rounds, bound = 10, quickRestart
			}
			c := process.Start(t, programs, 3)
			var outages []time.Duration
			for range rounds {
				outages = append(outages, r.outage(t, c))
			}
			t.Logf("%s: at most %v of %d rounds without a grant", r.name, slices.Max(outages).Round(time.Millisecond), rounds)
			if longest := slices.Max(outages); longest > bound {
				t.Errorf("%s: %v without a grant, more than %v", r.name, longest, bound)
			}
		})
	}
}

// outage restarts the leader and others once and returns the longest time without a grant.
func (r restarted) outage(t *testing.T, c *process.Cluster) time.Duration {
	t.Helper()
	c.AwaitCaughtUp()
	leader := c.Leader()
	ids := append([]string{leader}, c.Others(leader)...)
	cl := c.NewClient()
	g := &grants{session: open(t, cl, loadTTL)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.keepOn(ctx, t) })
	c.Await("grants before", process.WaitTimeout, func(context.Context) error { return g.since(time.Time{}, 20) })
	back := func() {}
	if r.third != nil {
		back = r.third(c, ids[2])
	}
	killed := time.Now()
	c.Kill9(ids[:r.count]...)
	c.Restart(ids[:r.count]...)
	next := time.Now()
	c.Await("grants afterwards", process.WaitTimeout, func(context.Context) error { return g.since(next, 20) })
	cancel()
	running.Wait()
	back()
	c.AwaitAll()
	if err := g.session.Close(t.Context()); err != nil {
		t.Error(err)
	}
	_ = cl.Close()
	return g.longest(killed)
}
