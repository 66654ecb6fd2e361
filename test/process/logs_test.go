package process_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
)

// recent returns the lines that a node has logged since its log had that length.
func recent(c *process.Cluster, id string, length int) []string {
	return slices.Collect(strings.Lines(c.Log(id)[length:]))
}

// lengths returns the present lengths of the logs.
func lengths(c *process.Cluster) map[string]int {
	all := map[string]int{}
	for _, id := range c.IDs() {
		all[id] = len(c.Log(id))
	}
	return all
}

// awaitRecent waits until a node has logged a text since its log had that length.
func awaitRecent(c *process.Cluster, id string, length int, text string) {
	c.Await(id+" logs "+text, process.WaitTimeout, func(context.Context) error {
		if !strings.Contains(c.Log(id)[length:], text) {
			return errors.New("not there")
		}
		return nil
	})
}

// TestQuietLog verifies that the nodes of an idle cluster log nothing, for some seconds, and in the long version for twenty
// minutes. From their start on, they have logged fewer than twenty lines.
func TestQuietLog(t *testing.T) {
	t.Parallel()
	lasts := 20 * time.Second
	if os.Getenv("QUORUMLOCK_CHECK") == "1" {
		lasts = 20 * time.Minute
	}
	c := process.Start(t, programs, 3)
	c.AwaitCaughtUp()
	before := lengths(c)
	c.Never("a warning", lasts, func(context.Context) error {
		for _, id := range c.IDs() {
			if text := c.Log(id)[before[id]:]; strings.Contains(text, "[WARN]") || strings.Contains(text, "[ERROR]") {
				t.Errorf("%s has logged:\n%s", id, text)
				return nil
			}
		}
		return errors.New("none")
	})
	for _, id := range c.IDs() {
		if all := recent(c, id, 0); len(all) >= 20 {
			t.Errorf("%s has logged %d lines:\n%s", id, len(all), strings.Join(all, ""))
		}
	}
}

// story requires that the lines contain the parts, one each, in this order.
func story(t *testing.T, id string, lines []string, parts ...string) {
	t.Helper()
	text := strings.Join(lines, "")
	t.Logf("%s:\n%s", id, text)
	if len(lines) != len(parts) {
		t.Errorf("%s has logged %d lines, want %d:\n%s", id, len(lines), len(parts), text)
		return
	}
	for i, part := range parts {
		if !strings.Contains(lines[i], part) {
			t.Errorf("line %d of %s is %q, want %q", i+1, id, lines[i], part)
		}
	}
	if found := regexp.MustCompile(`(?i)subsystem=raft|pre-?vote|appendEntries|candidate|RPC|pipelin|heartbeat`).FindString(text); found != "" {
		t.Errorf("%s has logged %q", id, found)
	}
}

// TestLogOfAFailOver verifies what the nodes log when the leader is killed and comes back: each event once, in words that an
// operator knows.
func TestLogOfAFailOver(t *testing.T) {
	t.Parallel()
	c := process.Start(t, programs, 3)
	c.AwaitCaughtUp()
	old := c.Leader()
	before := lengths(c)
	c.Kill9(old)
	next := c.AwaitLeader(old)
	other := c.Others(old)[0]
	if other == next {
		other = c.Others(old)[1]
	}
	awaitRecent(c, next, before[next], "a member is not healthy")
	awaitRecent(c, other, before[other], "following a leader")
	c.Restart(old)
	c.AwaitAll()
	awaitRecent(c, next, before[next], "a member is healthy")
	awaitRecent(c, old, before[old], "following a leader")
	story(t, next, recent(c, next, before[next]),
		"[INFO]  qlockd: the leader has closed its connections and refuses new ones: leader="+old,
		"[WARN]  qlockd: the leader is dead: calling an election: leader="+old,
		"[INFO]  qlockd: elected, applying the barrier: term=",
		"[INFO]  qlockd: serving as leader: term=",
		"[WARN]  qlockd: the cluster has no policy",
		"[WARN]  qlockd: a member is not healthy: node="+old,
		"[INFO]  qlockd: a member is healthy: node="+old)
	story(t, other, recent(c, other, before[other]),
		"[INFO]  qlockd: the leader has closed its connections and refuses new ones: leader="+old,
		"[INFO]  qlockd: following a leader: leader="+next)
	story(t, old, recent(c, old, before[old]),
		"[INFO]  qlockd: following a leader: leader="+next,
		"[INFO]  qlockd: serving: node="+old)
}
