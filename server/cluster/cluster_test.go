package cluster_test

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/cluster"
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
		if got := cluster.VotersBut(servers, c.but...); len(got) != c.want {
			t.Errorf("without %v: %v", c.but, got)
		}
	}
}
