package virtual_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestLeadershipMovesOften transfers leadership again before the previous transfer has settled.
func TestLeadershipMovesOften(t *testing.T) {
	const moves = 6
	story{rounds: 1, fault: func(c *cluster, _ *node) {
		for range moves {
			old := c.leader()
			c.lead(c.shuffled(old)[0])
			pause(c.between(0, 400*time.Millisecond))
		}
	}}.tellEach(t, 14, usualLeast(moves))
}

// TestMembersChange replaces the nodes of a cluster under load, one after the other: each change adds a node
// and removes another one, sometimes the leader.
func TestMembersChange(t *testing.T) {
	story{fault: func(c *cluster, leader *node) {
		operator := c.client("operator")
		added := c.join(operator)
		c.goesOn()
		if c.random.IntN(2) == 0 {
			c.lead(added)
		}
		gone := c.shuffled(added)[0]
		c.leave(operator, gone)
		c.goesOn()
	}}.tellEach(t, 10, counts{operations: 200})
}

// join adds a node and waits until it is a voter.
func (c *cluster) join(operator *client.Client) *node {
	c.t.Helper()
	i := len(c.peers)
	p := server.Peer{ID: fmt.Sprintf("n%d", i+1), Addr: fmt.Sprintf("n%d:7401", i+1)}
	c.peers = append(c.peers, p)
	var all []server.Peer
	for _, n := range c.nodes {
		all = append(all, server.Peer{ID: n.id, Addr: n.id + ":7401"})
	}
	n := c.newNode(i, p, append(all, p))
	c.mu.Lock()
	c.nodes = append(slices.Clone(c.nodes), n)
	c.mu.Unlock()
	n.start()
	c.change("add "+n.id, func(ctx context.Context) error {
		_, err := wirecall.Of(operator).AddMember(ctx, &wire.AddMemberRequest{Id: p.ID, PeerAddr: p.Addr, Reason: "test"})
		return err
	})
	c.member(operator, n, func(s *wire.NodeStatus) bool { return s.GetVoter() })
	return n
}

// leave removes a node and ends it.
func (c *cluster) leave(operator *client.Client, n *node) {
	c.t.Helper()
	c.change("remove "+n.id, func(ctx context.Context) error {
		_, err := wirecall.Of(operator).RemoveMember(ctx, &wire.RemoveMemberRequest{Id: n.id, Reason: "test"})
		return err
	})
	c.member(operator, n, func(s *wire.NodeStatus) bool { return s == nil })
	n.stop()
	c.mu.Lock()
	c.nodes = c.except(n)
	c.mu.Unlock()
}

// change retries a membership change until it succeeds.
func (c *cluster) change(what string, try func(context.Context) error) {
	c.t.Helper()
	var err error
	if !within(30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = try(ctx)
		return err == nil
	}) {
		c.t.Fatalf("%s: %v", what, err)
	}
}

// member waits until the leader reports a node as expected.
func (c *cluster) member(operator *client.Client, n *node, ok func(*wire.NodeStatus) bool) {
	c.t.Helper()
	c.eventually("the members are as they should be", func() bool {
		status, err := wirecall.Of(operator).Status(context.Background(), &wire.StatusRequest{})
		if err != nil {
			return false
		}
		i := slices.IndexFunc(status.Nodes, func(s *wire.NodeStatus) bool { return s.Id == n.id })
		if i < 0 {
			return ok(nil)
		}
		return ok(status.Nodes[i])
	})
}
