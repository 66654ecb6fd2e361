package replica_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestRemovedNodeIsNotPromoted verifies that a node that is removed while the leader asks how far it is does
// not get its vote afterwards.
func TestRemovedNodeIsNotPromoted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		fresh := c.newcomer("n4")
		for pause := range 25 {
			c.net.Delay(leader.id, "n4", 30*time.Millisecond)
			c.net.Delay("n4", leader.id, 30*time.Millisecond)
			if err := leader.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n4", PeerAddr: "n4:7401", Reason: "test"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(pause) * 20 * time.Millisecond)
			if err := leader.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: "n4", Reason: "test"}); err != nil {
				t.Fatal(err)
			}
			c.net.Heal()
			time.Sleep(3 * time.Second)
			if n := c.nodeStatus("n4"); n != nil {
				t.Fatalf("removed after %d ms, and there again: %v", pause*20, n)
			}
			fresh.stop()
			fresh.wipe()
			fresh.start()
		}
	})
}

// newcomer starts an empty node that can be added.
func (c *cluster) newcomer(id string) *node {
	c.t.Helper()
	n := c.machine(id)
	n.cfg.Cluster = append(c.peers, replica.Peer{ID: id, Addr: id + ":7401"})
	return n.start()
}

// TestRemovalThatWouldStopTheClusterIsRefused removes a node while another one of three is down, which would
// leave two voters of which one answers.
func TestRemovalThatWouldStopTheClusterIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		dead, alive := c.followers()[0], c.followers()[1]
		dead.crash()
		err := leader.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: alive.id, Reason: "test"})
		if !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("removing the second of two that live: %v", err)
		}
		s := c.openSession("a", time.Minute)
		c.expect(c.must(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		c.leader().mustAdmin(func(n *node) error {
			return n.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: dead.id, Reason: "test"})
		})
		c.expect(c.must(acquireCommand(s, 2, "m", 0)), wire.Status_GRANTED)
	})
}

// TestCutBeginningIsForgotten verifies that a node that died while it began the cluster, between raft's term
// and its first entry, counts as empty for itself and for others.
func TestCutBeginningIsForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		if err := c.nodes["n1"].disk.SetUint64([]byte("CurrentTerm"), 1); err != nil {
			t.Fatal(err)
		}
		c.startAll()
		s := c.openSession("a", time.Minute)
		c.expect(c.must(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		c.waitForReports()
	})
}

// slowSnapshots blocks writing a snapshot until done is closed.
type slowSnapshots struct {
	*raft.InmemSnapshotStore
	started, done chan struct{}
}

func (s slowSnapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, of uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	close(s.started)
	<-s.done
	return s.InmemSnapshotStore.Create(version, index, term, c, of, trans)
}

// TestMembersAreKeptBesideASlowSnapshot verifies that a node keeps recording its members while a snapshot
// takes long.
func TestMembersAreKeptBesideASlowSnapshot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1)
		n := c.nodes["n1"]
		slow := slowSnapshots{n.disk.snapshots, make(chan struct{}), make(chan struct{})}
		defer close(slow.done)
		n.cfg.Stores.Snapshots = slow
		n.cfg.Settings = &wire.Settings{MaxValueBytes: 64 << 10}
		c.startAll()
		c.waitForReports()
		session := c.openSession("a", time.Minute)
		hold := c.expect(n.do(acquireCommand(session, 1, "a", 0)), wire.Status_GRANTED)
		for seq := uint64(2); seq < 1_200; seq++ {
			set := &wire.SetValue{HoldId: hold.HoldId, Token: hold.Token, Value: make([]byte, 64<<10)}
			c.expect(n.do(&wire.Command{SessionId: session, Seq: seq, AckedBelow: seq, Op: &wire.Command_SetValue{SetValue: set}}), wire.Status_OK)
		}
		<-slow.started
		page := func() string {
			p, err := n.disk.Get([]byte("quorumlock.members"))
			if err != nil {
				t.Fatal(err)
			}
			return string(p)
		}
		before := page()
		member := &wire.Member{Id: "n9", Incarnation: "n9-1", PeerAddr: "n9:7401", Level: fsm.Level}
		c.expect(n.do(&wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: member}}}), wire.Status_OK)
		c.within(time.Second, "the member is written down", func() bool { return page() != before })
	})
}
