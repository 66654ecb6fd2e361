package system

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func threeNodes() []node {
	return []node{{id: "n1", redis: "one"}, {id: "n2", redis: "two"}, {id: "n3", redis: "three"}}
}

func TestEntryIsLeaderOrFollower(t *testing.T) {
	for _, c := range []struct {
		leader, want string
		follower     bool
	}{{"n1", "one", false}, {"n3", "three", false}, {"n1", "two", true}, {"n3", "one", true}} {
		e := &entry{nodes: threeNodes(), follower: c.follower}
		if err := e.choose(&wire.StatusResponse{LeaderId: c.leader}); err != nil || e.addr != c.want {
			t.Errorf("leader %s, entry by a follower is %t: %q, %v", c.leader, c.follower, e.addr, err)
		}
	}
	e := &entry{nodes: threeNodes()}
	if err := e.choose(&wire.StatusResponse{LeaderId: "n4"}); err == nil {
		t.Errorf("the leader is a stranger, the entry %q", e.addr)
	}
}

func TestEntryDetectsElections(t *testing.T) {
	chosen := &wire.StatusResponse{LeaderId: "n2", Term: 3}
	e := &entry{nodes: threeNodes()}
	if err := e.choose(chosen); err != nil {
		t.Fatal(err)
	}
	if err := e.compare(chosen); err != nil {
		t.Errorf("nothing has changed: %v", err)
	}
	// A leader that was replaced and elected again has another term.
	for _, now := range []*wire.StatusResponse{{LeaderId: "n1", Term: 3}, {LeaderId: "n2", Term: 5}, {}} {
		if err := e.compare(now); err == nil || !strings.Contains(err.Error(), "n2 in term 3") {
			t.Errorf("leader %q in term %d: %v", now.GetLeaderId(), now.GetTerm(), err)
		}
	}
}

func TestRedisPortIsEnabledOnEveryNode(t *testing.T) {
	nodes, err := freeNodes()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, cmd := range (redisPort{quorumlock: quorumlock{bin: "bin"}}).commands(nodes, t.TempDir()) {
		line := strings.Join(cmd.Args, " ")
		if !strings.Contains(line, "--redis-addr "+nodes[i].redis) {
			t.Errorf("node %d: %s", i+1, line)
		}
		for _, addr := range []string{nodes[i].client, nodes[i].peer, nodes[i].http, nodes[i].redis} {
			if seen[addr] {
				t.Errorf("%s is used twice", addr)
			}
			seen[addr] = true
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d addresses", len(seen))
	}
}
