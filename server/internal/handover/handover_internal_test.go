package handover

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestElectable(t *testing.T) {
	servers := map[string]raft.Server{"n1": {ID: "n1", Suffrage: raft.Voter}, "n2": {ID: "n2", Suffrage: raft.Nonvoter}}
	for id, want := range map[string]error{"n1": nil, "n2": status.ErrPrecondition, "n3": status.ErrNotFound} {
		server, err := electable(id, servers)
		if !errors.Is(err, want) || want == nil && (err != nil || server.ID != raft.ServerID(id)) {
			t.Errorf("%s: %v, %v", id, server, err)
		}
	}
}

// TestHowMuchMayBeLacking verifies that a node may lack exactly probe.CaughtUp entries to lead.
func TestHowMuchMayBeLacking(t *testing.T) {
	const last = 1_000
	for has, enough := range map[uint64]bool{last + 1: true, last: true, last - probe.CaughtUp: true, last - probe.CaughtUp - 1: false, 0: false} {
		err := ableToLead(probe.Answer{State: &wire.NodeState{LastIndex: has, AppliedIndex: last}}, last)
		if (err == nil) != enough || err != nil && !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("to lead with %d of %d: %v", has, last, err)
		}
	}
	if err := ableToLead(probe.Answer{}, 0); !errors.Is(err, status.ErrPrecondition) {
		t.Errorf("a silent node may lead: %v", err)
	}
}

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

// TestHealthyFollower verifies that only a follower of the current leader with a fast disk can lead in its place.
func TestHealthyFollower(t *testing.T) {
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
