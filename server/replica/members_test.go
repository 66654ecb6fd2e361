package replica_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// statusOf returns the cluster's status as the node sees it.
func (c *cluster) statusOf(n *node) *wire.StatusResponse {
	c.t.Helper()
	s, err := n.Status(c.t.Context(), &wire.StatusRequest{Stale: true})
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// eventuallyAsking is eventually for a status that does not change back. It checks less often the longer it
// takes: each check asks every node, and in virtual time the next one would follow immediately.
func (c *cluster) eventuallyAsking(what string, ok func() bool) {
	c.t.Helper()
	begin, next := time.Now(), time.Now()
	c.eventually(what, func() bool {
		now := time.Now()
		if now.Before(next) {
			return false
		}
		next = now.Add(min(now.Sub(begin)/20, 100*time.Millisecond))
		return ok()
	})
}

func (c *cluster) nodeStatus(id string) *wire.NodeStatus {
	c.t.Helper()
	for _, n := range c.statusOf(c.leader()).Nodes {
		if n.Id == id {
			return n
		}
	}
	return nil
}

func TestWipedVoterIsRefusedAndReplaced(t *testing.T) {
	for _, wiped := range []int{1, 2} {
		inVirtualTime(t, func(t *testing.T) {
			c := newCluster(t, 3).startAll()
			leader := c.waitForReports()
			s := c.openSession("a", time.Minute)
			hold := c.expect(leader.do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
			victims := c.followers()[:wiped]
			for _, v := range victims {
				v.crash()
				v.wipe()
			}
			for _, v := range victims {
				err := v.open()
				if !errors.Is(err, status.ErrReplaced) || !mentions(err, "qlock cluster remove "+v.id, "qlock cluster add "+v.id+" "+v.id+":7401") {
					t.Fatalf("the wiped voter was told: %v", err)
				}
				if last, _ := v.disk.LastIndex(); last != 0 {
					t.Errorf("the wiped voter took %d entries", last)
				}
			}
			if wiped == 2 {
				// No majority with its memory is left, so nothing may be granted.
				c.eventually("the leader steps down", func() bool { return !leader.Serving() })
				return
			}
			v := victims[0]
			c.leader().mustAdmin(func(n *node) error {
				return n.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: v.id, Reason: "test"})
			})
			v.start()
			c.leader().mustAdmin(func(n *node) error {
				return n.AddMember(t.Context(), &wire.AddMemberRequest{Id: v.id, PeerAddr: v.id + ":7401", Reason: "test"})
			})
			c.eventually("it votes again", func() bool { n := c.nodeStatus(v.id); return n.GetVoter() && n.GetReachable() })
			c.eventually("it has the state", func() bool { return v.holder("l") == s })
			c.expect(c.must(releaseCommand(s, 2, hold)), wire.Status_OK)
		})
	}
}

// mustAdmin repeats an administrative request while there is no leader, or while a node that it needs does
// not answer yet.
func (n *node) mustAdmin(request func(*node) error) {
	n.c.t.Helper()
	n.c.eventually("the request is done", func() bool {
		err := request(n.c.leader())
		if err != nil && !errors.Is(err, status.ErrNotLeader) && !errors.Is(err, status.ErrUnavailable) && !mentions(err, "nothing was changed") {
			n.c.t.Fatal(err)
		}
		return err == nil
	})
}

// TestWipedVoterWithoutPeersWaits verifies that a voter that was wiped while the others were down takes no
// part, and notices when they return.
func TestWipedVoterWithoutPeersWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		for _, n := range c.nodes {
			n.crash()
		}
		v := c.nodes["n3"]
		v.wipe()
		v.start()
		time.Sleep(30 * time.Second)
		if v.Leader().Id != "" || v.haltedWith() != nil {
			t.Fatalf("alone: leader %v, halted %v", v.Leader(), v.haltedWith())
		}
		c.expect(v.heartbeat(1), wire.Status_NOT_LEADER)
		// The node that comes back has not applied its log yet, but knows the members.
		c.nodes["n1"].start()
		c.eventually("it stops", func() bool { return v.haltedWith() != nil })
		if err := v.haltedWith(); !errors.Is(err, status.ErrReplaced) {
			t.Fatal(err)
		}
		if last := c.statusOf(c.nodes["n1"]).CommitIndex; last != 0 {
			t.Errorf("one node and a wiped one committed up to %d", last)
		}
	})
}

// TestReplacedNodeWithItsOldDiskStops verifies that a node that was replaced while it was away stops when it
// comes back with its old disk, because that no longer belongs to the member.
func TestReplacedNodeWithItsOldDiskStops(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		v := c.followers()[0]
		v.crash()
		old := v.cfg.Stores
		oldDisk := v.disk
		v.wipe()
		c.leader().mustAdmin(func(n *node) error {
			return n.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: v.id, Reason: "test"})
		})
		v.start()
		c.leader().mustAdmin(func(n *node) error {
			return n.AddMember(t.Context(), &wire.AddMemberRequest{Id: v.id, PeerAddr: v.id + ":7401", Reason: "test"})
		})
		c.eventually("it votes again", func() bool { return c.nodeStatus(v.id).GetVoter() })
		time.Sleep(time.Second) // all nodes have recorded it
		v.crash()
		v.cfg.Stores, v.disk = old, oldDisk
		term := c.statusOf(c.leader()).Term
		err := v.open() // it may learn of it before Open returns
		if err == nil {
			c.eventually("it stops", func() bool { return v.haltedWith() != nil })
			err = v.haltedWith()
		}
		if !errors.Is(err, status.ErrReplaced) {
			t.Error(err)
		}
		if now := c.statusOf(c.leader()).Term; now != term {
			t.Errorf("it brought term %d after %d", now, term)
		}
	})
}

func TestMembersAreAddedPromotedMovedAndRemoved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", time.Minute)
		c.expect(leader.do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)

		fresh := c.machine("n4")
		if err := leader.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n4", PeerAddr: "n4:7401", Reason: "test"}); !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("a node that does not run was added: %v", err)
		}
		fresh.cfg.Cluster = append(c.peers, replica.Peer{ID: "n4", Addr: "n4:7401"})
		fresh.start()
		time.Sleep(10 * time.Second)
		if fresh.Leader().Id != "" || len(c.statusOf(leader).Nodes) != 3 {
			t.Fatal("a node joined that nobody added")
		}
		add := func(n *node) error {
			return n.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n4", PeerAddr: "n4:7401", Reason: "test"})
		}
		leader.mustAdmin(add)
		leader.mustAdmin(add) // idempotent
		c.eventually("promoted", func() bool { return c.nodeStatus("n4").GetVoter() })
		c.eventually("caught up", func() bool { return fresh.holder("l") == s })

		// Its address changes: it reports itself, and raft uses the new address.
		fresh.stop()
		fresh.cfg.Advertise.Peer = "n4:7999"
		fresh.start()
		c.eventually("reached under its new address", func() bool {
			n := c.nodeStatus("n4")
			return n.GetPeerAddr() == "n4:7999" && n.GetReachable()
		})
		c.leader().mustAdmin(func(n *node) error {
			return n.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: "n4", Reason: "test"})
		})
		c.eventually("n4 leads", func() bool { return c.leader() == fresh })
		if c.nodes["n1"].Leader().GetClientAddr() != "n4:7400" {
			t.Errorf("leader %v", c.nodes["n1"].Leader())
		}

		// Removing the leader: it hands over, and the next leader removes it.
		err := fresh.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n4", Reason: "test"})
		if !errors.Is(err, status.ErrNotLeader) {
			t.Errorf("removing the leader: %v", err)
		}
		c.eventually("another leads", func() bool { return c.leader() != fresh })
		c.leader().mustAdmin(func(n *node) error {
			return n.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n4", Reason: "test"})
		})
		if n := c.nodeStatus("n4"); n != nil {
			t.Errorf("still there: %v", n)
		}
		if err := c.leader().RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n4", Reason: "test"}); !errors.Is(err, status.ErrNotFound) {
			t.Errorf("removed twice: %v", err)
		}
		term := c.statusOf(c.leader()).Term
		time.Sleep(20 * time.Second) // the removed node must not disturb the cluster
		if now := c.statusOf(c.leader()).Term; now != term {
			t.Errorf("term %d became %d", term, now)
		}
	})
}

// TestNodeWithoutAVoteIsRemovedAtOnce verifies that removing a non-voter does not wait for a silent voter,
// since it takes no vote away.
func TestNodeWithoutAVoteIsRemovedAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		fresh := c.machine("n4")
		fresh.cfg.Cluster = append(c.peers, replica.Peer{ID: "n4", Addr: "n4:7401"})
		fresh.start()
		leader.mustAdmin(func(n *node) error {
			return n.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n4", PeerAddr: "n4:7401", Reason: "test"})
		})
		fresh.crash()
		silent := c.followers()[0]
		c.net.Isolate(silent.id, c.except(silent)...)
		if n := c.nodeStatus("n4"); n == nil || n.Voter {
			t.Fatalf("added as %v", n)
		}
		begin := time.Now()
		err := leader.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n4", Reason: "test"})
		if took := time.Since(begin); err != nil || took > 500*time.Millisecond {
			t.Errorf("it took %v: %v", took, err)
		}
	})
}

func TestAdministrationNeedsTheLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		f := c.followers()[0]
		_, acknowledged := f.AcknowledgeAlarms(t.Context(), &wire.AcknowledgeAlarmsRequest{Reason: "test"})
		for what, err := range map[string]error{
			"alarms":   acknowledged,
			"add":      f.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n9", PeerAddr: "n9:1", Reason: "test"}),
			"remove":   f.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n1", Reason: "test"}),
			"transfer": f.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"}),
		} {
			if !errors.Is(err, status.ErrNotLeader) {
				t.Errorf("%s on a follower: %v", what, err)
			}
		}
		if _, err := f.Status(t.Context(), &wire.StatusRequest{}); !errors.Is(err, status.ErrNotLeader) {
			t.Errorf("linearizable status on a follower: %v", err)
		}
		view, err := c.leader().Status(t.Context(), &wire.StatusRequest{})
		if err != nil || len(view.Nodes) != 3 || view.LeaderId != c.leader().id || view.ClusterId == "" {
			t.Errorf("status %v, %v", view, err)
		}
		for _, n := range view.GetNodes() {
			if !n.Reachable || !n.Voter || n.Version != "test" || n.ClientAddr == "" || n.Leader != (n.Id == view.LeaderId) {
				t.Errorf("node %v", n)
			}
		}
		if err := c.leader().AddMember(t.Context(), &wire.AddMemberRequest{Id: "n9", PeerAddr: "nonsense", Reason: "test"}); !errors.Is(err, status.ErrInvalid) {
			t.Errorf("a bad address: %v", err)
		}
	})
}

func TestNodeOfALowerLevelStops(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			n.cfg.Level = fsm.Level
		}
		old := c.nodes["n3"]
		old.cfg.Level = fsm.Level - 1
		c.startAll()
		leader := c.waitForReports()
		if level := c.statusOf(leader).Level; level != fsm.Level-1 {
			t.Fatalf("level %d although a member has %d", level, old.cfg.Level)
		}
		old.stop()
		old.cfg.Level = fsm.Level
		old.start()
		c.eventually("raised everywhere", func() bool {
			for _, n := range c.nodes {
				if c.statusOf(n).Level != fsm.Level {
					return false
				}
			}
			return true
		})
		// After a downgrade, it must not apply what it does not know.
		old.stop()
		old.cfg.Level = fsm.Level - 1
		if err := old.open(); err == nil {
			c.eventually("it stops", func() bool { return old.haltedWith() != nil })
			if err := old.haltedWith(); !errors.Is(err, fsm.ErrUpgrade) || !mentions(err, "upgrade this node") {
				t.Errorf("halted with %v", err)
			}
		} else if !errors.Is(err, fsm.ErrUpgrade) {
			t.Error(err)
		}
		s := c.openSession("a", time.Minute)
		c.expect(c.leader().do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
	})
}
