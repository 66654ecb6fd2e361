package replica_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// names resolves "nodes" to the hosts that a service consists of, and nothing else.
type names []string

func (n names) LookupHost(_ context.Context, host string) ([]string, error) {
	if host == "nodes" {
		return append([]string{}, n...), nil
	}
	return nil, errors.New("no such host")
}

func (names) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", nil, errors.New("no such record")
}

// joins makes a node join through seeds instead of a list of nodes.
func (n *node) joins(service names, expect int, seeds ...string) *node {
	n.cfg.Cluster, n.cfg.Join, n.cfg.Resolver, n.cfg.BootstrapExpect = nil, seeds, service, expect
	return n
}

// TestNodeJoinsThroughAFollower verifies that a node that knows the address of one follower is added, gets its vote, and
// comes back as the same member after a restart and under another seed.
func TestNodeJoinsThroughAFollower(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", time.Minute)
		c.expect(leader.do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		fresh := c.machine("n4").joins(nil, 0, c.followers()[0].id+":7401").start()
		c.eventually("it votes", func() bool { return c.nodeStatus("n4").GetVoter() })
		c.eventually("it has the state", func() bool { return fresh.holder("l") == s })
		audit := c.leader().audit()
		if n := len(audit); n == 0 || audit[0].Member != "n4" || audit[0].Outcome != wire.Status_OK {
			t.Errorf("the audit log has %v", audit)
		}
		fresh.crash()
		fresh.joins(nil, 0, "gone:7401").start()
		c.eventually("it is back", func() bool { return c.nodeStatus("n4").GetReachable() && fresh.Leader().GetId() != "" })
		if members := len(c.statusOf(c.leader()).Nodes); members != 4 || len(c.leader().audit()) != len(audit) {
			t.Errorf("%d members, and %v", members, c.leader().audit())
		}
	})
}

// TestCandidateMustReachTheMembers verifies that a node is not added while it does not reach a member that the leader
// reaches, and that a member that nobody reaches does not prevent it.
func TestCandidateMustReachTheMembers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		far := c.followers()[0]
		c.newcomer("n4")
		c.net.Isolate("n4", far.id)
		add := func(n *node) error {
			return n.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n4", PeerAddr: "n4:7401", Reason: "test"})
		}
		asked := time.Now()
		err := add(c.leader())
		if took := time.Since(asked); !errors.Is(err, status.ErrPrecondition) || !mentions(err, "n4", "does not reach", far.id) || took > 2*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		if n := c.nodeStatus("n4"); n != nil {
			t.Errorf("it is a member: %v", n)
		}
		far.crash()
		c.leader().mustAdmin(add)
		c.eventually("it votes", func() bool { return c.nodeStatus("n4").GetVoter() })
	})
}

// TestWhatDoesNotJoin verifies that neither a wiped member nor a removed one joins by itself.
func TestWhatDoesNotJoin(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		wiped := c.followers()[0]
		wiped.crash()
		wiped.wipe()
		wiped.joins(nil, 0, c.leader().id+":7401")
		if err := wiped.open(); !errors.Is(err, status.ErrReplaced) {
			t.Errorf("a wiped member: %v", err)
		}
		removed := c.machine("n4").joins(nil, 0, c.leader().id+":7401").start()
		c.eventually("it votes", func() bool { return c.nodeStatus("n4").GetVoter() })
		c.leader().mustAdmin(func(n *node) error {
			return n.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n4", Reason: "test"})
		})
		time.Sleep(20 * time.Second)
		removed.crash()
		removed.start()
		time.Sleep(20 * time.Second)
		if n := c.nodeStatus("n4"); n != nil {
			t.Errorf("a removed member is back: %v", n)
		}
	})
}

// TestNodesOfAServiceFormACluster verifies that nodes that find each other by the name of a service form one cluster,
// whatever the order in which they start and the delays, and that one more joins it.
func TestNodesOfAServiceFormACluster(t *testing.T) {
	for _, slow := range []time.Duration{0, 100 * time.Millisecond} {
		inVirtualTime(t, func(t *testing.T) {
			c := newCluster(t, 3)
			service := names{"n1", "n2", "n3", "n4"}
			for i, p := range c.peers {
				c.nodes[p.ID].joins(service, 3, "nodes:7401")
				c.net.Delay(p.ID, c.peers[(i+1)%3].ID, slow)
			}
			c.nodes["n3"].start()
			c.nodes["n1"].start()
			time.Sleep(30 * time.Second)
			if c.serving() != nil {
				t.Fatal("two of three formed a cluster")
			}
			c.nodes["n2"].start()
			c.waitForReports()
			c.machine("n4").joins(service, 3, "nodes:7401").start()
			c.eventually("the fourth votes", func() bool { return c.nodeStatus("n4").GetVoter() })
			ids := map[string]bool{}
			for _, n := range c.nodes {
				ids[c.statusOf(n).ClusterId] = true
			}
			if len(ids) != 1 {
				t.Errorf("%d clusters: %v", len(ids), ids)
			}
		})
	}
}
