package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// says returns the answer of a node with state.
func says(id string, applied uint64, caller wire.Standing) answer {
	return answer{peer: Peer{ID: id, Addr: id + ":1"}, state: &wire.NodeState{Member: &wire.Member{Id: id}, AppliedIndex: applied, Caller: caller}}
}

func TestJudge(t *testing.T) {
	const member, replacedBy, gone, expected = wire.Standing_MEMBER, wire.Standing_REPLACED, wire.Standing_REMOVED, wire.Standing_EXPECTED
	silent, blank := answer{peer: Peer{ID: "n0", Addr: ""}}, says("n0", 99, member)
	blank.state.Empty = true
	for name, c := range map[string]struct {
		answers []answer
		want    standing
		from    string
	}{
		"nobody answers":              {[]answer{silent}, alone, ""},
		"only empty nodes answer":     {[]answer{silent, blank}, alone, ""},
		"known":                       {[]answer{silent, blank, says("n1", 0, member)}, known, "n1"},
		"replaced":                    {[]answer{says("n1", 5, replacedBy)}, replaced, "n1"},
		"removed":                     {[]answer{says("n1", 5, gone)}, removed, "n1"},
		"expected":                    {[]answer{says("n1", 5, expected)}, unknownYet, "n1"},
		"unknown":                     {[]answer{says("n1", 5, wire.Standing_UNKNOWN)}, unknownYet, "n1"},
		"most applied first":          {[]answer{says("n1", 6, replacedBy), says("n2", 5, member)}, replaced, "n1"},
		"most applied last":           {[]answer{says("n2", 5, gone), says("n1", 6, wire.Standing_UNKNOWN)}, unknownYet, "n1"},
		"as far, removed and known":   {[]answer{says("n2", 5, member), says("n1", 5, gone)}, removed, "n1"},
		"as far, known and replaced":  {[]answer{says("n2", 5, replacedBy), says("n1", 5, member)}, known, "n1"},
		"as far, replaced, unknown":   {[]answer{says("n2", 5, wire.Standing_UNKNOWN), says("n1", 5, replacedBy)}, replaced, "n1"},
		"as far, known before others": {[]answer{says("n1", 5, member), says("n2", 5, replacedBy), says("n3", 5, expected)}, known, "n1"},
		"the same: the first counts":  {[]answer{says("n1", 5, member), says("n2", 5, member)}, known, "n1"},
	} {
		as, best := assess(c.answers)
		if as != c.want || best.GetMember().GetId() != c.from {
			t.Errorf("%s: %v by %q, want %v by %q", name, as, best.GetMember().GetId(), c.want, c.from)
		}
	}
}

func TestOtherCluster(t *testing.T) {
	of := func(clusters ...string) (answers []answer) {
		for _, cluster := range clusters {
			a := says("n1", 1, wire.Standing_MEMBER)
			a.state.ClusterId = cluster
			answers = append(answers, a)
		}
		return answers
	}
	refusing := answer{cluster: "d"} // does not report its state
	for name, c := range map[string]struct {
		mine    string
		answers []answer
		other   bool
	}{
		"none":                       {"", nil, false},
		"one":                        {"", of("c"), false},
		"one twice":                  {"", of("c", "", "c"), false},
		"two":                        {"", of("c", "", "d"), true},
		"this one":                   {"c", of("c"), false},
		"another one":                {"c", of("d"), true},
		"one that is none yet":       {"c", of(""), false},
		"another one, which refuses": {"c", []answer{refusing}, true},
		"this one, which refuses":    {"d", []answer{refusing}, false},
		"a silent node":              {"c", []answer{{}}, false},
	} {
		if err := otherCluster(c.answers, c.mine); errors.Is(err, status.ErrOtherCluster) != c.other {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLeaderAmong(t *testing.T) {
	leads := func(id, leader string, term uint64) answer {
		a := says(id, 1, wire.Standing_MEMBER)
		a.state.LeaderId, a.state.Term = leader, term
		return a
	}
	lost := leads("n3", "", 1)
	lost.state.MajorityLost = true
	for name, c := range map[string]struct {
		answers []answer
		leader  string
		outlook outlook
	}{
		"nobody":                       {nil, "", unclear},
		"silence":                      {[]answer{{}}, "", unclear},
		"no leader":                    {[]answer{leads("n1", "", 4)}, "", unclear},
		"one that did not answer":      {[]answer{leads("n1", "n2", 4)}, "", unclear},
		"one":                          {[]answer{leads("n1", "n2", 4), leads("n2", "n2", 4)}, "n2", led},
		"an older one first":           {[]answer{leads("n1", "n1", 3), leads("n2", "n2", 4)}, "n2", led},
		"an older one last":            {[]answer{leads("n2", "n2", 4), leads("n1", "n1", 3)}, "n2", led},
		"in term 0":                    {[]answer{leads("n2", "n2", 0)}, "n2", led},
		"a majority is lost":           {[]answer{leads("n1", "", 4), lost}, "", hopeless},
		"a majority was lost, one led": {[]answer{lost, leads("n2", "n2", 4)}, "n2", led},
	} {
		leader, ok := leaderAmong(c.answers)
		if leader.ID != c.leader || ok != (c.leader != "") || outlookOf(c.answers) != c.outlook {
			t.Errorf("%s: %q, %v, outlook %v", name, leader.ID, ok, outlookOf(c.answers))
		}
	}
}

// TestAdviceFitsTheCluster verifies what a wiped node advises its operator to do, for each outlook.
func TestAdviceFitsTheCluster(t *testing.T) {
	r := &Replica{cfg: Config{ID: "n1", Advertise: Addresses{Peer: "h1:1"}}, directory: &directory{incarnation: "new"}}
	peer := &wire.NodeState{ClusterId: "c", Member: &wire.Member{Id: "n2", ClientAddr: "h2:2"}}
	const replace, restart = "qlock cluster remove n1", "qlock --endpoints h2:2 snapshot save --stale"
	for cluster, want := range map[outlook][2]bool{led: {true, false}, hopeless: {false, true}, unclear: {true, true}} {
		err := r.errReplaced(peer, cluster)
		text := err.Error()
		if got := [2]bool{strings.Contains(text, replace), strings.Contains(text, restart)}; got != want || !errors.Is(err, status.ErrReplaced) {
			t.Errorf("outlook %v: %s", cluster, text)
		}
	}
	if text := r.errReplaced(&wire.NodeState{}, hopeless).Error(); !strings.Contains(text, "--endpoints HOST:PORT") || !strings.Contains(text, "of a node that has its data") {
		t.Errorf("about a node that says nothing of itself: %s", text)
	}
}

func TestWipedVoters(t *testing.T) {
	w := newWipedVoters()
	for _, s := range []struct {
		id string
		as wire.Standing
	}{
		{"n1", wire.Standing_REPLACED}, {"n2", wire.Standing_REPLACED}, {"n2", wire.Standing_UNKNOWN}, {"n3", wire.Standing_REPLACED},
		{"n3", wire.Standing_MEMBER}, {"n4", wire.Standing_MEMBER}, {"n5", wire.Standing_REMOVED}, {"n6", wire.Standing_REPLACED}, {"n9", wire.Standing_REPLACED},
	} {
		w.saw(s.id, s.as)
	}
	voters, wiped := w.among(configured([]string{"n1", "n2", "n3", "n4", "n5"}, "n6"))
	if voters != 5 || !slices.Equal(wiped, []string{"n1", "n2"}) {
		t.Errorf("%d voters, wiped %v", voters, wiped)
	}
}

// TestInitialMembers verifies that the initial members are the configured nodes in order, with the
// incarnations that were seen.
func TestInitialMembers(t *testing.T) {
	r := &Replica{cfg: Config{Cluster: []Peer{{ID: "n3", Addr: "h3:1"}, {ID: "n1", Addr: "h1:1"}, {ID: "n2", Addr: "h2:1"}}}}
	var got []string
	for _, m := range r.initialMembers([]*wire.Member{{Id: "n2", PeerAddr: "now:1", Incarnation: "i2"}, nil, {Id: "n9"}}) {
		got = append(got, m.Id+" "+m.PeerAddr+" "+m.Incarnation)
	}
	if want := []string{"n1 h1:1 ", "n2 now:1 i2", "n3 h3:1 "}; !slices.Equal(got, want) {
		t.Errorf("members %q", got)
	}
	var voters []string
	for _, s := range r.initialVoters().Servers {
		voters = append(voters, string(s.ID)+" "+string(s.Address))
	}
	if want := []string{"n1 h1:1", "n2 h2:1", "n3 h3:1"}; !slices.Equal(voters, want) {
		t.Errorf("voters %q", voters)
	}
	if got := unreachable([]answer{{peer: Peer{ID: "n1"}, err: errors.New("refused")}, says("n2", 1, wire.Standing_MEMBER)}); !slices.Equal(got, []string{"n1: refused"}) {
		t.Errorf("unreachable %q", got)
	}
}
