package virtual_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/simnet"
)

// part partitions two groups of nodes.
func (c *cluster) part(these, those []*node) {
	for _, n := range these {
		c.isolate(n.id, those...)
	}
}

// shuffled returns the nodes in random order, except the given ones.
func (c *cluster) shuffled(without ...*node) []*node {
	nodes := c.except(without...)
	c.random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes
}

// TestBridge lets one node of five reach all others, which form two halves that do not reach each other. Each
// half is a majority together with the bridge, so there is always a leader, and there may be no second one.
func TestBridge(t *testing.T) {
	story{nodes: 5, fault: func(c *cluster, leader *node) {
		defer c.effect("segments held back", c.held)()
		bridge := c.shuffled(leader)[0]
		ends := c.shuffled(bridge)
		c.part(ends[:2], ends[2:])
		pause(c.between(time.Second, 3*time.Second))
		c.goesOn()
		if c.random.IntN(2) == 0 {
			leader.crash()
			c.successor(leader)
			c.goesOn()
		}
	}}.tellEach(t, 10, usualLeast(0))
}

// TestMovingPartition isolates one node after the other, for times about as long as an election.
func TestMovingPartition(t *testing.T) {
	story{rounds: 1, fault: func(c *cluster, _ *node) {
		defer c.effect("segments held back", c.held)()
		for range 10 {
			alone := c.shuffled()[0]
			c.isolate(alone.id, c.nodes...)
			pause(c.between(50*time.Millisecond, 1200*time.Millisecond))
			c.calm()
			if c.random.IntN(2) == 0 {
				pause(c.between(0, 600*time.Millisecond))
			}
		}
	}}.tellEach(t, 14, usualLeast(1))
}

// TestLateDuplicates scatters segments and hangs existing connections: what clients give up and send again
// elsewhere arrives anyway in the end.
func TestLateDuplicates(t *testing.T) {
	story{
		prepare: func(c *cluster) {
			c.net.Weather(simnet.Weather{Delay: time.Millisecond, Scatter: c.between(5*time.Millisecond, 40*time.Millisecond)})
		},
		fault: func(c *cluster, leader *node) {
			defer c.effect("segments held back", c.held)()
			defer c.effect("segments overtaken", func() int { return c.net.Stats().Overtaken })()
			there, back := c.random.IntN(3) > 0, c.random.IntN(2) == 0
			for _, client := range c.machines() {
				if there || !back {
					c.net.Hang(client, leader.id)
				}
				if back {
					c.net.Hang(leader.id, client)
				}
			}
			pause(c.between(2*time.Second, 4*time.Second))
			c.goesOn()
			if c.random.IntN(2) == 0 {
				c.lead(c.shuffled(leader)[0])
				c.goesOn()
			}
		},
	}.tellEach(t, 28, counts{operations: 200, repeated: 1})
}
