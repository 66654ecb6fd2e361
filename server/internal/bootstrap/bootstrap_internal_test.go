package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/advice"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var errDisk = errors.New("input/output error")

// store is a stable store that can fail to write.
type store struct {
	*raft.InmemStore
	broken bool
}

func (s *store) Set(key, value []byte) error {
	if s.broken {
		return errDisk
	}
	return s.InmemStore.Set(key, value)
}

// node is node n1 of a cluster of three, with an empty disk. The test sets the answers of the others.
type node struct {
	*Bootstrap
	store    *store
	log      bytes.Buffer
	others   map[string]*wire.NodeState
	reported error // the answer to a report

	probes, reports int
	started         bool
}

func newNode(t *testing.T, change func(*Config)) *node {
	t.Helper()
	n := &node{store: &store{InmemStore: raft.NewInmemStore()}, others: map[string]*wire.NodeState{}}
	configured := []directory.Peer{{ID: "n1", Addr: "n1:7401"}, {ID: "n2", Addr: "n2:7401"}, {ID: "n3", Addr: "n3:7401"}}
	d, err := directory.Open(directory.Config{
		ID: "n1", Incarnation: "i1", Cluster: "c", Configured: configured, Values: n.store,
		View: func(uint64, func(*fsm.Machine)) bool { return false },
		Ask: func(context.Context, directory.Peer, string, *wire.StandingRequest) wire.Standing {
			return wire.Standing_UNKNOWN
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	log := hclog.New(&hclog.LoggerOptions{Output: &n.log})
	cfg := Config{
		Configured: configured, Directory: d, Advice: advice.Node{ID: "n1", PeerAddr: "n1:7401"}, Logger: log, Waiting: ratelog.NewRepeated(log),
		Self:  func() *wire.Member { return someMember("n1") },
		Probe: n.probe,
		Report: func(context.Context, directory.Peer) error {
			n.reports++
			return n.reported
		},
		Start: func([]*wire.Member) error {
			n.started = true
			return nil
		},
	}
	if change != nil {
		change(&cfg)
	}
	n.Bootstrap = New(cfg)
	return n
}

// answers sets the state that another node answers with.
func (n *node) answers(id string, state *wire.NodeState) {
	state.Member = cmp.Or(state.Member, someMember(id))
	n.others[id] = state
}

// probe returns the answers of n2 and n3.
func (n *node) probe(context.Context) []probe.Answer {
	n.probes++
	var answers []probe.Answer
	for _, id := range []string{"n2", "n3"} {
		a := probe.Answer{Peer: directory.Peer{ID: id, Addr: id + ":7401"}, State: n.others[id]}
		if a.State == nil {
			a.Err = errors.New("no answer")
		}
		answers = append(answers, a)
	}
	return answers
}

// logged returns how often a text was logged.
func (n *node) logged(text string) int { return strings.Count(n.log.String(), text) }

func someMember(id string) *wire.Member {
	return &wire.Member{Id: id, Incarnation: "i-" + id, PeerAddr: id + ":7401"}
}

func says(id string, applied uint64, caller wire.Standing) probe.Answer {
	return probe.Answer{Peer: directory.Peer{ID: id, Addr: id + ":1"}, State: &wire.NodeState{Member: &wire.Member{Id: id}, AppliedIndex: applied, Caller: caller}}
}

func TestAssess(t *testing.T) {
	const member, replacedBy, gone, expected = wire.Standing_MEMBER, wire.Standing_REPLACED, wire.Standing_REMOVED, wire.Standing_EXPECTED
	silent, blank := probe.Answer{Peer: directory.Peer{ID: "n0", Addr: ""}}, says("n0", 99, member)
	blank.State.Empty = true
	for name, c := range map[string]struct {
		answers []probe.Answer
		want    Standing
		from    string
	}{
		"nobody answers":              {[]probe.Answer{silent}, Alone, ""},
		"only empty nodes answer":     {[]probe.Answer{silent, blank}, Alone, ""},
		"known":                       {[]probe.Answer{silent, blank, says("n1", 0, member)}, Known, "n1"},
		"replaced":                    {[]probe.Answer{says("n1", 5, replacedBy)}, Replaced, "n1"},
		"removed":                     {[]probe.Answer{says("n1", 5, gone)}, Removed, "n1"},
		"expected":                    {[]probe.Answer{says("n1", 5, expected)}, Unknown, "n1"},
		"unknown":                     {[]probe.Answer{says("n1", 5, wire.Standing_UNKNOWN)}, Unknown, "n1"},
		"most applied first":          {[]probe.Answer{says("n1", 6, replacedBy), says("n2", 5, member)}, Replaced, "n1"},
		"most applied last":           {[]probe.Answer{says("n2", 5, gone), says("n1", 6, wire.Standing_UNKNOWN)}, Unknown, "n1"},
		"as far, removed and known":   {[]probe.Answer{says("n2", 5, member), says("n1", 5, gone)}, Removed, "n1"},
		"as far, known and replaced":  {[]probe.Answer{says("n2", 5, replacedBy), says("n1", 5, member)}, Known, "n1"},
		"as far, replaced, unknown":   {[]probe.Answer{says("n2", 5, wire.Standing_UNKNOWN), says("n1", 5, replacedBy)}, Replaced, "n1"},
		"as far, known before others": {[]probe.Answer{says("n1", 5, member), says("n2", 5, replacedBy), says("n3", 5, expected)}, Known, "n1"},
		"the same: the first counts":  {[]probe.Answer{says("n1", 5, member), says("n2", 5, member)}, Known, "n1"},
	} {
		as, best := Assess(c.answers)
		if as != c.want || best.GetMember().GetId() != c.from {
			t.Errorf("%s: %v by %q, want %v by %q", name, as, best.GetMember().GetId(), c.want, c.from)
		}
	}
}

// TestMembersAreRecorded verifies that recordMembers records the members that know this node, at a revision before
// theirs.
func TestMembersAreRecorded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		knows := func(id string, revision uint64, change func(*wire.NodeState)) probe.Answer {
			a := says(id, 1, wire.Standing_MEMBER)
			a.State.Member, a.State.ClusterId, a.State.Revision = someMember(id), "c", revision
			if change != nil {
				change(a.State)
			}
			return a
		}
		other := func(s *wire.NodeState) { s.ClusterId = "d" }
		answers := []probe.Answer{
			knows("n2", 7, nil), knows("n3", 9, nil), knows("n4", 8, nil), {Peer: directory.Peer{ID: "n5", Addr: "n5:7401"}},
			knows("n6", 20, func(s *wire.NodeState) { other(s); s.Empty = true }),
			knows("n7", 21, func(s *wire.NodeState) { other(s); s.Caller = wire.Standing_EXPECTED }),
			knows("n8", 22, func(s *wire.NodeState) { other(s); s.Member.Incarnation = "" }),
		}
		if err := n.recordMembers(answers); err != nil {
			t.Fatal(err)
		}
		cluster, revision, members := n.cfg.Directory.Record()
		if cluster != "c" || revision != 8 || len(members) != 4 || members["n1"].GetIncarnation() != "i-n1" || members["n4"] == nil {
			t.Errorf("cluster %q at %d: %v", cluster, revision, members)
		}
		if err := n.recordMembers(nil); err != nil {
			t.Fatal(err)
		}
		if _, revision, _ := n.cfg.Directory.Record(); revision != 0 {
			t.Errorf("of nobody's: revision %d", revision)
		}
		n.store.broken = true
		if err := n.recordMembers(answers); !errors.Is(err, errDisk) {
			t.Errorf("not written down: %v", err)
		}
	})
}

// TestReplacedNodesAskAgain verifies that a replaced node asks again until the news has spread among the
// others, or there is no time left.
func TestReplacedNodesAskAgain(t *testing.T) {
	const both = firstRound + probe.Timeout
	led := func(caller wire.Standing) *wire.NodeState {
		return &wire.NodeState{Caller: caller, LeaderId: "n2", Term: 1}
	}
	leaderless := func(caller wire.Standing) *wire.NodeState { return &wire.NodeState{Caller: caller, Term: 1} }
	for name, c := range map[string]struct {
		state  *wire.NodeState
		silent bool // one of the other nodes
		round  int
		within time.Duration // 0 means no limit
		probes int
	}{
		"a leader":                            {led(wire.Standing_REPLACED), false, 0, 0, 1},
		"a leader, one is silent":             {led(wire.Standing_REPLACED), true, 0, 0, 2},
		"a leader, one is silent, later":      {led(wire.Standing_REPLACED), true, 1, 0, 1},
		"no leader":                           {leaderless(wire.Standing_REPLACED), false, 0, 0, emptyRounds + 1},
		"no leader, one is silent":            {leaderless(wire.Standing_REPLACED), true, 2, 0, emptyRounds - 1},
		"no leader, at last":                  {leaderless(wire.Standing_REPLACED), false, emptyRounds, 0, 1},
		"no leader, and no time":              {leaderless(wire.Standing_REPLACED), false, 0, both - 1, 1},
		"no leader, and time for one more":    {leaderless(wire.Standing_REPLACED), false, 0, both, 2},
		"a leader, one is silent, no time":    {led(wire.Standing_REPLACED), true, 0, both - 1, 1},
		"a leader, one is silent, never ends": {led(wire.Standing_REPLACED), true, 0, time.Hour, 2},
	} {
		bubble.Test(t, func(t *testing.T) {
			n := newNode(t, nil)
			n.answers("n2", c.state)
			if !c.silent {
				n.answers("n3", leaderless(wire.Standing_UNKNOWN))
			}
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if c.within > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.within)
			}
			defer cancel()
			done, err := n.Try(ctx, c.round)
			if done || !errors.Is(err, status.ErrReplaced) || n.probes != c.probes {
				t.Errorf("%s: after %d probes: %v, %v", name, n.probes, done, err)
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		n.answers("n2", leaderless(wire.Standing_REPLACED))
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(firstRound/2, cancel).Stop()
		if _, err := n.Try(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("given up while it waits: %v", err)
		}
		if _, err := n.Try(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("given up before: %v", err)
		}
		if n.probes != 2 { // the second one with a context that has ended
			t.Errorf("%d probes", n.probes)
		}
	})
}

// TestNodesWithoutStateStart verifies what an empty node does, depending on another node's answer.
func TestNodesWithoutStateStart(t *testing.T) {
	for name, c := range map[string]struct {
		state   *wire.NodeState
		answer  error
		done    bool
		err     string
		reports int
		logs    string
	}{
		"known":                 {&wire.NodeState{Caller: wire.Standing_MEMBER, ClusterId: "c"}, nil, true, "", 0, "joining the cluster"},
		"removed":               {&wire.NodeState{Caller: wire.Standing_REMOVED}, nil, false, "", 0, "this node was removed"},
		"unknown":               {&wire.NodeState{LeaderId: "n2"}, nil, false, "", 1, ""},
		"unknown, and refused":  {&wire.NodeState{LeaderId: "n2"}, status.ErrNotFound, false, "", 1, "waiting to be added to the cluster"},
		"unknown, no leader":    {&wire.NodeState{}, nil, false, "", 0, "waiting for the cluster to have a leader"},
		"empty as well":         {&wire.NodeState{Empty: true}, nil, false, "", 0, "waiting for a majority"},
		"of another cluster":    {&wire.NodeState{ClusterId: "d"}, nil, false, status.ErrOtherCluster.Error(), 0, ""},
		"empty, but of another": {&wire.NodeState{ClusterId: "d", Empty: true}, nil, false, status.ErrOtherCluster.Error(), 0, ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			n := newNode(t, nil)
			n.answers("n2", c.state)
			n.reported = c.answer
			done, err := n.Try(t.Context(), 0)
			if done != c.done || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, %v", name, done, err)
			}
			if n.started != c.done || n.reports != c.reports || c.logs != "" && n.logged(c.logs) != 1 || n.logged("waiting") > 1 || c.logs == "" && n.logged("waiting") > 0 {
				t.Errorf("%s: started %v, %d reports, logged %s", name, n.started, n.reports, n.log.String())
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		n.answers("n2", &wire.NodeState{Caller: wire.Standing_MEMBER})
		n.store.broken = true
		if done, err := n.Try(t.Context(), 0); done || err == nil || !strings.Contains(err.Error(), "join the cluster") {
			t.Errorf("members that are not written down: %v, %v", done, err)
		}
	})
}

// TestHowManyBeginACluster verifies how many configured nodes must answer, in early and late rounds.
func TestHowManyBeginACluster(t *testing.T) {
	for _, c := range []struct {
		configured, answers, round int
		begins                     bool
	}{
		{0, 0, emptyRounds, false}, {0, 2, emptyRounds, false}, {1, 0, 0, true},
		{2, 0, emptyRounds, false}, {2, 1, 0, true},
		{3, 0, emptyRounds, false}, {3, 1, emptyRounds - 1, false}, {3, 1, emptyRounds, true}, {3, 2, 0, true},
		{4, 1, emptyRounds, false}, {4, 2, emptyRounds, true}, {4, 3, 0, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			n := newNode(t, func(cfg *Config) {
				cfg.Configured = []directory.Peer{{ID: "n1", Addr: "n1:7401"}, {ID: "n2", Addr: "n2:7401"}, {ID: "n3", Addr: "n3:7401"}, {ID: "n4", Addr: "n4:7401"}}[:c.configured]
			})
			var answers []probe.Answer
			for i := range max(c.configured-1, c.answers) {
				a := says([]string{"n2", "n3", "n4"}[i], 0, wire.Standing_UNKNOWN)
				if i >= c.answers {
					a.State = nil
				}
				answers = append(answers, a)
			}
			if done, err := n.beginCluster(answers, c.round); done != c.begins || n.started != done || err != nil {
				t.Errorf("%d answer of %d in round %d: %v, %v", c.answers, c.configured, c.round, done, err)
			}
		})
	}
}

// TestInitialMembers verifies that the initial members are the configured nodes in order, with the
// incarnations that were seen.
func TestInitialMembers(t *testing.T) {
	b := New(Config{Configured: []directory.Peer{{ID: "n3", Addr: "h3:1"}, {ID: "n1", Addr: "h1:1"}, {ID: "n2", Addr: "h2:1"}}})
	var got []string
	for _, m := range b.InitialMembers([]*wire.Member{{Id: "n2", PeerAddr: "now:1", Incarnation: "i2"}, nil, {Id: "n9"}}) {
		got = append(got, m.Id+" "+m.PeerAddr+" "+m.Incarnation)
	}
	if want := []string{"n1 h1:1 ", "n2 now:1 i2", "n3 h3:1 "}; !slices.Equal(got, want) {
		t.Errorf("members %q", got)
	}
	var voters []string
	for _, s := range b.InitialVoters().Servers {
		voters = append(voters, string(s.ID)+" "+string(s.Address))
	}
	if want := []string{"n1 h1:1", "n2 h2:1", "n3 h3:1"}; !slices.Equal(voters, want) {
		t.Errorf("voters %q", voters)
	}
}
