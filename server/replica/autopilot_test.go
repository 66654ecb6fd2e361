package replica_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/membership/autopilot"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// piloted is a cluster whose leader removes dead members after 20 s.
func piloted(t *testing.T, n int, set autopilot.Settings) *cluster {
	c := newCluster(t, n)
	for _, n := range c.nodes {
		n.cfg.Autopilot = set
		n.cfg.Registry = prometheus.NewRegistry()
	}
	c.startAll().waitForReports()
	return c
}

var cleanup = autopilot.Settings{Cleanup: true, DeadAfter: 20 * time.Second}

// members returns the ids of all members, as the leader has them.
func (c *cluster) members() (ids []string) {
	for _, n := range c.statusOf(c.leader()).GetNodes() {
		ids = append(ids, n.GetId())
	}
	return ids
}

// stays verifies that a node remains a member for that long.
func (c *cluster) stays(id string, during time.Duration) {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < during; time.Sleep(500 * time.Millisecond) {
		if !slices.Contains(c.members(), id) {
			c.t.Fatalf("%s was removed after %v", id, time.Since(began))
		}
	}
}

// removal waits until a node is no member any more, and returns how long that took.
func (c *cluster) removal(id string) time.Duration {
	c.t.Helper()
	began := time.Now()
	c.eventually(id+" is removed", func() bool { return !slices.Contains(c.members(), id) })
	return time.Since(began)
}

// TestDeadMembersAreRemoved verifies that dead members are removed once their time is up, with a record that names the
// leader's autopilot, and never the third voter.
func TestDeadMembersAreRemoved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := piloted(t, 5, cleanup)
		dead := c.followers()[:3]
		leader := c.leader()
		dead[0].crash()
		c.stays(dead[0].id, 19*time.Second)
		if h := c.nodeStatus(dead[0].id).GetHealth(); h.GetHealthy() || h.GetSilentMs() < 15_000 || h.GetRemovedInMs() == 0 || h.GetRemovedInMs() > 5_000 || !strings.Contains(h.GetReason(), "does not answer") {
			t.Errorf("shortly before: %v", h)
		}
		if took := c.removal(dead[0].id); took > 5*time.Second {
			t.Errorf("removed %v too late", took)
		}
		dead[1].crash()
		c.removal(dead[1].id)
		if last := c.statusOf(c.leader()).GetAutopilot().GetLastRemoval(); last.GetNodeId() != dead[1].id || !strings.Contains(last.GetReason(), "without an answer") || last.GetUnixMs() == 0 {
			t.Errorf("the last removal is %v", last)
		}
		leader.View(func(m *fsm.Machine) {
			for _, r := range m.AuditAfter(0) {
				if r.Operator != "autopilot of "+leader.id || r.Action != wire.AuditRecord_REMOVE_MEMBER || r.GetCaller().GetIdentity() != "node "+leader.id {
					t.Errorf("recorded as %v", r)
				}
			}
		})
		dead[2].crash()
		c.stays(dead[2].id, time.Minute)
		if h := c.nodeStatus(dead[2].id).GetHealth(); h.GetHealthy() || h.GetRemovedInMs() != 0 {
			t.Errorf("one of the last three: %v", h)
		}
	})
}

// TestMemberThatReturnsIsKept verifies that the time of a dead member starts again when it has returned.
func TestMemberThatReturnsIsKept(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := piloted(t, 4, cleanup)
		away := c.followers()[0]
		for range 3 {
			away.crash()
			c.stays(away.id, 15*time.Second)
			away.start()
			c.eventually("it is healthy", func() bool { return c.nodeStatus(away.id).GetHealth().GetHealthy() })
		}
		away.crash()
		c.removal(away.id)
	})
}

// TestNewLeaderStartsToCountAgain verifies that a change of leaders does not hasten a removal.
func TestNewLeaderStartsToCountAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := piloted(t, 5, cleanup)
		away := c.followers()[0]
		away.crash()
		c.stays(away.id, 15*time.Second)
		former := c.leader()
		former.mustAdmin(func(n *node) error {
			return n.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"})
		})
		c.eventually("another leads", func() bool { return c.leader() != former })
		c.stays(away.id, 18*time.Second)
		if took := c.removal(away.id); took > 7*time.Second {
			t.Errorf("removed %v too late", took)
		}
	})
}

// TestDeadMembersAreKeptByDefault verifies that no member is removed without being asked to.
func TestDeadMembersAreKeptByDefault(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := piloted(t, 5, autopilot.Settings{DeadAfter: 20 * time.Second})
		away := c.followers()[0]
		away.crash()
		c.stays(away.id, time.Minute)
		if h := c.nodeStatus(away.id).GetHealth(); h.GetHealthy() || h.GetRemovedInMs() != 0 {
			t.Errorf("it is to be removed: %v", h)
		}
	})
}

// TestTwoDeadMembersAreRemoved verifies that members that die together are all removed, and what is left is healthy.
func TestTwoDeadMembersAreRemoved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := piloted(t, 5, cleanup)
		away := c.followers()[:2]
		away[0].crash()
		away[1].crash()
		time.Sleep(time.Minute)
		if ids := c.members(); len(ids) != 3 {
			t.Errorf("the members are %v, want the three that live", ids)
		}
		if s := c.statusOf(c.leader()); s.GetAutopilot().GetFailureTolerance() != 1 || !s.GetAutopilot().GetHealthy() {
			t.Errorf("after the removals: %v", s.GetAutopilot())
		}
	})
}

// TestFailureTolerance verifies how many voters may fail, in the status and in the metrics, as members die and return.
func TestFailureTolerance(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := piloted(t, 5, autopilot.Settings{})
		leader := c.leader()
		tolerated := func(want uint32) func() bool {
			return func() bool {
				return c.statusOf(leader).GetAutopilot().GetFailureTolerance() == want
			}
		}
		c.within(5*time.Second, "two may fail", tolerated(2))
		away := c.followers()[:2]
		for i, n := range away {
			n.crash()
			c.within(5*time.Second, fmt.Sprint(n.id, " has failed"), tolerated(uint32(1-i)))
		}
		values := scrape.Values(t, leader.cfg.Registry.(*prometheus.Registry))
		if values["failure_tolerance"] != 0 || values["member_healthy "+away[0].id] != 0 || values["member_healthy "+leader.id] != 1 {
			t.Errorf("the metrics are %v", values)
		}
		for _, n := range away {
			n.start()
		}
		c.within(10*time.Second, "they have returned", tolerated(2))

		leader.mustAdmin(func(n *node) error {
			return n.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"})
		})
		c.eventually("another leads", func() bool { return c.leader() != leader })
		if s, has := c.statusOf(leader), scrape.Values(t, leader.cfg.Registry.(*prometheus.Registry)); s.GetAutopilot() != nil || s.GetNodes()[0].GetHealth() != nil || hasKey(has, "member_healthy") {
			t.Errorf("a former leader says %v, and has %v", s.GetAutopilot(), has)
		}
	})
}

func hasKey(values map[string]float64, prefix string) bool {
	for key := range values {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// TestNewMemberWaitsForItsVote verifies that a new member gets its vote once it has been healthy for the time set, and
// that this time starts again if it fails meanwhile.
func TestNewMemberWaitsForItsVote(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := piloted(t, 3, autopilot.Settings{Stabilization: 10 * time.Second})
		leader := c.leader()
		time.Sleep(15 * time.Second) // a leader that is new does not know for how long a member has been healthy
		fresh := c.machine("n4")
		fresh.cfg.Cluster = append(c.peers, replica.Peer{ID: "n4", Addr: "n4:7401"})
		fresh.start()
		leader.mustAdmin(func(n *node) error {
			return n.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n4", PeerAddr: "n4:7401", Reason: "test"})
		})
		votes := func() bool { return c.nodeStatus("n4").GetVoter() }
		noVote := func(during time.Duration) {
			for began := time.Now(); time.Since(began) < during; time.Sleep(100 * time.Millisecond) {
				if votes() {
					t.Fatalf("it votes after %v", time.Since(began))
				}
			}
		}
		noVote(8 * time.Second)
		fresh.crash()
		c.eventually("it is known to be dead", func() bool { return !c.nodeStatus("n4").GetHealth().GetHealthy() })
		fresh.start()
		noVote(9 * time.Second)
		c.within(6*time.Second, "it votes", votes)
	})
}
