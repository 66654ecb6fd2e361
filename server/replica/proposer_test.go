package replica_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/membership/autopilot"
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

// TestNodesActUnderAnyPolicy verifies that what nodes do by themselves works under a policy that gives nobody anything,
// except root: a level is raised, a node joins, a drained leader hands over, everything that has a deadline ends, a dead
// member is removed. The audit log names the nodes.
func TestNodesActUnderAnyPolicy(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		secure := secured(t, "n1", "n2", "n3", "n4", "n5")
		c := newCluster(t, 4)
		for _, n := range c.nodes {
			secure(n)
			n.cfg.Autopilot, n.cfg.Level, n.cfg.HashInterval = autopilot.Settings{Cleanup: true, DeadAfter: 20 * time.Second}, 1, time.Second
		}
		c.startAll().waitForReports()
		session := c.openSession("a", 10*time.Second)
		delayed := acquireCommand(session, 1, "l", 0)
		delayed.GetAcquire().LockDelayMs = 5_000
		c.expect(c.leader().do(delayed), wire.Status_GRANTED)
		bounded := acquireCommand(session, 2, "bounded", 0)
		bounded.GetAcquire().MaxHoldMs = 5_000
		c.expect(c.leader().do(bounded), wire.Status_GRANTED)
		c.expect(c.leader().do(asRoot(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
			Reason: "r", Policy: &wire.Policy{Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}}},
		}}})), wire.Status_OK)

		c.eventually("the session, its hold and the lock-delay have ended", func() bool {
			left := uint64(0)
			c.leader().View(func(m *fsm.Machine) { left = m.Totals().Locks })
			return left == 0 && !c.leader().lives(session)
		})
		for _, id := range []string{"n1", "n2", "n3", "n4"} {
			n := c.nodes[id]
			n.stop()
			n.cfg.Level = fsm.Level
			n.start()
			c.eventually("it is back", func() bool { return c.nodeStatus(id).GetReachable() })
		}
		c.eventually("the level is raised", func() (raised bool) {
			c.leader().View(func(m *fsm.Machine) { raised = m.FeatureLevel() == fsm.Level })
			return raised
		})

		fresh := c.machine("n5").joins(nil, 0, c.followers()[0].id+":7401")
		secure(fresh)
		fresh.cfg.Autopilot = autopilot.Settings{Cleanup: true, DeadAfter: 20 * time.Second}
		fresh.start()
		c.eventually("it votes", func() bool { return c.nodeStatus("n5").GetVoter() })
		if by := c.recordedBy(wire.AuditRecord_ADD_MEMBER, "n5"); by != "node n5" {
			t.Errorf("the audit log says that %q added n5", by)
		}

		drained := c.leader()
		root := identity.NewContext(context.Background(), &wire.Caller{Identity: "root"})
		if err := drained.SetDrained(root, &wire.SetDrainedRequest{Id: drained.id, Drained: true, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		c.eventually("it has handed over", func() bool { return c.serving() != nil && c.leader() != drained })

		dead := c.followers()[slices.IndexFunc(c.followers(), func(n *node) bool { return n != drained })]
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
