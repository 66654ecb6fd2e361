package replica

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestNamedLeader verifies which leader the leader and a follower report, including after they have
// failed.
func TestNamedLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		if n := openIdle(t, nil); n.Leader().GetId() != "" {
			t.Errorf("a node that does not run names %v", n.Leader())
		}
		_, nodes := openTogether(t, 2)
		leader, follower := nodes[0], nodes[1]
		id, term := leader.cfg.ID, leader.current().term
		awaitRaft(t, "the follower has applied it", func() bool { return follower.Leader().GetClientAddr() != "" })
		want := func(when string, n *teammate, id string, term uint64) {
			t.Helper()
			if hint := n.Leader(); hint.Id != id || hint.Term != term || (hint.ClientAddr != "") != (id != "") {
				t.Errorf("%s: %v", when, hint)
			}
		}
		want("the leader", leader, id, term)
		want("a follower", follower, id, term)
		follower.halted.Store(&errDisk)
		want("a follower that has failed", follower, id, term)
		follower.halted.Store(nil)
		leader.halted.Store(&errDisk)
		want("a leader that has failed", leader, "", 0)
		leader.halted.Store(nil)
		next := follower.cfg.ID
		leader.handover.HandedOver(next, term, term+1)
		want("a leader with a successor", leader, next, term+1)
	})
}

// TestNewsOfTheLeaderEndWithTheSubscription verifies that a cancelled subscriber is not called any more.
func TestNewsOfTheLeaderEndWithTheSubscription(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := &Replica{leaders: cluster.NewLeaderChanges()}
		told := 0
		cancel := r.OnLeader(func(hint *wire.LeaderHint) { told += int(hint.GetTerm()) })
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.leaders.Run(ctx)
		r.leaders.Publish(&wire.LeaderHint{Term: 1})
		synctest.Wait()
		cancel()
		r.leaders.Publish(&wire.LeaderHint{Term: 10})
		synctest.Wait()
		if told != 1 {
			t.Errorf("told %d", told)
		}
	})
}

// TestRefusals verifies the reason why a command is not accepted, in each state of a node.
func TestRefusals(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, nodes := openTogether(t, 2)
		leader, stopping, waiting := nodes[0], openIdle(t, nil), openIdle(t, nil)
		stopping.cancel()
		want := func(when string, r *Replica, status wire.Status_Code, says string) {
			t.Helper()
			if no := r.refusal(); no.Status != status || !strings.Contains(no.Message, says) {
				t.Errorf("%s: %v", when, no)
			}
		}
		want("without raft", waiting.Replica, wire.Status_NOT_LEADER, "")
		want("stopping", stopping.Replica, wire.Status_UNAVAILABLE, "stopping")
		want("a follower", nodes[1].Replica, wire.Status_NOT_LEADER, "")
		want("a leader", leader.Replica, wire.Status_UNAVAILABLE, "not taken over yet")
		leader.handover.HandedOver("n9", leader.current().term, leader.current().term+1)
		want("a leader with a successor", leader.Replica, wire.Status_NOT_LEADER, "")
		leader.halted.Store(&errDisk)
		want("a failed leader", leader.Replica, wire.Status_UNAVAILABLE, "failed")
		leader.halted.Store(nil)
	})
}

// inReign calls f while r has another leadership.
func (r *Replica) inLeadership(lead *leadership, f func()) {
	set := func(now *leadership) (was *leadership) {
		r.mu.Lock()
		defer r.mu.Unlock()
		was, r.leadership = r.leadership, now
		return was
	}
	was := set(lead)
	f()
	set(was)
}

// TestOnlyThePresentLeadershipServes verifies that serve opens a node only for its current leadership, and only
// while it leads in that term.
func TestOnlyThePresentLeadershipServes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, nodes := openTogether(t, 2)
		leader, follower := nodes[0], nodes[1]
		begin := func(r *Replica, term uint64) *leadership {
			lead := &leadership{term: term}
			lead.ctx, lead.cancel = context.WithCancel(r.ctx)
			lead.r = r
			return lead
		}
		term := leader.current().term
		past := begin(leader.Replica, term)
		leader.serve(past)
		later := begin(leader.Replica, term+1)
		leader.inLeadership(later, func() { leader.serve(later) })
		others := begin(follower.Replica, term)
		follower.inLeadership(others, func() { follower.serve(others) })
		for name, lead := range map[string]*leadership{"a former leadership": past, "one of another term": later, "a follower's": others} {
			if lead.serving {
				t.Errorf("%s serves", name)
			}
		}
		again := begin(leader.Replica, term)
		leader.inLeadership(again, func() { leader.serve(again) })
		if !again.serving {
			t.Error("the present one does not serve")
		}
		again.cancel()
	})
}

// TestStartOfALeadership verifies that only a leader that is neither stopping nor failed starts a leadership.
func TestStartOfALeadership(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, nodes := openTogether(t, 2)
		leader, follower := nodes[0], nodes[1]
		closing := func(is bool) {
			leader.mu.Lock()
			defer leader.mu.Unlock()
			leader.closing = is
		}
		begins := func(n *teammate) bool {
			n.startLeadership(n.cluster.Raft())
			return n.current() != nil
		}
		leader.endLeadership("the test wants it")
		if n := leader.log.lines("leadership ended"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if begins(follower) {
			t.Error("a follower starts a leadership")
		}
		closing(true)
		if begins(leader) {
			t.Error("a node that stops starts a leadership")
		}
		closing(false)
		leader.halted.Store(&errDisk)
		if begins(leader) {
			t.Error("a node that has failed starts a leadership")
		}
		leader.halted.Store(nil)
		leader.proposeBarrier(nil)
		if !begins(leader) {
			t.Error("a leader starts no leadership")
		}
		awaitRaft(t, "the leader serves again", leader.Serving)
	})
}

// TestBeginningIsRepeated verifies that the barrier is proposed again after the first barriers, or the
// bootstrap, were refused.
func TestBeginningIsRepeated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, err := Open(t.Context(), lone(t, inMemory(), func(err error) { t.Error(err) }))
		if err != nil {
			t.Fatal(err)
		}
		refusals := 0
		r.onCommand(func(cmd *wire.Command) bool {
			return cmd.GetBeginTerm() != nil && refusals < 2 || cmd.GetBootstrap() != nil && refusals == 2
		}, func([]byte) raft.ApplyFuture {
			refusals++
			return groupcommit.Failed{Err: raft.ErrEnqueueTimeout}
		})
		awaitRaft(t, "the node serves", r.Serving)
		if refusals != 3 {
			t.Errorf("%d attempts were refused", refusals)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestWhichBarriersAreRepeated verifies which failed barriers are proposed again.
func TestWhichBarriersAreRepeated(t *testing.T) {
	n := &Replica{}
	for code, want := range map[wire.Status_Code]int{
		wire.Status_UNAVAILABLE: 1, wire.Status_INTERNAL: 1, wire.Status_UNCERTAIN: 1, wire.Status_NOT_LEADER: 0, wire.Status_FAILED_PRECONDITION: 0,
	} {
		lead := &leadership{refusedBarrier: make(chan struct{}, 1)}
		n.retryBarrier(lead, status.Result(code, ""))
		n.retryBarrier(lead, status.Result(code, ""))
		if got := len(lead.refusedBarrier); got != want {
			t.Errorf("%v: %d", code, got)
		}
	}
}

// TestBeginningOfACluster verifies that the bootstrap has the members that were seen, and the cluster id if
// it is known.
func TestBeginningOfACluster(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, certified := range []string{"", "c"} {
			n := openIdle(t, func(cfg *Config) { cfg.ClusterID, cfg.TokenFloor = certified, 1<<60 })
			if _, err := n.directory.Store(0, &wire.Membership{Members: []*wire.Member{someMember("n2"), someMember("n9")}}); err != nil {
				t.Fatal(err)
			}
			b := n.bootstrapCommand().GetBootstrap()
			if b.ClusterId == "" || certified != "" && b.ClusterId != certified || b.TokenFloor != 1<<60 || b.Lineage == "" || len(b.Members) != 3 {
				t.Fatalf("certified %q: %v", certified, b)
			}
			for i, incarnation := range []string{"", "i-n2", ""} {
				if m := b.Members[i]; m.Incarnation != incarnation || m.PeerAddr != m.Id+":7401" {
					t.Errorf("member %d: %v", i, m)
				}
			}
		}
	})
}

// TestFollowedLeader checks the reports about leading and following of two nodes and of one that does not
// run.
func TestFollowedLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		idle := openIdle(t, nil)
		_, nodes := openTogether(t, 2)
		leader, follower := nodes[0], nodes[1]
		id, other := raft.ServerID(leader.cfg.ID), raft.ServerID(follower.cfg.ID)
		_, one := openTogether(t, 1)
		if err := one[0].cluster.Raft().AddNonvoter("n9", "n9:7401", 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct{ got, want bool }{
			"a follower follows the leader":    {follower.cluster.Follows(id), true},
			"a follower follows itself":        {follower.cluster.Follows(other), false},
			"the leader follows itself":        {leader.cluster.Follows(id), false},
			"a node that does not run follows": {idle.cluster.Follows(id), false},
			"the leader awaits the follower":   {leader.awaited(other), true},
			"the leader awaits a stranger":     {leader.awaited("n9"), false},
			"a follower awaits the leader":     {follower.awaited(id), false},
			"a node that does not run awaits":  {idle.awaited(id), false},
			"the leader leads others":          {leader.cluster.LeadsOthers(), true},
			"a follower leads others":          {follower.cluster.LeadsOthers(), false},
			"a single voter leads others":      {one[0].cluster.LeadsOthers(), false},
			"a node that does not run leads":   {idle.cluster.LeadsOthers(), false},
		} {
			if c.got != c.want {
				t.Errorf("%s: %v", name, c.got)
			}
		}
	})
}

// TestMajoritiesThatAreLost checks lost majorities for clusters of each size.
func TestMajoritiesThatAreLost(t *testing.T) {
	for _, c := range []struct {
		voters, wiped int
		lost          bool
	}{{2, 0, false}, {2, 1, true}, {3, 0, false}, {3, 1, false}, {3, 2, true}, {4, 1, false}, {4, 2, true}} {
		bubble.Test(t, func(t *testing.T) {
			n := openIdle(t, nil)
			if lost := n.cluster.LostMajority(); lost != nil {
				t.Errorf("without raft: %v", lost)
			}
			ids := []string{"n1", "n2", "n3", "n4"}
			n.runRaft(t, ids[:c.voters]...)
			for _, id := range ids[1 : 1+c.wiped] {
				n.cluster.Seen(id, wire.Standing_REPLACED)
			}
			if lost := n.cluster.LostMajority(); (lost != nil) != c.lost || c.lost && len(lost) != c.wiped {
				t.Errorf("%d of %d: %v", c.wiped, c.voters, lost)
			}
			if said := n.nodeState(&wire.PeerHello{Id: "n1"}).MajorityLost; said != c.lost {
				t.Errorf("%d of %d: it says %v", c.wiped, c.voters, said)
			}
			n.warnLostMajority()
			if logged := n.log.lines("no leader can be elected") == 1; logged != c.lost {
				t.Errorf("%d of %d: logged %v", c.wiped, c.voters, logged)
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		_, nodes := openTogether(t, 1)
		nodes[0].cluster.Seen("n1", wire.Standing_REPLACED)
		if lost := nodes[0].cluster.LostMajority(); lost != nil {
			t.Errorf("with a leader: %v", lost)
		}
	})
}

// TestFailureIsReportedOnce verifies that a failure is reported to Halt once, before anything is logged about it,
// and that the peer port is closed.
func TestFailureIsReportedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, nodes := openTogether(t, 1)
		r, told := nodes[0], []error(nil)
		r.cfg.Halt = func(err error) {
			if told = append(told, err); r.log.lines("leadership ended")+r.log.lines("must stop") > 0 {
				t.Error("it was logged before")
			}
		}
		r.halt(errDisk)
		synctest.Wait()
		if conn, err := net.Host("n2").Dial(t.Context(), "n1:7401"); err == nil {
			_ = conn.Close()
			t.Error("the peer port is open")
		}
		r.halt(errors.New("another one"))
		if len(told) != 1 || !errors.Is(told[0], errDisk) || *r.halted.Load() != errDisk || r.Serving() || r.log.lines("must stop") != 1 {
			t.Errorf("told %v", told)
		}
		n := openIdle(t, func(cfg *Config) { cfg.Halt = func(err error) { t.Error(err) } })
		n.halt(errDisk)
		synctest.Wait()
		conn, err := n.net.Host("n2").Dial(t.Context(), "n1:7401")
		if err != nil {
			t.Fatal("a node that is being opened closes its port by itself:", err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	})
}

// TestStartOfANodeThatHasFailed verifies that a node that fails during its start does not start and returns
// the reason.
func TestStartOfANodeThatHasFailed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		n.halted.Store(&errDisk)
		if err := n.startAgain(t.Context()); err != errDisk {
			t.Error(err)
		}
	})
}
