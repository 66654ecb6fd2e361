package probe_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// from returns the answer of a node.
func from(id string, state *wire.NodeState) probe.Answer {
	return probe.Answer{Peer: directory.Peer{ID: id, Addr: id + ":1"}, State: state}
}

func TestSameCluster(t *testing.T) {
	of := func(clusters ...string) (answers []probe.Answer) {
		for _, cluster := range clusters {
			answers = append(answers, from("n1", &wire.NodeState{ClusterId: cluster}))
		}
		return answers
	}
	refusing := probe.Answer{Cluster: "d"} // does not report its state
	for name, c := range map[string]struct {
		mine    string
		answers []probe.Answer
		other   bool
	}{
		"none":                       {"", nil, false},
		"one":                        {"", of("c"), false},
		"one twice":                  {"", of("c", "", "c"), false},
		"two":                        {"", of("c", "", "d"), true},
		"this one":                   {"c", of("c"), false},
		"another one":                {"c", of("d"), true},
		"one that is none yet":       {"c", of(""), false},
		"another one, which refuses": {"c", []probe.Answer{refusing}, true},
		"this one, which refuses":    {"d", []probe.Answer{refusing}, false},
		"a silent node":              {"c", []probe.Answer{{}}, false},
		"this one, recovered":        {"c", of("c+1"), false},
		"this one, recovered twice":  {"c", of("c+1", "c+2"), true},
	} {
		mine, err := directory.Open(directory.Config{Cluster: c.mine, Values: raft.NewInmemStore()})
		if err != nil {
			t.Fatal(err)
		}
		if err := probe.SameCluster(c.answers, mine); errors.Is(err, status.ErrOtherCluster) != c.other {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLeader(t *testing.T) {
	leads := func(id, leader string, term uint64) probe.Answer {
		return from(id, &wire.NodeState{LeaderId: leader, Term: term})
	}
	for name, c := range map[string]struct {
		answers []probe.Answer
		leader  string
	}{
		"nobody":                  {nil, ""},
		"silence":                 {[]probe.Answer{{}}, ""},
		"no leader":               {[]probe.Answer{leads("n1", "", 4)}, ""},
		"one that did not answer": {[]probe.Answer{leads("n1", "n2", 4)}, ""},
		"one":                     {[]probe.Answer{leads("n1", "n2", 4), leads("n2", "n2", 4)}, "n2"},
		"an older one first":      {[]probe.Answer{leads("n1", "n1", 3), leads("n2", "n2", 4)}, "n2"},
		"an older one last":       {[]probe.Answer{leads("n2", "n2", 4), leads("n1", "n1", 3)}, "n2"},
		"in term 0":               {[]probe.Answer{leads("n2", "n2", 0)}, "n2"},
	} {
		leader, ok := probe.Leader(c.answers)
		if leader.ID != c.leader || ok != (c.leader != "") {
			t.Errorf("%s: %q, %v", name, leader.ID, ok)
		}
	}
}

// TestDescribe verifies that the clock of a peer is compared with the middle of the call, and that silence says nothing.
func TestDescribe(t *testing.T) {
	asked := time.UnixMilli(1_000_000)
	a := from("n2", &wire.NodeState{AppliedIndex: 7, Version: "v1", ClockUnixMs: 1_003_500})
	a.Asked, a.Took = asked, time.Second
	n := &wire.NodeStatus{Id: "n2"}
	a.Describe(n)
	if !n.Reachable || n.AppliedIndex != 7 || n.Version != "v1" || n.CallUs != 1_000_000 || n.ClockAheadMs != 3_000 {
		t.Errorf("%v", n)
	}
	a.Took = 0
	if a.Describe(n); n.CallUs != 1 {
		t.Errorf("a call that took no time: %v", n)
	}
	silent := &wire.NodeStatus{Id: "n2"}
	if (probe.Answer{Asked: asked, Took: time.Second}).Describe(silent); silent.Reachable || silent.CallUs != 0 {
		t.Errorf("%v", silent)
	}
}

func TestLongestLog(t *testing.T) {
	at := func(id string, last uint64) probe.Answer {
		return probe.Answer{Peer: directory.Peer{ID: id}, State: &wire.NodeState{LastIndex: last}}
	}
	silent := probe.Answer{Peer: directory.Peer{ID: "silent"}}
	for name, c := range map[string]struct {
		answers []probe.Answer
		want    string
	}{
		"first":   {[]probe.Answer{at("a", 9), silent, at("b", 8)}, "a"},
		"last":    {[]probe.Answer{at("a", 7), at("b", 8)}, "b"},
		"of none": {[]probe.Answer{silent, at("a", 0)}, "a"},
		"silent":  {[]probe.Answer{silent}, ""},
	} {
		if got := probe.LongestLog(c.answers); got.Peer.ID != c.want {
			t.Errorf("%s: %v", name, got.Peer)
		}
	}
}

func TestUnreachable(t *testing.T) {
	got := probe.Unreachable([]probe.Answer{{Peer: directory.Peer{ID: "n1"}, Err: errors.New("refused")}, from("n2", &wire.NodeState{})})
	if !slices.Equal(got, []string{"n1: refused"}) {
		t.Errorf("unreachable: %q", got)
	}
}

// TestUnanswered verifies that the error distinguishes a node that does not answer from one that refuses the
// call.
func TestUnanswered(t *testing.T) {
	for _, c := range []struct {
		cause error
		says  string
	}{{errors.New("no route"), "does not answer"}, {&peerport.RefusedError{Message: "no"}, "does not take the call"}} {
		err := probe.Unanswered(probe.Answer{Peer: directory.Peer{ID: "n2", Addr: "n2:7401"}, Err: c.cause}, "the remedy")
		if !errors.Is(err, status.ErrPrecondition) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "the remedy: "+c.cause.Error()) {
			t.Errorf("%v: %v", c.cause, err)
		}
	}
}

func TestQuorumOf(t *testing.T) {
	leads := func(id, leader string) probe.Answer {
		return from(id, &wire.NodeState{LeaderId: leader, Term: 4})
	}
	lost := leads("n3", "")
	lost.State.MajorityLost = true
	for name, c := range map[string]struct {
		answers []probe.Answer
		want    probe.Quorum
	}{
		"nobody":                       {nil, probe.NoLeader},
		"silence":                      {[]probe.Answer{{}}, probe.NoLeader},
		"no leader":                    {[]probe.Answer{leads("n1", "")}, probe.NoLeader},
		"one that did not answer":      {[]probe.Answer{leads("n1", "n2")}, probe.NoLeader},
		"one":                          {[]probe.Answer{leads("n1", "n2"), leads("n2", "n2")}, probe.HasLeader},
		"a majority is lost":           {[]probe.Answer{leads("n1", ""), lost}, probe.QuorumLost},
		"a majority was lost, one led": {[]probe.Answer{lost, leads("n2", "n2")}, probe.HasLeader},
	} {
		if got := probe.QuorumOf(c.answers); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
