package replica_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// rot damages a node's disk: there, the hold of the lock "rot" gets another value than the one requested.
func (n *node) rot() {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.disk.damage = func(l *raft.Log) {
		e := &wire.Entry{}
		if l.Type != raft.LogCommand || proto.Unmarshal(l.Data, e) != nil {
			return
		}
		for _, cmd := range e.Commands {
			if a := cmd.GetAcquire(); len(a.GetLocks()) == 1 && a.Locks[0].Name == "rot" {
				a.Value = []byte("rotten")
				l.Data, _ = proto.Marshal(e)
			}
		}
	}
}

// agreed waits until the node has found its state equal to that of a majority, including everything applied
// by now.
func (c *cluster) agreed(n *node) {
	c.t.Helper()
	c.openSession(fmt.Sprint("agreed ", n.id, time.Now()), 5*time.Second) // changes the state
	since := c.statusOf(c.leader()).CommitIndex
	c.eventuallyAsking(n.id+" agrees with a majority", func() bool { return c.statusOf(n).AgreedIndex >= since })
}

func (c *cluster) replace(n *node) {
	c.t.Helper()
	c.leader().mustAdmin(func(l *node) error {
		return l.RemoveMember(c.t.Context(), &wire.RemoveMemberRequest{Id: n.id, Reason: "test"})
	})
	n.crash()
	n.wipe()
	n.start()
	c.leader().mustAdmin(func(l *node) error {
		return l.AddMember(c.t.Context(), &wire.AddMemberRequest{Id: n.id, PeerAddr: n.id + ":7401", Reason: "test"})
	})
	c.eventuallyAsking(n.id+" votes again", func() bool { s := c.nodeStatus(n.id); return s.GetVoter() && s.GetReachable() })
}

// acquireRot returns the command that a damaged disk changes.
func acquireRot(session, seq uint64) *wire.Command {
	return acquire(session, seq, "rot", &wire.Acquire{Value: []byte("sound")})
}

func (n *node) stopsDiverged() error {
	n.c.t.Helper()
	n.c.eventually(n.id+" stops", func() bool { return n.haltedWith() != nil })
	err := n.haltedWith()
	if !errors.Is(err, status.ErrDiverged) {
		n.c.t.Fatalf("%s stopped because of: %v", n.id, err)
	}
	return err
}

// TestDivergedNodeStopsItself verifies that a node with a wrong state stops, whether it follows or leads. The
// others keep every lock, and the node cannot return before it was replaced.
func TestDivergedNodeStopsItself(t *testing.T) {
	for _, leads := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T) {
			c := newCluster(t, 3).startAll()
			c.waitForReports()
			wrong := c.followers()[0]
			wrong.rot()
			s := c.openSession("a", 5*time.Minute)
			held := c.expect(c.must(acquireCommand(s, 1, "door", 0)), wire.Status_GRANTED)
			c.expect(c.must(acquireRot(s, 2)), wire.Status_GRANTED)
			for _, n := range c.nodes { // otherwise a wrong leader would send what its disk holds
				c.eventually(n.id+" has it applied", func() bool { return n.holder("rot") == s })
			}
			if leads {
				c.leader().mustAdmin(func(l *node) error {
					return l.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: wrong.id, Reason: "test"})
				})
			}
			err := wrong.stopsDiverged()
			if !mentions(err, "after log entry", "2 of 3 voters", "qlock cluster remove "+wrong.id, "qlock cluster add "+wrong.id+" "+wrong.id+":7401") {
				t.Errorf("it says: %v", err)
			}
			wrong.crash()
			leader := c.leader()
			if leader.holder("door") != s || leader.holder("rot") != s {
				t.Error("a lock was lost")
			}
			c.expect(leader.heartbeat(s), wire.Status_OK)
			c.expect(c.must(acquireCommand(s, 3, "gate", 0)), wire.Status_GRANTED)
			c.expect(c.must(releaseCommand(s, 4, held)), wire.Status_OK)
			c.agreed(c.leader())
			if again := wrong.open(); !errors.Is(again, status.ErrDiverged) || again.Error() != err.Error() {
				t.Errorf("started again, it says: %v", again)
			}
			c.replace(wrong)
			wrong.halt(nil)
			c.agreed(wrong)
			if wrong.holder("rot") != s || wrong.haltedWith() != nil {
				t.Errorf("replaced, it has %d hold the lock and says: %v", wrong.holder("rot"), wrong.haltedWith())
			}
			for _, n := range c.nodes {
				if s := c.statusOf(n); s.GrantsSuspended {
					t.Errorf("%s: %v", n.id, s)
				}
			}
		})
	}
}

// doubt starts a cluster of which two nodes differ and the third one is down. One session holds the lock
// door, and another one waits for it.
func doubt(t *testing.T) (c *cluster, down, wrong *node, holder, waiter uint64, held *wire.Result) {
	c = newCluster(t, 3).startAll()
	c.waitForReports()
	wrong, down = c.followers()[0], c.followers()[1]
	down.stop()
	wrong.rot()
	holder, waiter = c.openSession("a", 5*time.Minute), c.openSession("b", 5*time.Minute)
	held = c.expect(c.must(acquireCommand(holder, 1, "door", 0)), wire.Status_GRANTED)
	c.expect(c.must(acquireCommand(waiter, 1, "door", forever)), wire.Status_QUEUED)
	c.expect(c.must(acquireRot(holder, 2)), wire.Status_GRANTED)
	c.eventuallyAsking("granting is suspended", func() bool { return c.statusOf(c.leader()).GrantsSuspended })
	return c, down, wrong, holder, waiter, held
}

func (c *cluster) soundLeads(wrong *node) {
	c.t.Helper()
	c.eventually("a sound node leads", func() bool {
		if c.leader() == wrong {
			_ = wrong.TransferLeadership(c.t.Context(), &wire.TransferLeadershipRequest{Reason: "test"})
		}
		return c.leader() != wrong
	})
}

// TestNothingIsGrantedWhileSuspended verifies that nothing is granted while two of three nodes are up and differ,
// since it is unknown which one is right, and that everything else continues.
func TestNothingIsGrantedWhileSuspended(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, down, _, holder, waiter, held := doubt(t)
		status := c.statusOf(c.leader())
		if status.DifferingIndex <= status.AgreedIndex {
			t.Errorf("%v", status)
		}
		c.expect(c.leader().do(acquireCommand(waiter, 2, "gate", 0)), wire.Status_UNAVAILABLE)
		c.expect(c.leader().heartbeat(waiter), wire.Status_OK)
		c.expect(c.leader().wait("a proof", c.leader().Prove), wire.Status_OK)
		c.expect(c.must(releaseCommand(holder, 3, held)), wire.Status_OK)
		gone := c.openSession("gone", 5*time.Second)
		c.eventually("a session expires", func() bool { return !c.leader().lives(gone) })
		// Neither under the other leader, nor after a restart of both.
		c.leader().mustAdmin(func(l *node) error {
			return l.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"})
		})
		c.expect(c.leader().do(acquireCommand(waiter, 2, "gate", 0)), wire.Status_UNAVAILABLE)
		for _, n := range c.nodes {
			if n != down {
				n.crash()
				n.start()
			}
		}
		c.expect(c.must(&wire.Command{SessionId: waiter, Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}}), wire.Status_OK)
		c.expect(c.leader().do(acquireCommand(waiter, 2, "gate", 0)), wire.Status_UNAVAILABLE)
		time.Sleep(time.Minute)
		for _, n := range c.nodes {
			if n.up && (n.holder("door") != 0 || n.haltedWith() != nil || !c.statusOf(n).GrantsSuspended) {
				t.Errorf("%s: door is held by %d, halted with %v", n.id, n.holder("door"), n.haltedWith())
			}
		}
	})
}

// TestMajorityResumesGrants verifies that the third node, when it returns, makes a majority: the wrong node
// stops, and a session that waited meanwhile gets its lock.
func TestMajorityResumesGrants(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, down, wrong, holder, waiter, held := doubt(t)
		c.expect(c.must(releaseCommand(holder, 3, held)), wire.Status_OK)
		c.soundLeads(wrong) // otherwise the third node is sent what the damaged disk holds
		down.start()
		wrong.stopsDiverged()
		wrong.crash()
		c.eventuallyAsking("granting goes on", func() bool { return !c.statusOf(c.leader()).GrantsSuspended })
		c.eventually("who waited holds the lock", func() bool { return c.leader().holder("door") == waiter })
		c.expect(c.must(acquireCommand(waiter, 2, "gate", 0)), wire.Status_GRANTED)
	})
}

// TestReplacingTheWrongNodeResumesGrants verifies that an operator can end the doubt: after removing the lost
// node and replacing the wrong one, the remaining node is the majority.
func TestReplacingTheWrongNodeResumesGrants(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, down, wrong, holder, waiter, _ := doubt(t)
		c.soundLeads(wrong)
		c.leader().mustAdmin(func(l *node) error {
			return l.RemoveMember(t.Context(), &wire.RemoveMemberRequest{Id: down.id, Reason: "test"})
		})
		c.replace(wrong)
		c.eventuallyAsking("granting goes on", func() bool { return !c.statusOf(c.leader()).GrantsSuspended })
		c.agreed(wrong)
		c.expect(c.must(acquireCommand(waiter, 2, "gate", 0)), wire.Status_GRANTED)
		if wrong.holder("rot") != holder || wrong.holder("door") != holder {
			t.Error("a lock was lost")
		}
	})
}

// TestHealthyNodesAgree verifies that nothing that happens to a healthy cluster makes its nodes differ.
func TestHealthyNodesAgree(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			n.cfg.SnapshotThreshold, n.cfg.TrailingLogs, n.cfg.HashInterval = 32, 4, 500*time.Millisecond
		}
		c.startAll()
		c.waitForReports()
		traffic := func(name string) {
			s := c.openSession(name, 5*time.Minute)
			for seq := range uint64(60) {
				c.must(acquireCommand(s, seq+1, fmt.Sprint(name, "/", seq%40), time.Duration(seq%2)*time.Second))
			}
			c.must(&wire.Command{SessionId: s, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
			c.expect(c.must(openCommand(name+" stays", time.Minute)), wire.Status_OK)
		}
		check := func(what string) {
			t.Helper()
			for _, n := range c.nodes {
				if n.up {
					c.agreed(n)
				}
			}
			c.sound(what)
		}
		for i := range 3 {
			traffic(fmt.Sprint("leaders ", i))
			c.leader().mustAdmin(func(l *node) error {
				return l.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"})
			})
			traffic(fmt.Sprint("crash ", i))
			lost := c.leader()
			lost.crash()
			traffic(fmt.Sprint("behind ", i)) // by more than the log keeps
			lost.start()
		}
		check("leader changes, and followers that need a snapshot")
		for _, n := range c.nodes {
			n.stop()
		}
		c.startAll()
		traffic("restarted")
		check("a restart of all")
		c.replace(c.followers()[0])
		traffic("members")
		check("a member that was replaced")
		c.eventuallyAsking("nobody is there", func() bool { return c.statusOf(c.leader()).Sessions == 0 })
		_, backup := c.backup()
		backup.ClusterId = c.statusOf(c.leader()).ClusterId
		c.leader().mustAdmin(func(l *node) error { _, err := l.Restore(t.Context(), backup); return err })
		traffic("restored")
		check("a new history")
	})
}

// sound reports an error for each node that has ever found a different state.
func (c *cluster) sound(what string) {
	c.t.Helper()
	for _, n := range c.nodes {
		if !n.up {
			continue
		}
		if s := c.statusOf(n); s.DifferingIndex != 0 || s.GrantsSuspended || n.haltedWith() != nil {
			c.t.Errorf("after %s, %s: differing at %d, halted with %v", what, n.id, s.DifferingIndex, n.haltedWith())
		}
	}
}

// TestHashPointsOnlyWhereSomethingMoved verifies that nodes hash only if the state has changed, and that a
// single node does not hash at all.
func TestHashPointsOnlyWhereSomethingMoved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for _, size := range []int{1, 3} {
			c := newCluster(t, size)
			for _, n := range c.nodes {
				n.cfg.HashInterval = 3 * time.Second
			}
			c.startAll()
			leader := c.waitForReports()
			time.Sleep(15 * time.Second)
			idle := leader.hashPoints()
			time.Sleep(30 * time.Second)
			if n := leader.hashPoints() - idle; n != 0 {
				t.Errorf("%d nodes that are idle took %d hash points in ten intervals", size, n)
			}
			for range 60 {
				s := c.openSession("a", time.Minute)
				c.must(&wire.Command{SessionId: s, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
				time.Sleep(300 * time.Millisecond)
			}
			if n := leader.hashPoints() - idle; size == 1 && n != 0 || size == 3 && (n < 5 || n > 7) {
				t.Errorf("%d nodes took %d hash points in six busy intervals", size, n)
			}
			c.stopAll()
		}
	})
}

// hashPoints counts the hash points in the node's log.
func (n *node) hashPoints() (points int) {
	n.c.t.Helper()
	first, _ := n.disk.FirstIndex()
	last, _ := n.disk.LastIndex()
	for i := max(first, 1); i <= last; i++ {
		var l raft.Log
		e := &wire.Entry{}
		if n.disk.GetLog(i, &l) == nil && l.Type == raft.LogCommand && proto.Unmarshal(l.Data, e) == nil && e.HashPoint {
			points++
		}
	}
	return points
}
