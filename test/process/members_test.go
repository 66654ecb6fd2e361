package process_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMembersChangeUnderLoad(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	begun := l.Log.Now()

	qlock(t, c, "cluster", "add", "n4", c.Add("n4"))
	if n := len(c.AwaitAll().GetNodes()); n != 4 {
		t.Fatalf("%d members", n)
	}
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(begun, "adding a fourth node", 4*time.Second)

	transferred := l.Log.Now()
	if out := qlock(t, c, "cluster", "transfer", "n4"); !strings.Contains(out, "n4") {
		t.Errorf("the transfer said %q", out)
	}
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(transferred, "transfer of leadership", 4*time.Second)
	if leader := c.Leader(); leader != "n4" {
		t.Errorf("%s leads after a transfer to n4", leader)
	}

	// Asked to remove the leader, the cluster hands leadership over first.
	removed := l.Log.Now()
	qlock(t, c, "cluster", "remove", "n4")
	c.AwaitStatus("three members", func(s *wire.StatusResponse) error {
		if len(s.GetNodes()) != 3 || s.GetLeaderId() == "" || s.GetLeaderId() == "n4" {
			return fmt.Errorf("%d members, %q leads", len(s.GetNodes()), s.GetLeaderId())
		}
		return nil
	})
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(removed, "removal of the leader", 4*time.Second)
	c.Terminate("n4")
	c.Retire("n4")
	l.finish()
}
