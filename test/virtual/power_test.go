package virtual_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slower makes each disk's writes take a random time, up to most.
func (c *cluster) slower(most time.Duration, nodes ...*node) {
	for _, n := range nodes {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(c.random.Uint64(), 0))
		n.disk.slow(func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(random.Int64N(int64(most)))
		})
	}
}

// lastOnDisk returns the index of the last entry that a node has.
func (n *node) lastOnDisk() uint64 {
	last, _ := n.disk.LastIndex()
	return last
}

// crashAll cuts the power of all nodes at the same instant. Writes in progress are lost. The processes end
// concurrently: each waits for its own slow write.
func (c *cluster) crashAll() {
	for _, n := range c.nodes {
		n.disk.power(false)
	}
	var ending sync.WaitGroup
	for _, n := range c.nodes {
		ending.Go(n.crash)
	}
	ending.Wait()
}

// TestPowerLossOfASlowLeader makes the leader's disk the slowest, so that a follower has entries that the
// leader does not have, and then cuts the power of all nodes. The other follower was isolated in the
// meantime. It restarts first, together with the leader: if anything was acknowledged before the leader had
// written it, it is lost then.
func TestPowerLossOfASlowLeader(t *testing.T) {
	var ahead atomic.Int64
	story{rounds: 3, fault: func(c *cluster, leader *node) {
		others := c.shuffled(leader)
		has, lacks := others[0], others[1]
		c.slower(10*time.Millisecond, has, lacks)
		c.slower(300*time.Millisecond, leader)
		c.isolate(lacks.id, leader, has)
		pause(c.between(100*time.Millisecond, time.Second))
		if has.lastOnDisk() > leader.lastOnDisk() {
			ahead.Add(1)
		}
		c.crashAll()
		c.calm()
		c.slower(time.Millisecond, c.nodes...)
		leader.start()
		lacks.start()
		c.leader()
		pause(c.between(0, 2*time.Second))
	}}.tellEach(t, 8, usualLeast(3))
	if ahead.Load() == 0 && *onlySeed == 0 {
		t.Error("no follower was ever ahead of its leader: the writes did not overlap")
	}
}

// TestPowerLossOfAFormerLeader lets a leader lose leadership while its disk is behind, and then cuts the
// power of all nodes. While the other follower is isolated, nothing may commit, since the slow disk is needed.
// The outage must stay below ten seconds: that much of the TTL is left right before a heartbeat is due.
func TestPowerLossOfAFormerLeader(t *testing.T) {
	story{fault: func(c *cluster, leader *node) {
		others := c.shuffled(leader)
		c.slower(10*time.Millisecond, others...)
		c.slower(2*time.Second, leader)
		pause(c.between(100*time.Millisecond, time.Second))
		if c.random.IntN(2) == 0 {
			c.isolate(leader.id, others...)
			c.successor(leader)
			c.calm()
		} else {
			c.lead(others[0])
		}
		c.isolate(others[1].id, leader, others[0])
		pause(c.between(0, 2*time.Second))
		c.crashAll()
		c.calm()
		c.slower(time.Millisecond, c.nodes...)
		leader.start()
		others[1].start()
		c.leader()
		pause(c.between(0, 2*time.Second))
	}}.tellEach(t, 8, usualLeast(3))
}

// TestPowerLossOfTheOnlyNode tests a node that commits alone.
func TestPowerLossOfTheOnlyNode(t *testing.T) {
	story{nodes: 1, rounds: 3, fault: func(c *cluster, leader *node) {
		c.slower(200*time.Millisecond, leader)
		pause(c.between(100*time.Millisecond, 2*time.Second))
		c.crashAll()
		c.slower(time.Millisecond, leader)
		pause(c.between(0, time.Second))
	}}.tellEach(t, 6, counts{operations: 100})
}
