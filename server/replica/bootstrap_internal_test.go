package replica

import (
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/probe"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// says returns the answer of a node with state.
func says(id string, applied uint64, caller wire.Standing) probe.Answer {
	return probe.Answer{Peer: Peer{ID: id, Addr: id + ":1"}, State: &wire.NodeState{Member: &wire.Member{Id: id}, AppliedIndex: applied, Caller: caller}}
}

func TestJudge(t *testing.T) {
	const member, replacedBy, gone, expected = wire.Standing_MEMBER, wire.Standing_REPLACED, wire.Standing_REMOVED, wire.Standing_EXPECTED
	silent, blank := probe.Answer{Peer: Peer{ID: "n0", Addr: ""}}, says("n0", 99, member)
	blank.State.Empty = true
	for name, c := range map[string]struct {
		answers []probe.Answer
		want    standing
		from    string
	}{
		"nobody answers":              {[]probe.Answer{silent}, alone, ""},
		"only empty nodes answer":     {[]probe.Answer{silent, blank}, alone, ""},
		"known":                       {[]probe.Answer{silent, blank, says("n1", 0, member)}, known, "n1"},
		"replaced":                    {[]probe.Answer{says("n1", 5, replacedBy)}, replaced, "n1"},
		"removed":                     {[]probe.Answer{says("n1", 5, gone)}, removed, "n1"},
		"expected":                    {[]probe.Answer{says("n1", 5, expected)}, unknownYet, "n1"},
		"unknown":                     {[]probe.Answer{says("n1", 5, wire.Standing_UNKNOWN)}, unknownYet, "n1"},
		"most applied first":          {[]probe.Answer{says("n1", 6, replacedBy), says("n2", 5, member)}, replaced, "n1"},
		"most applied last":           {[]probe.Answer{says("n2", 5, gone), says("n1", 6, wire.Standing_UNKNOWN)}, unknownYet, "n1"},
		"as far, removed and known":   {[]probe.Answer{says("n2", 5, member), says("n1", 5, gone)}, removed, "n1"},
		"as far, known and replaced":  {[]probe.Answer{says("n2", 5, replacedBy), says("n1", 5, member)}, known, "n1"},
		"as far, replaced, unknown":   {[]probe.Answer{says("n2", 5, wire.Standing_UNKNOWN), says("n1", 5, replacedBy)}, replaced, "n1"},
		"as far, known before others": {[]probe.Answer{says("n1", 5, member), says("n2", 5, replacedBy), says("n3", 5, expected)}, known, "n1"},
		"the same: the first counts":  {[]probe.Answer{says("n1", 5, member), says("n2", 5, member)}, known, "n1"},
	} {
		as, best := assess(c.answers)
		if as != c.want || best.GetMember().GetId() != c.from {
			t.Errorf("%s: %v by %q, want %v by %q", name, as, best.GetMember().GetId(), c.want, c.from)
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
}
