package replica

import (
	"errors"
	"testing"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestParticipants verifies that a node answers neither about its leader nor when asked to call an election if it is
// configured not to take part, has failed, or does not run yet.
func TestParticipants(t *testing.T) {
	takesPart := func(r *Replica) (answers, stands bool) {
		resp, err := r.serveCampaign(t.Context(), "n2", &wire.CampaignRequest{})
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

// TestCampaignNeedsALeader verifies that a leader does not call an election, since it follows no node.
func TestCampaignNeedsALeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		if err := r.handover.MayCampaign("n1", r.cluster.Raft().CurrentTerm()); !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("a leader may call an election: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
