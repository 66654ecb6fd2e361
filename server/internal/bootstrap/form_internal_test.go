package bootstrap

import (
	"context"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// expecting returns node n1, which forms a cluster with two others that it finds.
func expecting(t *testing.T) *node {
	return newNode(t, func(cfg *Config) { cfg.Configured, cfg.Expected = nil, 3 })
}

// proposing is an empty node that expects three and proposes these members.
func proposing(ids ...string) *wire.NodeState {
	state := &wire.NodeState{Empty: true, ExpectedNodes: 3}
	for _, id := range ids {
		state.Proposed = append(state.Proposed, someMember(id))
	}
	return state
}

// TestClusterIsFormedByAgreement verifies that a node begins a cluster only once all expected nodes propose the same
// members.
func TestClusterIsFormedByAgreement(t *testing.T) {
	all := []string{"n1", "n2", "n3"}
	moved := proposing(all...)
	moved.Proposed[0].PeerAddr = "elsewhere:7401"
	for name, c := range map[string]struct {
		n2, n3 *wire.NodeState
		begins bool
		logs   string
	}{
		"all propose the same":        {proposing(all...), proposing(all...), true, ""},
		"one is silent":               {proposing(all...), nil, false, "waiting for the other nodes of the new cluster"},
		"one has not found all":       {proposing(all...), proposing(), false, "to find all of them"},
		"one proposes others":         {proposing(all...), proposing("n2", "n3", "n4"), false, "to find all of them"},
		"one has another address":     {proposing(all...), moved, false, "to find all of them"},
		"one expects more":            {proposing(all...), &wire.NodeState{Empty: true, ExpectedNodes: 5}, false, "expects 5 nodes"},
		"one only joins":              {proposing(all...), &wire.NodeState{Empty: true}, false, "waiting for the other nodes of the new cluster"},
		"two have one id":             {proposing(all...), &wire.NodeState{Empty: true, ExpectedNodes: 3, Member: someMember("n2")}, false, "two nodes have the id"},
		"one has begun, and knows it": {proposing(all...), &wire.NodeState{Caller: wire.Standing_MEMBER, ClusterId: "c"}, true, "joining the cluster"},
	} {
		bubble.Test(t, func(t *testing.T) {
			n := expecting(t)
			n.answers("n2", c.n2)
			if c.n3 != nil {
				n.answers("n3", c.n3)
			}
			done, err := n.Try(t.Context(), 0)
			if err != nil || done != c.begins || n.started != c.begins || c.logs != "" && n.logged(c.logs) != 1 {
				t.Errorf("%s: %v, %v, logged %s", name, done, err, n.log.String())
			}
			if _, proposed := n.Proposal(); c.logs == "to find all of them" && !slices.Equal(ids(proposed), all) {
				t.Errorf("%s: proposed %v", name, proposed)
			}
			voters := n.InitialVoters().Servers
			if c.begins && c.logs == "" && (len(voters) != 3 || voters[2].Address != "n3:7401" || len(n.InitialMembers(nil)) != 3) {
				t.Errorf("%s: voters %v", name, voters)
			}
		})
	}
}

// TestProposalStands verifies that a node does not propose other members later: a node that has seen the first proposal
// may have begun that cluster.
func TestProposalStands(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := expecting(t)
		n.answers("n2", proposing())
		n.answers("n3", proposing())
		if done, err := n.Try(t.Context(), 0); done || err != nil {
			t.Fatal(done, err)
		}
		delete(n.others, "n3")
		n.cfg.Probe = func(ctx context.Context) []probe.Answer {
			other := proposing("n1", "n2", "n4")
			other.Member = someMember("n4")
			return append(n.probe(ctx), probe.Answer{Peer: directory.Peer{ID: "n4", Addr: "n4:7401"}, State: other})
		}
		n.others["n2"].Proposed = proposing("n1", "n2", "n4").Proposed
		if done, err := n.Try(t.Context(), 1); done || err != nil || n.started || n.logged("restart this node") != 1 {
			t.Errorf("%v, %v, logged %s", done, err, n.log.String())
		}
		if _, proposed := n.Proposal(); !slices.Equal(ids(proposed), []string{"n1", "n2", "n3"}) {
			t.Errorf("it proposes %v", ids(proposed))
		}
	})
}

// TestMoreNodesThanExpected verifies that no cluster is formed of a part of the nodes that expect it.
func TestMoreNodesThanExpected(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := newNode(t, func(cfg *Config) { cfg.Configured, cfg.Expected = nil, 2 })
		for _, id := range []string{"n2", "n3"} {
			n.answers(id, &wire.NodeState{Empty: true, ExpectedNodes: 2})
		}
		if done, err := n.Try(t.Context(), 0); done || err != nil || n.logged("3 nodes are there") != 1 {
			t.Errorf("%v, %v, logged %s", done, err, n.log.String())
		}
	})
}

// TestWhoAsksToJoin verifies which nodes ask the leader to add them.
func TestWhoAsksToJoin(t *testing.T) {
	for name, c := range map[string]struct {
		caller         wire.Standing
		reported       error
		joins          bool
		asked, reports int
	}{
		"unknown, and joins":             {wire.Standing_UNKNOWN, status.ErrNotFound, true, 1, 1},
		"unknown, and waits":             {wire.Standing_UNKNOWN, status.ErrNotFound, false, 0, 1},
		"unknown, the leader is changed": {wire.Standing_UNKNOWN, status.ErrNotLeader, true, 0, 1},
		"expected":                       {wire.Standing_EXPECTED, nil, true, 0, 1},
		"removed":                        {wire.Standing_REMOVED, status.ErrNotFound, true, 0, 0},
		"a member":                       {wire.Standing_MEMBER, status.ErrNotFound, true, 0, 0},
		"replaced":                       {wire.Standing_REPLACED, status.ErrNotFound, true, 0, 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			asked := 0
			n := newNode(t, func(cfg *Config) {
				cfg.Configured = nil
				if c.joins {
					cfg.Join = func(context.Context, directory.Peer) error { asked++; return nil }
				}
			})
			n.answers("n2", &wire.NodeState{Caller: c.caller, LeaderId: "n2", ClusterId: "c", Term: 1})
			n.reported = c.reported
			_, _ = n.Try(t.Context(), emptyRounds)
			if asked != c.asked || n.reports != c.reports {
				t.Errorf("%s: asked %d times after %d reports", name, asked, n.reports)
			}
		})
	}
}
