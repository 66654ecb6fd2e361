package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/probe"
	"github.com/quorumlock/quorumlock/server/status"
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
		if got := healthyFollower("n1", 5, probe.Answer{State: c.state}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestWhoTakesPart verifies that a node answers neither about its leader nor when asked to stand if it is
// configured not to take part, has failed, or does not run yet.
func TestWhoTakesPart(t *testing.T) {
	takesPart := func(r *Replica) (answers, stands bool) {
		resp, err := r.serveStand(t.Context(), "n2", &wire.StandRequest{})
		return r.answerLoss(&wire.LeaderLossRequest{}) != nil, resp != nil || err != nil
	}
	bubble.Test(t, func(t *testing.T) {
		if a, b := takesPart(&Replica{}); a || b {
			t.Errorf("before raft runs: %v, %v", a, b)
		}
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		if a, b := takesPart(r); !a || !b {
			t.Errorf("a node that runs: %v, %v", a, b)
		}
		halted := &Replica{}
		halted.cluster.Run(r.cluster.Raft())
		halted.monitor.Store(r.monitor.Load())
		halted.halted.Store(&errDisk)
		if a, b := takesPart(halted); a || b {
			t.Errorf("halted: %v, %v", a, b)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		cfg := lone(t, inMemory(), func(err error) { t.Error(err) })
		cfg.NoFailoverHint = true
		off := serving(t, cfg)
		if a, b := takesPart(off); a || b {
			t.Errorf("switched off: %v, %v", a, b)
		}
		if err := off.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStandingNeedsALeader verifies that a leader does not stand, since it follows no node.
func TestStandingNeedsALeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		if err := r.mayStand("n1", r.cluster.Raft().CurrentTerm()); !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("a leader may stand: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
