package process_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// command matches the commands that a node advises its operator to run.
var command = regexp.MustCompile(`(?m)^ *qlock (cluster (?:remove|add) .*)$`)

// qlock runs qlock against the cluster's nodes until it succeeds.
func qlock(t *testing.T, c *process.Cluster, words ...string) string {
	t.Helper()
	args := append([]string{"--endpoints", strings.Join(c.Endpoints(), ",")}, words...)
	var out string
	c.Await("qlock "+strings.Join(words, " "), process.WaitTimeout, func(context.Context) (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), process.WaitTimeout)
		defer cancel()
		out, err = programs.Qlock(ctx, args...)
		return err
	})
	return out
}

// refused expects that a wiped node has ended on its own, and returns the commands that it printed at the
// end.
func refused(t *testing.T, c *process.Cluster, id string) (commands [][]string) {
	t.Helper()
	if code := c.Ended(id); code != 70 {
		t.Errorf("%s: exit code %d, want 70", id, code)
	}
	log := c.Log(id)
	last := log[max(0, strings.LastIndex(log, "\nqlockd: ")):]
	for _, found := range command.FindAllStringSubmatch(last, -1) {
		commands = append(commands, strings.Fields(found[1]))
	}
	if len(commands) != 2 || commands[0][1] != "remove" || commands[1][1] != "add" {
		t.Fatalf("%s does not say what to run: %q", id, last)
	}
	return commands
}

func TestWipedVoterIsReplaced(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	wiped := c.Others(c.Leader())[0]
	before := member(t, c, wiped)
	c.Kill9(wiped)
	c.Wipe(wiped)
	c.Restart(wiped)
	commands := refused(t, c, wiped)

	fails(t, c, 70, []string{wiped, "is already known", "remove it first"}, "cluster", "add", wiped, before.GetPeerAddr(), "--reason", "too early")

	t.Log("run:", commands)
	qlock(t, c, commands[0]...)
	c.Restart(wiped)
	qlock(t, c, commands[1]...)
	c.AwaitAll()
	after := member(t, c, wiped)
	if !after.GetVoter() || after.GetIncarnation() == before.GetIncarnation() {
		t.Errorf("%s was %v and is %v", wiped, before, after)
	}

	// It votes again: without it there is no majority now.
	third := c.Others(c.Leader())
	third = slices.DeleteFunc(third, func(id string) bool { return id == wiped })
	c.Kill9(third...)
	l.AwaitGrants(l.Log.Now(), afterFault)
	c.Restart(third...)
	c.AwaitAll()
	l.finish()
}

// member returns what the cluster knows about one node.
func member(t *testing.T, c *process.Cluster, id string) *wire.NodeStatus {
	t.Helper()
	for _, n := range c.AwaitAll().GetNodes() {
		if n.GetId() == id {
			return n
		}
	}
	t.Fatalf("%s is no member", id)
	return nil
}

func TestTwoOfThreeWiped(t *testing.T) {
	c := process.Start(t, programs, 3)
	last := c.Leader()
	wiped := c.Others(last)
	term := c.AwaitAll().GetTerm()
	s, hold := heldFor(t, c, 10*time.Minute)
	c.Kill9(c.IDs()...)
	c.Wipe(wiped...)
	c.Restart(last) // immediately followed by those that would start a new cluster without it
	c.Restart(wiped...)
	for _, id := range wiped {
		stranded(t, c, id)
	}
	c.AwaitLog(last, "no leader can be elected: a majority of the voters has lost its data")
	c.AwaitLog(last, "qlock cluster recover "+c.DataDir(last))
	c.Never("a leader without a majority's memory", 3*time.Second, func(ctx context.Context) error {
		metrics, err := c.Metrics(ctx, last)
		if err != nil {
			return err
		}
		if metrics["quorumlock_leader_changes_total"] == 0 && metrics["quorumlock_is_leader"] == 0 {
			return fmt.Errorf("none in term %v", metrics["quorumlock_term"])
		}
		return nil
	})
	status, err := wirecall.Of(c.Client()).Status(t.Context(), &wire.StatusRequest{Stale: true})
	if err != nil || status.GetLeaderId() != "" || status.GetTerm() < term {
		t.Errorf("the last node says %v, %v", status, err)
	}

	// Wiped nodes are restarted, as by a supervisor, and are refused again.
	c.Restart(wiped...)
	for _, id := range wiped {
		stranded(t, c, id)
	}
	if said := beginAgain(t, c, last, hold.Token()); !strings.Contains(said, "to be committed: later ones may have been acknowledged") {
		t.Errorf("saved: %s", said)
	}
	wantRestored(t, c, s, hold)
}

// heldFor opens a session with that TTL and acquires a lock.
func heldFor(t *testing.T, c *process.Cluster, ttl time.Duration) (*client.Session, *client.Hold) {
	t.Helper()
	s, err := c.NewClient().NewSession(t.Context(), client.SessionOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	hold, err := s.Lock(t.Context(), "held/before")
	if err != nil {
		t.Fatal(err)
	}
	return s, hold
}

// stranded expects that a wiped node has ended on its own, and that it advises the way out of a cluster that
// cannot elect a leader, rather than commands that need one.
func stranded(t *testing.T, c *process.Cluster, id string) {
	t.Helper()
	if code := c.Ended(id); code != 70 {
		t.Errorf("%s: exit code %d, want 70", id, code)
	}
	log := c.Log(id)
	last := log[max(0, strings.LastIndex(log, "\nqlockd: ")):]
	for _, text := range []string{"No leader can be elected", "stop all nodes", "qlock cluster recover DATA-DIR", "\"Lost majority\" in docs/OPERATIONS.md"} {
		if !strings.Contains(last, text) {
			t.Errorf("%s does not say %q: %q", id, text, last)
		}
	}
	if strings.Contains(last, "cluster remove") {
		t.Errorf("%s advises what needs a leader: %q", id, last)
	}
}

// beginAgain begins a new cluster with a stale backup of the node last, and expects that no token is granted twice. It
// returns the output of saving the backup.
func beginAgain(t *testing.T, c *process.Cluster, last string, highest uint64) (said string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stale.snap")
	said = qlock(t, c, "snapshot", "save", "--stale", file, "--reason", "lost")
	if !strings.Contains(said, "it is stale: node ") {
		t.Errorf("saved: %s", said)
	}
	c.Kill9(last)
	c.Wipe(c.IDs()...)
	c.Restart(c.IDs()...)
	c.AwaitAll()
	qlock(t, c, "snapshot", "restore", file, "--reason", "lost")
	if token := c.AwaitAll().GetToken(); token <= highest+1<<32 {
		t.Errorf("the restored cluster goes on from token %d after %d", token, highest)
	}
	return said
}

// wantRestored expects that an earlier client is notified why it lost its lock.
func wantRestored(t *testing.T, c *process.Cluster, s *client.Session, hold *client.Hold) {
	t.Helper()
	c.Await("the client of before is told", process.WaitTimeout, func(context.Context) error {
		if hold.Context().Err() == nil {
			return errors.New("it believes that it holds the lock")
		}
		return nil
	})
	if err := s.Err(); !errors.Is(err, client.ErrRestored) || errors.Is(err, client.ErrPermissionDenied) || errors.Is(err, client.ErrExpired) {
		t.Errorf("the session ended with %v", err)
	}
}
