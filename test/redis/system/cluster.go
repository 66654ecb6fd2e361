package system

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/test/ports"
	"github.com/quorumlock/quorumlock/test/process"
)

// nodes is the number of nodes of a cluster.
const nodes = 3

// Cluster is three nodes. Its entries are a follower, and a balancer in front of all nodes.
type Cluster struct {
	*process.Cluster
	t        testing.TB
	addrs    map[string]string // of the Redis ports, by node
	follower string
	balancer *Balancer
}

// StartCluster starts nodes n1 to n3 with a Redis port each. flags are more flags of single nodes. They end with the
// test.
func StartCluster(t testing.TB, programs process.Programs, flags map[string][]string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, addrs: map[string]string{}}
	own := map[string][]string{}
	addrs := ports.For(t, nodes)
	for i, addr := range addrs {
		id := fmt.Sprintf("n%d", i+1)
		c.addrs[id], own[id] = addr, append([]string{"--redis-addr", addr}, flags[id]...)
	}
	c.Cluster = process.StartWith(t, programs, process.Options{Nodes: nodes, NodeFlags: own})
	c.follower = c.Others(c.Leader())[0]
	c.balancer = Balance(t, addrs...)
	return c
}

// Entries returns the follower and the balancer.
func (c *Cluster) Entries() [2]Entry {
	return [2]Entry{{"follower", c.addrs[c.follower]}, {"balancer", c.balancer.Addr}}
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return slices.Sorted(maps.Values(c.addrs)) }

// Interrupt restarts the follower and breaks the balancer's connections.
func (c *Cluster) Interrupt() {
	c.t.Helper()
	c.Kill9(c.follower)
	c.balancer.Interrupt()
	c.Restart(c.follower)
	c.AwaitAll()
}

// Fail kills the leader with SIGKILL. It returns once another node leads, while the killed one is still down.
func (c *Cluster) Fail() {
	c.t.Helper()
	if c.Leader() == c.follower { // by an election since the start
		to := admin.New(c.Client())
		if _, err := to.TransferLeadership(c.t.Context(), "", admin.By{Reason: "the entry must be a follower"}); err != nil {
			c.t.Fatal(err)
		}
		c.AwaitLeader(c.follower)
	}
	leader := c.Leader()
	c.Kill9(leader)
	c.AwaitLeader(leader)
}

// Recover restarts the killed nodes.
func (c *Cluster) Recover() {
	c.t.Helper()
	for _, id := range c.IDs() {
		if !c.Running(id) {
			c.Restart(id)
		}
	}
	c.AwaitAll()
}
