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
