package cluster

import (
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport/wire"
)

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

func TestVotersBut(t *testing.T) {
	servers := configured([]string{"n1", "n2", "n3"}, "n4")
	for _, c := range []struct {
		but  []string
		want int
	}{{nil, 3}, {[]string{"n1"}, 2}, {[]string{"n1", "n2"}, 1}, {[]string{"n4"}, 3}, {[]string{"n1", "n1"}, 2}} {
		if got := VotersBut(servers, c.but...); len(got) != c.want {
			t.Errorf("without %v: %v", c.but, got)
		}
	}
}

func TestWipedVoters(t *testing.T) {
	var w wipedVoters
	for _, s := range []struct {
		id string
		as wire.Standing
	}{
		{"n1", wire.Standing_REPLACED}, {"n2", wire.Standing_REPLACED}, {"n2", wire.Standing_UNKNOWN}, {"n3", wire.Standing_REPLACED},
		{"n3", wire.Standing_MEMBER}, {"n4", wire.Standing_MEMBER}, {"n5", wire.Standing_REMOVED}, {"n6", wire.Standing_REPLACED}, {"n9", wire.Standing_REPLACED},
	} {
		w.seen(s.id, s.as)
	}
	voters, wiped := w.among(configured([]string{"n1", "n2", "n3", "n4", "n5"}, "n6"))
	if voters != 5 || !slices.Equal(wiped, []string{"n1", "n2"}) {
		t.Errorf("%d voters, wiped %v", voters, wiped)
	}
}

// TestLeaderChanges verifies that subscribers are notified only of changes.
func TestLeaderChanges(t *testing.T) {
	l := NewLeaderChanges()
	for i, c := range []struct {
		hint *wire.LeaderHint
		news bool
	}{
		{&wire.LeaderHint{}, false}, {&wire.LeaderHint{Id: "n1", Term: 1}, true}, {&wire.LeaderHint{Id: "n1", Term: 1}, false},
		{&wire.LeaderHint{Id: "n1", Term: 2}, true}, {&wire.LeaderHint{}, true},
	} {
		l.Publish(c.hint)
		news := len(l.wake) == 1
		if news {
			<-l.wake
		}
		if last, _ := l.latest(); news != c.news || last.Term != c.hint.Term || last.Id != c.hint.Id {
			t.Errorf("change %d: news %v", i, news)
		}
	}
}
