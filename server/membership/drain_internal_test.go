package membership

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestWhichRecordsDescribeANode verifies that a node does not report itself again because it is drained.
func TestWhichRecordsDescribeANode(t *testing.T) {
	self := &wire.Member{Id: "n1", Incarnation: "i", Level: 1}
	for name, c := range map[string]struct {
		known *wire.Member
		want  bool
	}{
		"as it is":           {&wire.Member{Id: "n1", Incarnation: "i", Level: 1}, true},
		"drained":            {&wire.Member{Id: "n1", Incarnation: "i", Level: 1, Drained: true}, true},
		"drained, and older": {&wire.Member{Id: "n1", Incarnation: "i", Drained: true}, false},
		"unknown":            {nil, false},
	} {
		if got := Describes(c.known, self); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if c.known.GetDrained() != strings.HasPrefix(name, "drained") {
			t.Errorf("%s: the record was changed", name)
		}
	}
}

func TestAnyMayLead(t *testing.T) {
	for name, c := range map[string]struct {
		without string
		voters  []string
		others  []string
		want    bool
	}{
		"one of two": {"n1", []string{"n1", "n2"}, nil, true}, "alone": {"n1", []string{"n1"}, nil, false},
		"the others are drained":    {"n1", []string{"n1", "d2", "d3"}, nil, false},
		"the other one cannot vote": {"n1", []string{"n1"}, []string{"n2"}, false},
		"one is drained already":    {"n1", []string{"n1", "n2", "d3"}, nil, true},
	} {
		if got := anyMayLead(c.without, configured(c.voters, c.others...), drainedIDs); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestUnsafeToStop verifies when a node can be stopped, and which nodes are named if it cannot.
func TestUnsafeToStop(t *testing.T) {
	const committed = 1_000
	up := func(id string) *wire.NodeStatus {
		return &wire.NodeStatus{Id: id, Voter: true, Reachable: true, AppliedIndex: committed - probe.CaughtUp}
	}
	down := func(id string) *wire.NodeStatus {
		return &wire.NodeStatus{Id: id, Voter: true, AppliedIndex: committed}
	}
	late := func(id string) *wire.NodeStatus {
		return &wire.NodeStatus{Id: id, Voter: true, Reachable: true, AppliedIndex: committed - probe.CaughtUp - 1}
	}
	joins := &wire.NodeStatus{Id: "n8", Reachable: true, AppliedIndex: committed}
	leader := up("n1")
	leader.Leader = true
	for name, c := range map[string]struct {
		nodes []*wire.NodeStatus // the first one is to be stopped
		says  string             // "" if it can be
	}{
		"one of three":                         {[]*wire.NodeStatus{up("n2"), leader, up("n3")}, ""},
		"one that is down already":             {[]*wire.NodeStatus{down("n2"), leader, up("n3")}, ""},
		"the leader":                           {[]*wire.NodeStatus{leader, up("n2"), up("n3")}, "it leads"},
		"the leader without a majority":        {[]*wire.NodeStatus{leader, up("n2"), down("n3")}, "it leads; the cluster would lose its majority"},
		"another one is down":                  {[]*wire.NodeStatus{up("n2"), leader, down("n3")}, "1 of 3 voters are ready, and 2 are needed: n3 does not answer"},
		"another one lags":                     {[]*wire.NodeStatus{up("n2"), leader, late("n3")}, "n3 lacks 257 entries"},
		"one of two":                           {[]*wire.NodeStatus{up("n2"), leader}, "1 of 2 voters are ready, and 2 are needed"},
		"a node without a vote does not count": {[]*wire.NodeStatus{up("n2"), leader, joins}, "1 of 2 voters"},
		"a node without a vote":                {[]*wire.NodeStatus{joins, leader, down("n3")}, ""},
		"one of four":                          {[]*wire.NodeStatus{up("n2"), leader, up("n3"), up("n4")}, ""},
		"one of four, another down":            {[]*wire.NodeStatus{up("n2"), leader, up("n3"), down("n4")}, "2 of 4 voters are ready, and 3 are needed: n4"},
		"one of five, another down":            {[]*wire.NodeStatus{up("n2"), leader, up("n3"), up("n4"), down("n5")}, ""},
		"one of five, others down and late":    {[]*wire.NodeStatus{up("n2"), leader, up("n3"), down("n4"), late("n5")}, "n4 does not answer, n5 lacks"},
	} {
		s := &wire.StatusResponse{CommitIndex: committed, Nodes: c.nodes}
		DescribeStops(s)
		if got := s.Nodes[0].UnsafeToStop; (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}
