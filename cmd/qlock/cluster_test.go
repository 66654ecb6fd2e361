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
