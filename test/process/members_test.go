package process_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/ports"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAddingANodeThatDoesNotAnswer verifies that an unresponsive node does not become a member, and that the
// error does not blame the leader.
func TestAddingANodeThatDoesNotAnswer(t *testing.T) {
	c := process.Start(t, programs, 3)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed := ports.For(t, 1)[0]
	for name, addr := range map[string]string{"silent": silent.Addr().String(), "closed": closed} {
		started := time.Now()
		_, err := programs.Qlock(t.Context(), "--endpoints", strings.Join(c.Endpoints(), ","), "cluster", "add", "n4", addr, "--reason", "test")
		took := time.Since(started)
		if err == nil || took >= 2*time.Second+busy {
			t.Errorf("%s: after %v: %v", name, took, err)
			continue
		}
		for _, want := range []string{"exit code 70", "n4", addr, "does not answer", "nothing was changed"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %q", name, want, err)
			}
		}
		if strings.Contains(err.Error(), "leader:") || strings.Contains(err.Error(), "no leader") {
			t.Errorf("%s: it doubts the leader: %v", name, err)
		}
	}
	if n := len(c.AwaitAll().GetNodes()); n != 3 {
		t.Errorf("%d members", n)
	}
}

// TestAddingANodeThatDoesNotReachAMember verifies that a node is not added as long as packets between it and a member are
// dropped, and that the error says between which nodes.
func TestAddingANodeThatDoesNotReachAMember(t *testing.T) {
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Apart: true})
	far := c.Others(c.Leader())[0]
	add := []string{"cluster", "add", "n4", c.Add("n4"), "--reason", "test"}
	heal := c.Isolate("n4", far)
	c.AwaitLog("n4", "waiting to be added")
	started := time.Now()
	_, err := c.QlockFrom(t.Context(), process.Clients, add...)
	took := time.Since(started)
	for _, want := range []string{"exit code 70", fmt.Sprintf("node %q at %s does not reach node %q at %s", "n4", c.PeerAddr("n4"), far, c.PeerAddr(far)), "nothing was changed"} {
		if err == nil || took >= 2*time.Second+busy || !strings.Contains(err.Error(), want) {
			t.Errorf("after %v: %q is not in %v", took, want, err)
		}
	}
	if n := len(c.AwaitAll().GetNodes()); n != 3 {
		t.Errorf("%d members", n)
	}
	heal()
	if out, err := c.QlockFrom(t.Context(), process.Clients, add...); err != nil || !strings.Contains(out, "added n4") {
		t.Errorf("with all packets: %q, %v", out, err)
	}
}

// busy is what a busy machine may add to a time.
const busy = 3 * time.Second

// TestNodesFindEachOtherAndAFourthJoins forms a cluster of nodes that know only addresses, lets a fourth join under load
// through one of them, and restarts and wipes it.
func TestNodesFindEachOtherAndAFourthJoins(t *testing.T) {
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Found: true})
	l := startLoad(t, c)
	started := l.Log.Now()
	c.Join("n4", "n2")
	votes := func(s *wire.StatusResponse) error {
		for _, n := range s.GetNodes() {
			if n.GetId() == "n4" && n.GetVoter() && n.GetReachable() {
				return nil
			}
		}
		return errors.New("n4 does not vote yet")
	}
	c.AwaitStatus("n4 votes", votes)
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(started, "a fourth node joins", 4*time.Second)
	c.Kill9("n4")
	c.Restart("n4")
	c.AwaitStatus("n4 is back", votes)

	c.Kill9("n4")
	c.Wipe("n4")
	c.Restart("n4")
	for i, command := range refused(t, c, "n4") {
		if qlock(t, c, command...); i == 0 {
			c.Restart("n4") // it joins by itself, and adding it again changes nothing
			c.AwaitStatus("n4 votes again", votes)
		}
	}
	l.finish()
}

// TestReplaceUnderLoad replaces a dead node, and then the leader, each with one command and under load.
func TestReplaceUnderLoad(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	replace := func(what, old, id string) {
		t.Helper()
		began := l.Log.Now()
		if out := qlock(t, c, "cluster", "replace", old, id, c.Add(id), "--reason", "test"); !strings.Contains(out, "replaced "+old+" by "+id) {
			t.Errorf("%s: %q", what, out)
		}
		if s := c.AwaitAll(); len(s.GetNodes()) != 3 || isMember(s, old) || !nodeStatus(s, id).GetVoter() {
			t.Errorf("%s: the members are %v", what, s.GetNodes())
		}
		l.AwaitGrants(l.Log.Now(), afterFault)
		l.outage(began, what, 4*time.Second)
	}
	dead := c.Others(c.Leader())[0]
	c.Kill9(dead)
	replace("replacement of a dead node", dead, "n4")
	c.Retire(dead)
	leader := c.Leader()
	replace("replacement of the leader", leader, "n5")
	c.Terminate(leader)
	c.Retire(leader)
	l.finish()
}

func TestMembersChangeUnderLoad(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	started := l.Log.Now()

	qlock(t, c, "cluster", "add", "n4", c.Add("n4"), "--reason", "test")
	if n := len(c.AwaitAll().GetNodes()); n != 4 {
		t.Fatalf("%d members", n)
	}
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(started, "adding a fourth node", 4*time.Second)

	transferred := l.Log.Now()
	if out := qlock(t, c, "cluster", "transfer", "n4", "--reason", "test"); !strings.Contains(out, "n4") {
		t.Errorf("the transfer said %q", out)
	}
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(transferred, "transfer of leadership", 4*time.Second)
	if leader := c.Leader(); leader != "n4" {
		t.Errorf("%s leads after a transfer to n4", leader)
	}

	// When the leader is to be removed, the cluster transfers leadership first.
	removed := l.Log.Now()
	qlock(t, c, "cluster", "remove", "n4", "--reason", "test")
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
