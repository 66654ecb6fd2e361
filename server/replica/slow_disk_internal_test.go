package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/failover"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestSuccessors verifies which node leads in place of this one, in one term and for a limited time.
func TestSuccessors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var s successor
		want := func(when string, own uint64, id string, term uint64, recent bool) {
			t.Helper()
			if gotID, gotTerm := s.of(own); gotID != id || gotTerm != term || s.recent() != recent {
				t.Errorf("%s: %q leads term %d in place of that of %d; recent %v", when, gotID, gotTerm, own, !recent)
			}
		}
		want("never handed over", 5, "", 5, false)
		s.set("n2", 5, 6)
		want("just now", 5, "n2", 6, true)
		want("an older term", 4, "", 4, true)
		want("the next term", 6, "", 6, true)
		time.Sleep(handOverRest - 1)
		want("not long ago", 5, "n2", 6, true)
		time.Sleep(time.Nanosecond)
		want("long ago", 5, "n2", 6, false)
	})
}

// TestWellUnder verifies that only a follower of the current leader with a fast disk can lead in its place.
func TestWellUnder(t *testing.T) {
	for name, c := range map[string]struct {
		state *wire.NodeState
		want  bool
	}{
		"a follower":            {&wire.NodeState{Term: 5, LeaderId: "n1"}, true},
		"silent":                {nil, false},
		"in a later term":       {&wire.NodeState{Term: 6, LeaderId: "n1"}, false},
		"of another leader":     {&wire.NodeState{Term: 5, LeaderId: "n2"}, false},
		"of none":               {&wire.NodeState{Term: 5}, false},
		"its disk is slow, too": {&wire.NodeState{Term: 5, LeaderId: "n1", DiskSlow: true}, false},
	} {
		if got := wellUnder("n1", 5, answer{state: c.state}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestWhoTakesPart verifies that a node answers neither about its leader nor when asked to stand if it is
// configured not to take part, has failed, or does not run yet.
func TestWhoTakesPart(t *testing.T) {
	takesPart := func(r *Replica) (testifies, stands bool) {
		resp, err := r.serveStand(t.Context(), "n2", &wire.StandRequest{})
		return r.testify(&wire.LeaderLossRequest{}) != nil, resp != nil || err != nil
	}
	bubble.Test(t, func(t *testing.T) {
		if a, b := takesPart(&Replica{}); a || b {
			t.Errorf("before raft runs: %v, %v", a, b)
		}
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		if a, b := takesPart(r); !a || !b {
			t.Errorf("a node that runs: %v, %v", a, b)
		}
		off := &Replica{}
		off.node.Store(r.node.Load())
		off.cfg.NoFailoverHint = true
		if a, b := takesPart(off); a || b {
			t.Errorf("switched off: %v, %v", a, b)
		}
		halted := &Replica{}
		halted.node.Store(r.node.Load())
		halted.halted.Store(&errDisk)
		if a, b := takesPart(halted); a || b {
			t.Errorf("halted: %v, %v", a, b)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestViewOfTheLeader verifies that the view combines raft's state with what the leader monitor has recorded.
func TestViewOfTheLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		node, v := r.node.Load(), r.leaderMonitor
		term, index := node.CurrentTerm(), node.LastIndex()
		want := failover.Self{ID: "n1", Leader: "n1", Term: term, Tail: failover.Tail{Term: term, Index: index}}
		see := func(when string) {
			t.Helper()
			if got := v.view(node); got != want {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		see("at first")
		v.observe(&raft.Observation{Data: raft.RequestVoteRequest{Term: term + 7}})
		v.observe(&raft.Observation{Data: raft.RequestVoteRequest{Term: term + 5}})
		want.Term = term + 7
		see("asked for its vote")
		v.called(4)
		v.called(3)
		want.Called = 4
		see("after a call")
		want.Saw = failover.Loss{Leader: "n2", Term: 4}
		v.saw(want.Saw)
		see("after a loss")
		v.seenAlive()
		want.Saw = failover.Loss{}
		see("seen alive")
		left := 0
		v.mu.Lock()
		v.leader, v.leave = "n2", func() { left++ }
		v.mu.Unlock()
		v.observe(&raft.Observation{Data: raft.LeaderObservation{LeaderID: "n2"}})
		if left != 0 {
			t.Error("left the leader that it has")
		}
		v.observe(&raft.Observation{Data: raft.LeaderObservation{LeaderID: "n3"}})
		if left != 1 {
			t.Error("stays with the former leader")
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStandingNeedsALeader verifies that a leader does not stand, since it follows no node.
func TestStandingNeedsALeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		if err := r.mayStand("n1", r.node.Load().CurrentTerm()); !errors.Is(err, ErrPrecondition) {
			t.Errorf("a leader may stand: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
