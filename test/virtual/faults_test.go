package virtual_test

import (
	"testing"
	"time"
)

// rounds is how often each cluster is hurt.
const rounds = 3

// hurt runs a cluster under load and hurts it a few times in a way that ends with its
// round. Clients on the frail machine are cut off meanwhile, from all nodes or from all
// but the leader.
func hurt(t *testing.T, seed uint64, prepare func(*cluster), fault func(c *cluster, leader *node)) counts {
	c := newCluster(t, seed, 3, nil)
	if prepare != nil {
		prepare(c)
		c.calm()
	}
	c.leader()
	l := startLoad(c, seed)
	for round := range rounds {
		pause(c.between(200*time.Millisecond, 1500*time.Millisecond))
		leader := c.leader()
		switch round % 3 {
		case 1:
			c.isolate(host(3), c.nodes...)
		case 2:
			c.isolate(host(3), c.except(leader)...)
		}
		fault(c, leader)
		c.startAll()
		if round > 0 {
			pause(c.between(0, frailTTL+2*time.Second))
		}
		c.calm()
		c.leader()
		l.checkLine("a fault")
	}
	l.finish()
	return judge(c, l.ledger)
}

// enough fails a test whose runs did too little to prove anything.
func enough(t *testing.T, n counts, leaders int) {
	t.Helper()
	if *onlySeed != 0 || t.Failed() {
		return
	}
	if n.operations < 200*n.clusters || n.grants < 80*n.clusters || n.timeouts < n.clusters || n.cancels < n.clusters ||
		n.expiries < n.clusters || n.leaders < leaders*n.clusters {
		t.Errorf("too little happened: %v", n)
	}
}

func TestLeaderKilled(t *testing.T) {
	enough(t, eachSeed(t, 10, func(t *testing.T, seed uint64) counts {
		return hurt(t, seed, nil, func(c *cluster, leader *node) {
			leader.crash()
			c.successor(leader)
			pause(c.between(0, 2*time.Second))
		})
	}), rounds)
}

func TestLeaderPartitioned(t *testing.T) {
	enough(t, eachSeed(t, 10, func(t *testing.T, seed uint64) counts {
		return hurt(t, seed, nil, func(c *cluster, leader *node) {
			c.isolate(leader.id, c.nodes...)
			c.successor(leader)
			pause(c.between(0, 2*time.Second))
		})
	}), rounds)
}

func TestLeaderCannotSend(t *testing.T) {
	enough(t, eachSeed(t, 10, func(t *testing.T, seed uint64) counts {
		return hurt(t, seed, nil, func(c *cluster, leader *node) {
			for _, o := range c.except(leader) {
				c.net.Cut(leader.id, o.id)
			}
			c.successor(leader)
			pause(c.between(0, 2*time.Second))
		})
	}), rounds)
}

func TestLeaderCannotReceive(t *testing.T) {
	enough(t, eachSeed(t, 10, func(t *testing.T, seed uint64) counts {
		return hurt(t, seed, nil, func(c *cluster, leader *node) {
			for _, o := range c.except(leader) {
				c.net.Cut(o.id, leader.id)
			}
			c.successor(leader)
			pause(c.between(0, 2*time.Second))
		})
	}), rounds)
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
	enough(t, eachSeed(t, 10, func(t *testing.T, seed uint64) counts {
		return hurt(t, seed, nil, func(c *cluster, _ *node) {
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
		})
	}), rounds)
}

func TestLossyAndSlowLinks(t *testing.T) {
	enough(t, eachSeed(t, 10, func(t *testing.T, seed uint64) counts {
		bad := func(c *cluster) {
			c.delay = c.between(time.Millisecond, 30*time.Millisecond)
			c.loss = 0.01 + 0.04*c.random.Float64()
		}
		return hurt(t, seed, bad, func(c *cluster, leader *node) {
			leader.crash()
			pause(c.between(time.Second, 3*time.Second))
		})
	}), 1)
}
