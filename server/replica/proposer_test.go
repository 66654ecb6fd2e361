package replica_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// asRoot returns a command of the only identity to which the policy of these tests gives anything.
func asRoot(cmd *wire.Command) *wire.Command {
	cmd.Caller = &wire.Caller{Identity: "root"}
	return cmd
}

// secured gives every node a certificate for the peer port, which a policy requires.
func secured(t *testing.T, ids ...string) func(*node) {
	t.Helper()
	dir, named := filepath.Join(t.TempDir(), "c"), []pki.Node{}
	for _, id := range ids {
		named = append(named, pki.Node{ID: id})
	}
	if _, err := pki.Init(dir, "c", named, nil); err != nil {
		t.Fatal(err)
	}
	return func(n *node) {
		base := filepath.Join(dir, "nodes", n.id)
		n.cfg.PeerTLS = &transport.TLSFiles{Cert: filepath.Join(base, "peer.crt"), Key: filepath.Join(base, "peer.key"), CA: filepath.Join(dir, "ca.crt")}
	}
}

// recordedBy returns who the last record of an act on a member names.
func (c *cluster) recordedBy(act wire.AuditRecord_Action, member string) (identity string) {
	c.leader().View(func(m *fsm.Machine) {
		for _, r := range m.AuditAfter(0) {
			if r.Action == act && r.Member == member && r.Outcome == wire.Status_OK {
				identity = r.GetCaller().GetIdentity()
			}
		}
	})
	return identity
}

// governed returns a cluster that can have a policy, at level 1. more are nodes that may be added.
func governed(t *testing.T, size int, more ...string) (c *cluster, secure func(*node)) {
	t.Helper()
	c = newCluster(t, size)
	ids := more
	for id := range c.nodes {
		ids = append(ids, id)
	}
	secure = secured(t, ids...)
	for _, n := range c.nodes {
		secure(n)
		n.cfg.Level = 1
	}
	c.startAll().waitForReports()
	return c, secure
}

// govern sets a policy that gives nobody anything, except root.
func (c *cluster) govern() {
	c.t.Helper()
	c.expect(c.leader().do(asRoot(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Reason: "r", Policy: &wire.Policy{Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}}},
	}}})), wire.Status_OK)
}

// TestNodesJoinUnderAnyPolicy verifies that a node joins by itself whatever the policy, and that the audit log names it.
func TestNodesJoinUnderAnyPolicy(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, secure := governed(t, 1, "n2")
		c.govern()
		fresh := c.machine("n2").joins(nil, 0, "n1:7401")
		secure(fresh)
		fresh.start()
		c.eventually("it votes", func() bool { return c.nodeStatus("n2").GetVoter() })
		if by := c.recordedBy(wire.AuditRecord_ADD_MEMBER, "n2"); by != "node n2" {
			t.Errorf("the audit log says that %q added n2", by)
		}
	})
}

// TestDeadMembersAreRemovedUnderAnyPolicy verifies that autopilot removes a member whatever the policy, and that the audit
// log names the leader.
func TestDeadMembersAreRemovedUnderAnyPolicy(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := piloted(t, 4, cleanup)
		c.govern()
		dead := c.followers()[0]
		dead.crash()
		c.removal(dead.id)
		if by := c.recordedBy(wire.AuditRecord_REMOVE_MEMBER, dead.id); by != "node "+c.leader().id {
			t.Errorf("the audit log says that %q removed %s", by, dead.id)
		}
		if last := c.statusOf(c.leader()).GetAutopilot().GetLastRemoval(); last.GetNodeId() != dead.id {
			t.Errorf("the last removal is %v", last)
		}
	})
}

// TestNodesActUnderAnyPolicy verifies that what nodes do by themselves works whatever the policy: everything that has a
// deadline ends, states are compared, a level is raised, a drained leader hands over.
func TestNodesActUnderAnyPolicy(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, _ := governed(t, 3)
		session := c.openSession("a", 10*time.Second)
		delayed, bounded := acquireCommand(session, 1, "l", 0), acquireCommand(session, 2, "bounded", 0)
		delayed.GetAcquire().LockDelayMs, bounded.GetAcquire().MaxHoldMs = 5_000, 5_000
		c.expect(c.leader().do(delayed), wire.Status_GRANTED)
		c.expect(c.leader().do(bounded), wire.Status_GRANTED)
		c.govern()
		c.eventually("the session, its holds and the lock-delay have ended", func() bool {
			left := uint64(0)
			c.leader().View(func(m *fsm.Machine) { left = m.Totals().Locks })
			return left == 0 && !c.leader().lives(session)
		})
		c.eventually("the states were compared", func() bool { return c.statusOf(c.leader()).GetAgreedIndex() > 0 })
		for _, id := range []string{"n1", "n2", "n3"} {
			c.nodes[id].stop()
			c.nodes[id].cfg.Level = fsm.Level
			c.nodes[id].start()
			c.eventually("it is back", func() bool { return c.nodeStatus(id).GetReachable() })
		}
		c.eventually("the level is raised", func() (raised bool) {
			c.leader().View(func(m *fsm.Machine) { raised = m.FeatureLevel() == fsm.Level })
			return raised
		})
		drained := c.leader()
		root := identity.NewContext(context.Background(), &wire.Caller{Identity: "root"})
		if err := drained.SetDrained(root, &wire.SetDrainedRequest{Id: drained.id, Drained: true, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		c.eventually("it has handed over", func() bool { return c.serving() != nil && c.leader() != drained })
	})
}

// do proposes a command and waits for its result.
func (n *node) do(cmd *wire.Command) *wire.Result {
	n.c.t.Helper()
	return n.wait("the result of "+fmt.Sprintf("%T", cmd.Op), func(done func(*wire.Result)) {
		if fsm.OfNode(cmd) {
			n.Proposer.Submit([]groupcommit.Proposal{{Command: cmd, Size: proto.Size(cmd), Done: done}}, nil, nil)
			return
		}
		n.Propose(cmd, done)
	})
}
