package virtual_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/test/workload"
)

// story is a cluster under load with a few faults.
type story struct {
	nodes   int // 3 by default
	rounds  int // 2 by default
	tune    func(i int, cfg *server.Config)
	prepare func(*cluster)
	load    workload.Options
	// fault injects a fault that ends with its round: then all nodes are started and the network heals.
	fault func(c *cluster, leader *node)
}

// someParts returns the line, clients that suffer from faults, and three other parts in turn.
func someParts(seed uint64) []workload.Part {
	turns := []workload.Part{
		workload.Lone, workload.Hot, workload.Readers, workload.Permits, workload.Several,
		workload.Visitors, workload.Leases, workload.Waits, workload.Elections, workload.Fenced,
		workload.Cached, workload.FrailCached,
	}
	parts := []workload.Part{workload.Line, workload.Frail, workload.Dying}
	for i := range uint64(3) {
		parts = append(parts, turns[(seed+3*i)%uint64(len(turns))])
	}
	return parts
}

// tell runs a story. In some rounds, clients on the frail machine are cut off from all nodes, or from all but
// the leader.
func (s story) tell(t *testing.T, seed uint64) counts {
	c := newCluster(t, seed, cmp.Or(s.nodes, 3), s.tune)
	if s.prepare != nil {
		s.prepare(c)
	}
	if s.load.Parts == nil {
		s.load.Parts = someParts(seed)
	}
	s.load.Pace = cmp.Or(s.load.Pace, usualPace)
	c.leader()
	c.startLoad(seed, s.load)
	for round := range cmp.Or(s.rounds, 2) {
		pause(c.between(200*time.Millisecond, time.Second))
		leader := c.leader()
		for _, machine := range []string{workload.CutClient, workload.FrailCachedClient(0)} {
			switch (round + int(seed)) % 3 {
			case 1:
				c.isolate(machine, c.nodes...)
			case 2:
				c.isolate(machine, c.except(leader)...)
			}
		}
		s.fault(c, leader)
		c.startAll()
		if round == 0 {
			pause(c.between(0, frailTTL+2*time.Second))
		}
		c.calm()
		c.leader()
		c.run.Check("a fault")
	}
	did := c.run.Finish()
	if lost := did[workload.LostUpdates]; lost > 0 && !s.load.Unguarded {
		t.Errorf("%d updates were lost by clients that ran", lost)
	}
	return c.verdict(did)
}

const (
	frailTTL = 5 * time.Second
	// usualPace is slow, to allow many clusters rather than much load.
	usualPace = 500 * time.Millisecond
)

// tellEach runs a story with many seeds and requires a minimum of events, on average.
func (s story) tellEach(t *testing.T, n uint64, least counts) {
	t.Helper()
	enough(t, eachSeed(t, n, s.tell), least)
}

// usualLeast returns the minimum for a story of two rounds, each of which ends a leader.
func usualLeast(leaders int) counts {
	return counts{operations: 150, workload.Grants: 40, contended: 10, expiries: 1, leaderChanges: leaders}
}

// effect must be called before a fault, and the function that it returns afterwards. That function requires
// that a number has grown.
func (c *cluster) effect(what string, number func() int) (felt func()) {
	before := number()
	return func() {
		c.t.Helper()
		if number() <= before {
			c.t.Errorf("the fault had no effect: %s", what)
		}
	}
}

func (c *cluster) held() int { return c.net.Stats().Held }

// goesOn requires that the load is granted locks, whatever the current fault.
func (c *cluster) goesOn() {
	c.t.Helper()
	before := c.run.Did(workload.Grants)
	if !within(10*time.Second, func() bool { return c.run.Did(workload.Grants) >= before+10 }) {
		c.t.Errorf("only %d grants in ten seconds", c.run.Did(workload.Grants)-before)
	}
}

func TestLeaderKilled(t *testing.T) {
	story{fault: func(c *cluster, leader *node) {
		leader.crash()
		c.successor(leader)
		pause(c.between(0, 2*time.Second))
	}}.tellEach(t, 20, usualLeast(2))
}

func TestLeaderPartitioned(t *testing.T) {
	story{fault: func(c *cluster, leader *node) {
		defer c.effect("segments held back", c.held)()
		c.isolate(leader.id, c.nodes...)
		c.successor(leader)
		pause(c.between(0, 2*time.Second))
	}}.tellEach(t, 16, usualLeast(2))
}

func TestLeaderCannotSend(t *testing.T) {
	story{fault: func(c *cluster, leader *node) {
		defer c.effect("segments held back", c.held)()
		for _, o := range c.except(leader) {
			c.net.Cut(leader.id, o.id)
		}
		c.successor(leader)
		pause(c.between(0, 2*time.Second))
	}}.tellEach(t, 14, usualLeast(2))
}

func TestLeaderCannotReceive(t *testing.T) {
	story{fault: func(c *cluster, leader *node) {
		defer c.effect("segments held back", c.held)()
		for _, o := range c.except(leader) {
			c.net.Cut(o.id, leader.id)
		}
		c.successor(leader)
		pause(c.between(0, 2*time.Second))
	}}.tellEach(t, 14, usualLeast(2))
}

// roll restarts the nodes gracefully, one after the other.
func (c *cluster) roll() {
	for _, n := range c.nodes {
		n.stop()
		n.start()
		c.leader()
		pause(c.between(time.Second, 2*time.Second))
	}
}

func TestAllRestart(t *testing.T) {
	story{fault: func(c *cluster, _ *node) {
		if c.random.IntN(3) == 0 {
			c.roll()
			return
		}
		for _, n := range c.nodes {
			n.crash()
		}
		pause(c.between(0, time.Second))
		c.startAll()
		c.leader()
	}}.tellEach(t, 16, usualLeast(2))
}

func TestLossyAndSlowLinks(t *testing.T) {
	story{
		prepare: func(c *cluster) {
			c.net.Weather(simnet.Weather{Delay: c.between(time.Millisecond, 30*time.Millisecond), Loss: 0.01 + 0.04*c.random.Float64()})
		},
		fault: func(c *cluster, leader *node) {
			leader.crash()
			pause(c.between(time.Second, 3*time.Second))
			// Few segments are sent without a leader, so count those lost since the cluster started.
			if c.net.Stats().Lost == 0 {
				c.t.Error("the fault had no effect: no segment was lost")
			}
		},
	}.tellEach(t, 14, usualLeast(1))
}
