package handover

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestElectable(t *testing.T) {
	servers := map[string]raft.Server{"n1": {ID: "n1", Suffrage: raft.Voter}, "n2": {ID: "n2", Suffrage: raft.Nonvoter}, "n4": {ID: "n4", Suffrage: raft.Voter}}
	drained := func(id string) bool { return id == "n4" }
	for id, want := range map[string]error{"n1": nil, "n2": status.ErrPrecondition, "n3": status.ErrNotFound, "n4": status.ErrPrecondition} {
		server, err := electable(id, servers, drained)
		if !errors.Is(err, want) || want == nil && (err != nil || server.ID != raft.ServerID(id)) {
			t.Errorf("%s: %v, %v", id, server, err)
		}
	}
}

// answerOf returns the answer of a node whose log ends there.
func answerOf(id string, last uint64, declines bool) probe.Answer {
	return probe.Answer{Peer: directory.Peer{ID: id}, State: &wire.NodeState{LastIndex: last, Declines: declines}}
}

// TestPreferredSuccessor verifies that the longest log counts only among the nodes that do not decline, if there are any.
func TestPreferredSuccessor(t *testing.T) {
	silent := probe.Answer{Peer: directory.Peer{ID: "n9"}}
	for name, c := range map[string]struct {
		answers []probe.Answer
		want    string
	}{
		"the longest log":             {[]probe.Answer{answerOf("n1", 7, false), answerOf("n2", 9, false)}, "n2"},
		"the longest one declines":    {[]probe.Answer{answerOf("n1", 7, false), answerOf("n2", 9, true)}, "n1"},
		"all decline":                 {[]probe.Answer{answerOf("n1", 7, true), answerOf("n2", 9, true), silent}, "n2"},
		"one declines, one is silent": {[]probe.Answer{silent, answerOf("n2", 9, true)}, "n2"},
	} {
		if got := preferred(c.answers); got.Peer.ID != c.want {
			t.Errorf("%s: %q", name, got.Peer.ID)
		}
	}
	if got := preferred([]probe.Answer{silent}); got.State != nil {
		t.Errorf("nobody answered: %v", got)
	}
}

// TestTakingOverFromADrainedLeader verifies that leadership moves only to a node that can lead at once, and is willing.
func TestTakingOverFromADrainedLeader(t *testing.T) {
	const last = 1_000
	for name, c := range map[string]struct {
		answer probe.Answer
		ok     bool
	}{
		"caught up": {answerOf("n2", last-probe.CaughtUp, false), true}, "lagging": {answerOf("n2", last-probe.CaughtUp-1, false), false},
		"declining": {answerOf("n2", last, true), false}, "silent": {probe.Answer{}, false},
	} {
		if err := takesOver(c.answer, last); (err == nil) != c.ok || err != nil && !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDrainedNodesTakeOverLast verifies the order in which a leader with a slow disk asks the others.
func TestDrainedNodesTakeOverLast(t *testing.T) {
	answers := []probe.Answer{answerOf("n5", 9, false), answerOf("n4", 8, false), answerOf("n3", 9, false), answerOf("n2", 7, false)}
	bestFirst(answers, func(id string) bool { return id == "n3" || id == "n5" })
	var got []string
	for _, a := range answers {
		got = append(got, a.Peer.ID)
	}
	if want := []string{"n4", "n2", "n3", "n5"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
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
		"its disk is slow, too": {&wire.NodeState{Term: 5, LeaderId: "n1", Declines: true}, false},
	} {
		if got := healthyFollower("n1", 5, probe.Answer{State: c.state}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestStoppingNodeDeclines verifies that a drained leader does not hand leadership back to the node that has just handed
// it over because it is stopping.
func TestStoppingNodeDeclines(t *testing.T) {
	stopping := make(chan struct{})
	close(stopping)
	if !New(Config{Done: stopping}).Declines() {
		t.Error("it does not decline")
	}
}
