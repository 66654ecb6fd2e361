package process_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// command finds what a node tells people to run.
var command = regexp.MustCompile(`(?m)^ *qlock (cluster (?:remove|add) .*)$`)

// qlock runs the program against the nodes named until it succeeds.
func qlock(t *testing.T, c *process.Cluster, words ...string) string {
	t.Helper()
	args := append([]string{"--endpoints", strings.Join(c.Endpoints(), ",")}, words...)
	var out string
	c.Await("qlock "+strings.Join(words, " "), process.Patience, func(context.Context) (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		out, err = programs.Qlock(ctx, args...)
		return err
	})
	return out
}

// refused expects that a wiped node ended by itself, and returns the commands that it
// printed as its last words.
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

// member is what the cluster says about one node.
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
	c.Kill9(c.IDs()...)
	c.Wipe(wiped...)
	c.Restart(last) // at once followed by those that would begin anew if it were not there
	c.Restart(wiped...)
	for _, id := range wiped {
		refused(t, c, id)
	}
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
	status, err := c.Client().Status(t.Context(), &wire.StatusRequest{Stale: true})
	if err != nil || status.GetLeaderId() != "" || status.GetTerm() < term {
		t.Errorf("the last node says %v, %v", status, err)
	}

	// Wiped nodes come again, as a supervisor would have it, and are refused again.
	c.Restart(wiped...)
	for _, id := range wiped {
		refused(t, c, id)
	}
}
