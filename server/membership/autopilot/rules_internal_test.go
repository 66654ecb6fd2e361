package autopilot

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestReplies verifies what an answer shows of a member, to the leader n1 in term 7.
func TestReplies(t *testing.T) {
	state := func(incarnation, leader string, term uint64) *wire.NodeState {
		return &wire.NodeState{Member: &wire.Member{Id: "n2", Incarnation: incarnation}, LeaderId: leader, Term: term, AppliedIndex: 5}
	}
	for name, c := range map[string]struct {
		state            *wire.NodeState
		recorded         string
		answers, follows bool
	}{
		"a follower":                 {state("i2", "n1", 7), "i2", true, true},
		"of an older term":           {state("i2", "n1", 6), "i2", true, false},
		"of another leader":          {state("i2", "n3", 7), "i2", true, false},
		"silent":                     {nil, "i2", false, false},
		"without its data":           {state("other", "", 0), "i2", false, false},
		"that knows no leader yet":   {state("", "", 7), "i2", true, false},
		"not recorded, and a leader": {state("i2", "n2", 8), "", true, false},
	} {
		r := replyOf(probe.Answer{Peer: directory.Peer{ID: "n2"}, State: c.state}, c.recorded, "n1", 7)
		if r.id != "n2" || r.answers != c.answers || r.follows != c.follows || c.answers && (r.applied != 5 || r.term != c.state.Term) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestContacts verifies for how long a member counts as silent, and as apart from its leader.
func TestContacts(t *testing.T) {
	now := time.Now()
	gone, returned, follower := reply{id: "n2"}, reply{id: "n2", answers: true, term: 6, applied: 3}, reply{id: "n2", answers: true, follows: true, term: 7, applied: 4}
	var c contacts
	for i, step := range []struct {
		after         time.Duration
		reply         reply
		silent, apart time.Duration
		applied       uint64
	}{
		{0, gone, 0, 0, 0}, // a new leader begins with nothing
		{time.Second, gone, time.Second, time.Second, 0},
		{time.Second, returned, 0, 2 * time.Second, 3},
		{time.Second, gone, time.Second, 3 * time.Second, 3},
		{time.Second, follower, 0, 0, 4},
		{time.Second, follower, 0, 0, 4},
		{time.Second, gone, time.Second, time.Second, 4},
		{time.Hour, gone, time.Second + maxRound, time.Second + maxRound, 4}, // this process was stopped
		{time.Second, follower, 0, 0, 4},
	} {
		now = now.Add(step.after)
		c.record(now, []reply{step.reply, {id: "n3", answers: true, follows: true}})
		if k, ok := c.of("n2"); !ok || k.silent != step.silent || k.apart != step.apart || k.applied != step.applied {
			t.Errorf("step %d: %+v", i, k)
		}
		if k, ok := c.of("n3"); !ok || k.silent != 0 || k.apart != 0 {
			t.Errorf("step %d: the other one: %+v", i, k)
		}
	}
	c.record(now, nil)
	if k, ok := c.of("n2"); ok {
		t.Errorf("a former member is known: %+v", k)
	}
}

// TestKeptMembers verifies that no removal leaves fewer voters than the minimum, that members without a vote do not
// count, and that a drained member is kept.
func TestKeptMembers(t *testing.T) {
	servers := map[string]raft.Server{}
	for _, id := range []string{"n1", "n2", "n3"} {
		servers[id] = raft.Server{ID: raft.ServerID(id), Suffrage: raft.Voter}
	}
	servers["n5"] = raft.Server{ID: "n5", Suffrage: raft.Nonvoter}
	set := Settings{}.WithDefaults()
	if err := set.keep(&wire.Member{Id: "n3"}, servers); !errors.Is(err, status.ErrPrecondition) {
		t.Errorf("one of three voters: %v", err)
	}
	if err := set.keep(&wire.Member{Id: "n5"}, servers); err != nil {
		t.Errorf("a member without a vote: %v", err)
	}
	servers["n4"] = raft.Server{ID: "n4", Suffrage: raft.Voter}
	if err := set.keep(&wire.Member{Id: "n3"}, servers); err != nil {
		t.Errorf("one of four voters: %v", err)
	}
	if err := set.keep(&wire.Member{Id: "n3", Drained: true}, servers); !errors.Is(err, status.ErrPrecondition) {
		t.Errorf("one of four voters, which is drained: %v", err)
	}
	set.MinQuorum = 4
	if err := set.keep(&wire.Member{Id: "n3"}, servers); !errors.Is(err, status.ErrPrecondition) {
		t.Errorf("one of four voters, all of which are needed: %v", err)
	}
}

// TestLibraryChangesNothing verifies that a promotion that the library asks for is handed over, and everything else
// refused.
func TestLibraryChangesNothing(t *testing.T) {
	var promoted string
	r := readOnlyRaft{promote: func(id string) { promoted = id }}
	if err := r.AddVoter("n4", "n4:7401", 0, 0).Error(); err != nil || promoted != "n4" {
		t.Errorf("promoted %q: %v", promoted, err)
	}
	for what, err := range map[string]error{
		"add":      r.AddNonvoter("n4", "n4:7401", 0, 0).Error(),
		"demote":   r.DemoteVoter("n4", 0, 0).Error(),
		"remove":   r.RemoveServer("n4", 0, 0).Error(),
		"transfer": r.LeadershipTransferToServer("n4", "n4:7401").Error(),
	} {
		if !errors.Is(err, errOurs) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
