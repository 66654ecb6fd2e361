package autopilot

import (
	"bytes"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftautopilot "github.com/hashicorp/raft-autopilot"
)

// TestHealthIsLoggedOnce verifies which changes of a member's health the leader n1 logs. At the beginning of a leadership,
// a member that answers may not follow yet: that is not logged, nor is that it is healthy then.
func TestHealthIsLoggedOnce(t *testing.T) {
	type round struct{ answers, healthy bool }
	const sick, well = "[WARN]  a member is not healthy", "[INFO]  a member is healthy"
	for name, c := range map[string]struct {
		rounds []round
		logged []string
	}{
		"always healthy":            {[]round{{true, true}, {true, true}}, nil},
		"follows after a while":     {[]round{{true, false}, {true, true}, {true, true}}, nil},
		"dead from the beginning":   {[]round{{false, false}, {false, false}, {true, true}, {true, true}}, []string{sick, well}},
		"dies, returns, dies again": {[]round{{true, true}, {false, false}, {false, false}, {true, true}, {false, false}}, []string{sick, well, sick}},
	} {
		var out bytes.Buffer
		l := &leadership{
			Config: Config{NodeID: "n1", Logger: hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true})},
			warned: map[raft.ServerID]bool{},
		}
		for _, r := range c.rounds {
			l.contacts.record(time.Now(), []reply{{id: "n2", answers: r.answers, follows: r.healthy}})
			servers := map[raft.ServerID]*raftautopilot.ServerState{"n1": {}, "n2": {}}
			servers["n1"].Health.Healthy, servers["n2"].Health.Healthy = true, r.healthy
			l.NotifyState(&raftautopilot.State{Servers: servers})
		}
		lines := bytes.Split(bytes.TrimSuffix(out.Bytes(), []byte("\n")), []byte("\n"))
		if out.Len() == 0 {
			lines = nil
		}
		if len(lines) != len(c.logged) {
			t.Errorf("%s: %d lines, want %d:\n%s", name, len(lines), len(c.logged), out.String())
			continue
		}
		for i, want := range c.logged {
			if !bytes.HasPrefix(lines[i], []byte(want)) {
				t.Errorf("%s: line %d is %q, want %q", name, i+1, lines[i], want)
			}
		}
	}
}
