//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestProgressOfANewNode follows a node until it votes: what changes is reported once, and an answer that fails is asked
// for again.
func TestProgressOfANewNode(t *testing.T) {
	f := answering(t)
	answers := []*wire.NodeStatus{nil, {Id: "n4"}, {Id: "n4", Reachable: true, AppliedIndex: 12}, {Id: "n4", Reachable: true, AppliedIndex: 12}, {Id: "n4", Voter: true}}
	f.statusFunc = func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		next := answers[0]
		answers = answers[1:]
		if next == nil {
			return nil, client.ErrUnavailable
		}
		return &wire.StatusResponse{CommitIndex: 99, Nodes: []*wire.NodeStatus{next}}, nil
	}
	got := execTest(t, f.dialer, "cluster", "add", "n4", "h:1", "--reason", "r")
	want := "qlock: n4 is added, and does not answer\nqlock: n4 is added, and has applied 12 of 99 entries\n"
	if got.code != 0 || got.err != want || got.out != "added n4 at h:1\n" || len(answers) != 0 {
		t.Errorf("%+v", got)
	}
	f.statusFunc = func(*wire.StatusRequest) (*wire.StatusResponse, error) { return &wire.StatusResponse{}, nil }
	got = execTest(t, f.dialer, "cluster", "add", "n4", "h:1", "--reason", "r", "--timeout", "10ms")
	if got.code == 0 || !strings.Contains(got.err, "does not vote yet; it will") {
		t.Errorf("not within its time: %+v", got)
	}
}

// TestReplace verifies that a member is removed only once its replacement votes, that a second run goes on where the
// first one ended, and that a wrong name changes nothing.
func TestReplace(t *testing.T) {
	for name, c := range map[string]struct {
		members string
		absent  bool // the old member, when it is removed
		code    int
		steps   string
	}{
		"the first run":            {"n1 n2", false, 0, "add n4, remove n2"},
		"a second run":             {"n1 n2 n4", false, 0, "add n4, remove n2"},
		"a run after it was done":  {"n1 n4", true, 0, "add n4, remove n2"},
		"the old member's is none": {"n1 n3", false, exitNoSuch, ""},
	} {
		f := answering(t)
		members, steps := strings.Fields(c.members), []string{}
		f.statusFunc = func(*wire.StatusRequest) (*wire.StatusResponse, error) {
			s := &wire.StatusResponse{}
			for _, id := range members {
				s.Nodes = append(s.Nodes, &wire.NodeStatus{Id: id, Voter: true})
			}
			return s, nil
		}
		f.add = func(req *wire.AddMemberRequest) (*wire.AddMemberResponse, error) {
			members, steps = append(members, req.GetId()), append(steps, "add "+req.GetId())
			return &wire.AddMemberResponse{}, nil
		}
		f.remove = func(req *wire.RemoveMemberRequest) (*wire.RemoveMemberResponse, error) {
			if steps = append(steps, "remove "+req.GetId()); c.absent {
				return nil, client.ErrNotFound
			}
			return &wire.RemoveMemberResponse{}, nil
		}
		got := execTest(t, f.dialer, "cluster", "replace", "n2", "n4", "h:1", "--reason", "r")
		if got.code != c.code || strings.Join(steps, ", ") != c.steps {
			t.Errorf("%s: %+v after %q", name, got, steps)
		}
	}
}

// TestDrain verifies that drain waits until it is safe to stop the node, says what it waits for, and has an exit code of
// its own if the time does not suffice.
func TestDrain(t *testing.T) {
	f := answering(t)
	answers := []*wire.NodeStatus{nil, {Id: "n2", Drained: true, UnsafeToStop: "it leads"}, {Id: "n2", Drained: true, UnsafeToStop: "it leads"}, {Id: "n2", Drained: true}}
	f.statusFunc = func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		next := answers[0]
		answers = answers[1:]
		if next == nil {
			return nil, client.ErrUnavailable
		}
		return &wire.StatusResponse{Nodes: []*wire.NodeStatus{{Id: "n1"}, next}}, nil
	}
	got := execTest(t, f.dialer, "cluster", "drain", "n2", "--reason", "r")
	said := "qlock: n2 is drained; it is not safe to stop it yet: no leader answers\nqlock: n2 is drained; it is not safe to stop it yet: it leads\n"
	if got.code != 0 || got.err != said || got.out != "n2 is drained: it is safe to stop it\n" || len(answers) != 0 {
		t.Errorf("%+v", got)
	}
	for says, node := range map[string]*wire.NodeStatus{
		"it is not safe to stop it: n3 does not answer": {Id: "n2", Drained: true, UnsafeToStop: "n3 does not answer"},
		"it is not drained any more":                    {Id: "n2"},
		"it is not a member any more":                   {Id: "n5"},
	} {
		f.statusFunc = func(*wire.StatusRequest) (*wire.StatusResponse, error) {
			return &wire.StatusResponse{Nodes: []*wire.NodeStatus{node}}, nil
		}
		got := execTest(t, f.dialer, "cluster", "drain", "n2", "--reason", "r", "--timeout", "10ms")
		if got.code != exitAtRisk || !strings.Contains(got.err, says) || got.out != "" {
			t.Errorf("%q: %+v", says, got)
		}
	}
}

// TestStatusOfARemovedNode verifies that a node which was removed is not taken for one that has lost its leader.
func TestStatusOfARemovedNode(t *testing.T) {
	f := answering(t)
	f.statusFunc = func(req *wire.StatusRequest) (*wire.StatusResponse, error) {
		if !req.GetStale() {
			return nil, client.ErrUnavailable
		}
		return &wire.StatusResponse{NodeId: "n3", Removed: "this node was removed\x1b[2J: do so"}, nil
	}
	got := execTest(t, f.dialer, "status")
	if got.code != exitNoLeader || !strings.Contains(got.err, "node n3 was removed from the cluster") || !strings.Contains(got.out, "REMOVED: node n3 says: this node was removed") || strings.Contains(got.out, "\x1b") {
		t.Errorf("%+v", got)
	}
}
