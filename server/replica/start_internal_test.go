package replica

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestWhoAnswersIsChecked probes nodes of this cluster and of others, and a node that listens at another's
// address.
func TestWhoAnswersIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		mine, theirs string
		is, says     string // the node that listens, and the one that it claims to be
		state        bool
		cluster      string
	}{
		"of this cluster":                  {"c", "c", "n2", "n2", true, ""},
		"of no cluster":                    {"c", "", "n2", "n2", true, ""},
		"to a node without cluster":        {"", "c", "n2", "n2", true, ""},
		"of another cluster":               {"c", "d", "n2", "n2", false, "d"},
		"another node":                     {"c", "c", "n9", "n9", false, ""},
		"another node, without cluster":    {"c", "", "n9", "n9", false, ""},
		"another node to one without one":  {"", "c", "n9", "n9", false, ""},
		"another node in the name of this": {"c", "c", "n2", "n9", false, ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			n := openIdle(t, func(cfg *Config) { cfg.ClusterID = c.mine })
			listenAs(t, n.net, "n2", &scripted{id: c.is, cluster: c.theirs, state: &wire.NodeState{Member: someMember(c.says)}})
			a := n.prober.One(t.Context(), Peer{ID: "n2", Addr: "n2:7401"})
			if (a.State != nil) != c.state || a.Cluster != c.cluster || a.Peer.ID != "n2" || (a.Err != nil) != (c.is == "n9" || c.cluster != "") {
				t.Errorf("%s: %+v", name, a)
			}
		})
	}
}

// TestMeetingTheMembers verifies that meet records the members that know this node, at a revision before
// theirs.
func TestMeetingTheMembers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
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
			knows("n2", 7, nil), knows("n3", 9, nil), knows("n4", 8, nil), {Peer: Peer{ID: "n5", Addr: "n5:7401"}},
			knows("n6", 20, func(s *wire.NodeState) { other(s); s.Empty = true }),
			knows("n7", 21, func(s *wire.NodeState) { other(s); s.Caller = wire.Standing_EXPECTED }),
			knows("n8", 22, func(s *wire.NodeState) { other(s); s.Member.Incarnation = "" }),
		}
		if err := n.meet(answers); err != nil {
			t.Fatal(err)
		}
		cluster, revision, members := n.directory.Record()
		if cluster != "c" || revision != 8 || len(members) != 4 || members["n1"].GetIncarnation() != "i1" || members["n4"] == nil {
			t.Errorf("cluster %q at %d: %v", cluster, revision, members)
		}
		if err := n.meet(nil); err != nil {
			t.Fatal(err)
		}
		if _, revision, _ := n.directory.Record(); revision != 0 {
			t.Errorf("of nobody's: revision %d", revision)
		}
		n.breakDirectory(t)
		if err := n.meet(answers); !errors.Is(err, errDisk) {
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
			n := openIdle(t, nil)
			n2 := listens(t, n.net, "n2", c.state)
			if !c.silent {
				listens(t, n.net, "n3", leaderless(wire.Standing_UNKNOWN))
			}
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if c.within > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.within)
			}
			defer cancel()
			done, err := n.tryStart(ctx, c.round)
			if probes, _ := n2.asked(); done || !errors.Is(err, status.ErrReplaced) || probes != c.probes {
				t.Errorf("%s: after %d probes: %v, %v", name, probes, done, err)
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		n2 := listens(t, n.net, "n2", leaderless(wire.Standing_REPLACED))
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(firstRound/2, cancel).Stop()
		if _, err := n.tryStart(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("given up while it waits: %v", err)
		}
		if _, err := n.tryStart(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("given up before: %v", err)
		}
		if probes, _ := n2.asked(); probes != 1 {
			t.Errorf("%d probes", probes)
		}
	})
}

// TestNodesWithoutStateStart verifies what an empty node does, depending on another node's answer.
func TestNodesWithoutStateStart(t *testing.T) {
	const settings = "raft's settings" // no node can run raft with these
	for name, c := range map[string]struct {
		state   *wire.NodeState
		answer  wire.Status_Code
		done    bool
		err     string
		reports int
		logs    string
	}{
		"known":                 {&wire.NodeState{Caller: wire.Standing_MEMBER, ClusterId: "c"}, 0, true, settings, 0, "joining the cluster"},
		"removed":               {&wire.NodeState{Caller: wire.Standing_REMOVED}, 0, false, "", 0, "this node was removed"},
		"unknown":               {&wire.NodeState{LeaderId: "n2"}, wire.Status_OK, false, "", 1, ""},
		"unknown, and refused":  {&wire.NodeState{LeaderId: "n2"}, wire.Status_NOT_FOUND, false, "", 1, "waiting to be added to the cluster"},
		"unknown, no leader":    {&wire.NodeState{}, 0, false, "", 0, "waiting for the cluster to have a leader"},
		"empty as well":         {&wire.NodeState{Empty: true}, 0, false, "", 0, "waiting for a majority"},
		"of another cluster":    {&wire.NodeState{ClusterId: "d"}, 0, false, status.ErrOtherCluster.Error(), 0, ""},
		"empty, but of another": {&wire.NodeState{ClusterId: "d", Empty: true}, 0, false, status.ErrOtherCluster.Error(), 0, ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			n := openIdle(t, func(cfg *Config) { cfg.ClusterID = "c" })
			n2 := listens(t, n.net, "n2", c.state)
			n2.answer = c.answer
			done, err := n.tryStart(t.Context(), 0)
			if done != c.done || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, %v", name, done, err)
			}
			if _, reports := n2.asked(); reports != c.reports || c.logs != "" && n.log.lines(c.logs) != 1 || n.log.lines("waiting") > 1 || c.logs == "" && n.log.lines("waiting") > 0 {
				t.Errorf("%s: %d reports, logged %s", name, reports, n.log.text.String())
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		listens(t, n.net, "n2", &wire.NodeState{Caller: wire.Standing_MEMBER})
		n.breakDirectory(t)
		if done, err := n.tryStart(t.Context(), 0); done || err == nil || !strings.Contains(err.Error(), "join the cluster") {
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
			n := openIdle(t, func(cfg *Config) {
				cfg.Cluster = []Peer{{ID: "n1", Addr: "n1:7401"}, {ID: "n2", Addr: "n2:7401"}, {ID: "n3", Addr: "n3:7401"}, {ID: "n4", Addr: "n4:7401"}}[:c.configured]
			})
			var answers []probe.Answer
			for i := range max(c.configured-1, c.answers) {
				a := says([]string{"n2", "n3", "n4"}[i], 0, wire.Standing_UNKNOWN)
				if i >= c.answers {
					a.State = nil
				}
				answers = append(answers, a)
			}
			if done, err := n.beginCluster(answers, c.round); done != c.begins || (err != nil) != done {
				t.Errorf("%d answer of %d in round %d: %v, %v", c.answers, c.configured, c.round, done, err)
			}
		})
	}
}

// TestComplaintsAreRepeatedSeldom verifies that the same message is repeated rarely, and a different one is
// logged immediately.
func TestComplaintsAreRepeatedSeldom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		want := func(when string, first, second int) {
			t.Helper()
			if n.log.lines("first") != first || n.log.lines("second") != second {
				t.Errorf("%s: %s", when, n.log.text.String())
			}
		}
		n.warnRepeatedly("first")
		n.warnRepeatedly("first")
		want("at once", 1, 0)
		time.Sleep(repeatInterval - 1)
		n.warnRepeatedly("first")
		want("within a minute", 1, 0)
		time.Sleep(time.Nanosecond)
		n.warnRepeatedly("first")
		want("after a minute", 2, 0)
		n.warnRepeatedly("second")
		n.warnRepeatedly("first")
		want("changed", 3, 1)
	})
}

// TestNodeThatCannotRunStops verifies that a node stops if raft fails to start when it could begin a cluster
// with a node that was started later.
func TestNodeThatCannotRunStops(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		n.running.Go(n.awaitStart)
		time.Sleep(10 * time.Second)
		if cause := n.halted.Load(); cause != nil {
			t.Errorf("alone: %v", *cause)
		}
		n2 := listens(t, n.net, "n2", &wire.NodeState{Empty: true})
		time.Sleep(10 * time.Second)
		if cause := n.halted.Load(); cause == nil || !strings.Contains((*cause).Error(), "raft's settings") {
			t.Errorf("with another one: %v", cause)
		}
		if probes, _ := n2.asked(); probes != 1 {
			t.Errorf("it asked %d times", probes)
		}
	})
}

// TestNodeThatIsStoppedWhileItAsks verifies that stopping a node while it probes others is not a failure.
func TestNodeThatIsStoppedWhileItAsks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		listens(t, n.net, "n2", &wire.NodeState{Empty: true})
		n.net.Isolate("n1", "n2")
		n.running.Go(n.awaitStart)
		time.Sleep(firstRound + probe.Timeout/2)
		n.cancel()
		n.running.Wait()
		if cause := n.halted.Load(); cause != nil {
			t.Error(*cause)
		}
	})
}
