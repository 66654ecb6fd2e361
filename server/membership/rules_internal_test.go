package membership

import (
	"errors"
	"fmt"
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

func TestAdmit(t *testing.T) {
	empty := &wire.NodeState{Empty: true, Member: &wire.Member{Id: "n4", Incarnation: "i4", PeerAddr: "its own word"}}
	used := &wire.NodeState{Member: &wire.Member{Id: "n4", Incarnation: "i4"}}
	for name, c := range map[string]struct {
		a        probe.Answer
		recorded string
		want     error
	}{
		"empty and new":                     {probe.Answer{State: empty}, "", nil},
		"used and new":                      {probe.Answer{State: used}, "", status.ErrPrecondition},
		"recorded, and empty still":         {probe.Answer{State: empty}, "i4", nil},
		"recorded, and a member already":    {probe.Answer{State: used}, "i4", nil},
		"recorded, and answers as somebody": {probe.Answer{Err: peerport.ErrRefused}, "i4", status.ErrPrecondition},
		"silent":                            {probe.Answer{Err: errors.New("no route")}, "", status.ErrPrecondition},
		"of another cluster":                {probe.Answer{Cluster: "other"}, "", status.ErrPrecondition},
		"recorded, of another cluster":      {probe.Answer{Cluster: "other", State: used}, "i4", status.ErrPrecondition},
	} {
		c.a.Peer = directory.Peer{ID: "n4", Addr: "n4:7401"}
		m, err := admit(c.a, c.recorded)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || m.GetIncarnation() != "i4" || m.GetPeerAddr() != "n4:7401") {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}

// TestCheckCandidate verifies which empty nodes are refused for their version or their clock.
func TestCheckCandidate(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for name, c := range map[string]struct {
		level uint32
		ahead time.Duration
		says  string
	}{
		"as the cluster":      {2, 0, ""},
		"newer":               {3, maxClockDifference, ""},
		"its clock is late":   {2, -maxClockDifference, ""},
		"older":               {1, 0, "upgrade it"},
		"its clock is ahead":  {2, maxClockDifference + time.Second, "31s ahead"},
		"its clock is behind": {2, -maxClockDifference - time.Second, "31s behind"},
	} {
		state := &wire.NodeState{Member: &wire.Member{Id: "n4", Level: c.level}, ClockUnixMs: now.Add(c.ahead).UnixMilli()}
		err := checkCandidate(state, 2, now)
		if (err != nil) != (c.says != "") || err != nil && (!errors.Is(err, status.ErrPrecondition) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValid(t *testing.T) {
	for _, c := range []struct {
		id, addr string
		want     error
	}{
		{"n4", "n4:7401", nil}, {"n4", "[::1]:7401", nil},
		{"", "n4:7401", status.ErrInvalid}, {"n4", "", status.ErrInvalid}, {"n4", "n4", status.ErrInvalid}, {"n4", "::1:7401", status.ErrInvalid},
	} {
		if err := Valid(&wire.AddMemberRequest{Id: c.id, PeerAddr: c.addr}); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%q at %q: %v", c.id, c.addr, err)
		}
	}
}

// configured returns a raft configuration with these voters and non-voters.
func configured(voters []string, others ...string) map[string]raft.Server {
	servers := map[string]raft.Server{}
	for _, id := range voters {
		servers[id] = raft.Server{ID: raft.ServerID(id), Suffrage: raft.Voter}
	}
	for _, id := range others {
		servers[id] = raft.Server{ID: raft.ServerID(id), Suffrage: raft.Nonvoter}
	}
	return servers
}

// drainedIDs reports whether a node is drained in these tests.
func drainedIDs(id string) bool { return strings.HasPrefix(id, "d") }

func TestRemovable(t *testing.T) {
	for name, c := range map[string]struct {
		id       string
		servers  map[string]raft.Server
		recorded bool
		want     error
	}{
		"one of two voters":            {"n1", configured([]string{"n1", "n2"}), true, nil},
		"the last voter":               {"n1", configured([]string{"n1"}), true, status.ErrPrecondition},
		"the last voter beside others": {"n1", configured([]string{"n1"}, "n2", "n3"), true, status.ErrPrecondition},
		"one without a vote":           {"n2", configured([]string{"n1"}, "n2"), true, nil},
		"recorded only":                {"n2", configured([]string{"n1"}), true, nil},
		"configured only":              {"n2", configured([]string{"n1", "n2"}), false, nil},
		"unknown":                      {"n2", configured([]string{"n1"}), false, status.ErrNotFound},
		"the last that may lead":       {"n1", configured([]string{"n1", "d2", "d3"}), true, status.ErrPrecondition},
		"a drained one":                {"d2", configured([]string{"n1", "d2", "d3"}), true, nil},
		"without a vote, all drained":  {"n2", configured([]string{"d3"}, "n2"), true, nil},
	} {
		err := removable(c.id, c.servers, c.recorded, drainedIDs)
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if last := strings.HasPrefix(name, "the last voter"); last != strings.Contains(fmt.Sprint(err), "is the last voter") {
			t.Errorf("%s: it says %v", name, err)
		}
	}
}

func TestMajorityOf(t *testing.T) {
	for _, c := range []struct {
		voters, answered int
		enough           bool
	}{{1, 1, true}, {2, 1, false}, {2, 2, true}, {3, 1, false}, {3, 2, true}, {4, 2, false}, {4, 3, true}, {6, 3, false}, {6, 4, true}} {
		if err := majorityOf("n9", c.voters, c.answered); (err == nil) != c.enough || err != nil && !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("%d of %d: %v", c.answered, c.voters, err)
		}
	}
}

// TestHowMuchMayBeLackingToVote verifies that a node may lack exactly probe.CaughtUp entries to get its vote.
func TestHowMuchMayBeLackingToVote(t *testing.T) {
	const last = 1_000
	for has, enough := range map[uint64]bool{last + 1: true, last: true, last - probe.CaughtUp: true, last - probe.CaughtUp - 1: false, 0: false} {
		state := &wire.NodeState{AppliedIndex: has, LastIndex: last, Member: &wire.Member{Incarnation: "i"}}
		if got := mayVote(state, "i", last); got != enough {
			t.Errorf("with %d of %d: %v", has, last, got)
		}
	}
}

func TestMayVote(t *testing.T) {
	as := func(incarnation string, empty bool) *wire.NodeState {
		return &wire.NodeState{AppliedIndex: 9, Empty: empty, Member: &wire.Member{Incarnation: incarnation}}
	}
	for name, c := range map[string]struct {
		state *wire.NodeState
		want  bool
	}{
		"as recorded": {as("i", false), true}, "silent": {nil, false},
		"of another disk": {as("j", false), false}, "empty": {as("i", true), false}, "unnamed": {as("", false), false},
	} {
		if got := mayVote(c.state, "i", 9); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAwaitsVote(t *testing.T) {
	for _, c := range []struct {
		suffrage raft.ServerSuffrage
		addr     string
		want     bool
	}{{raft.Nonvoter, "a:1", true}, {raft.Voter, "a:1", false}, {raft.Nonvoter, "", false}} {
		if got := awaitsVote(raft.Server{Suffrage: c.suffrage}, &wire.Member{PeerAddr: c.addr}); got != c.want {
			t.Errorf("%v at %q: %v", c.suffrage, c.addr, got)
		}
	}
}

func TestUnchanged(t *testing.T) {
	was, member := raft.Server{ID: "n4", Address: "a:1", Suffrage: raft.Nonvoter}, &wire.Member{Incarnation: "i"}
	moved, voter := was, was
	moved.Address, voter.Suffrage = "b:1", raft.Voter
	for name, c := range map[string]struct {
		is    raft.Server
		known *wire.Member
		want  bool
	}{
		"as it was": {was, member, true}, "moved": {moved, member, false}, "votes already": {voter, member, false},
		"replaced": {was, &wire.Member{Incarnation: "j"}, false}, "forgotten": {was, nil, false},
	} {
		if got := unchanged(was, c.is, member, c.known); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestConfigError(t *testing.T) {
	other := errors.New("configuration changed since 7")
	for given, want := range map[error]error{
		raft.ErrNotLeader:                    status.ErrNotLeader,
		raft.ErrEnqueueTimeout:               status.ErrUnavailable,
		raft.ErrLeadershipTransferInProgress: status.ErrUnavailable,
		raft.ErrRaftShutdown:                 status.ErrUnavailable,
		raft.ErrLeadershipLost:               status.ErrUncertain,
		other:                                status.ErrPrecondition,
	} {
		got := configError(given)
		for _, kind := range []error{status.ErrNotLeader, status.ErrUnavailable, status.ErrUncertain, status.ErrPrecondition} {
			if errors.Is(got, kind) != (kind == want) {
				t.Errorf("%v: %v", given, got)
			}
		}
	}
	if err := configError(nil); err != nil {
		t.Error(err)
	}
}
