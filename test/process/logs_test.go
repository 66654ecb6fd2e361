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

// jargon are words of raft's implementation.
var jargon = regexp.MustCompile(`(?i)subsystem=raft|pre-?vote|appendEntries|candidate|RPC|pipelin|heartbeat`)

// story requires that the lines match the patterns, one each, in this order. A pattern that begins with ? may be missing.
// Lines about a handshake in which the caller was killed may come anywhere.
func story(t *testing.T, id string, lines []string, patterns ...string) {
	t.Helper()
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return strings.Contains(line, "refused a connection to the peer port") && strings.Contains(line, "reason=gone")
	})
	text := strings.Join(lines, "")
	t.Logf("%s:\n%s", id, text)
	rest := lines
	for _, pattern := range patterns {
		optional := strings.HasPrefix(pattern, "?")
		switch {
		case len(rest) > 0 && regexp.MustCompile(strings.TrimPrefix(pattern, "?")).MatchString(rest[0]):
			rest = rest[1:]
		case !optional:
			t.Errorf("%s has not logged %q where it should", id, pattern)
			return
		}
	}
	if len(rest) > 0 {
		t.Errorf("%s has also logged:\n%s", id, strings.Join(rest, ""))
	}
	if found := jargon.FindString(text); found != "" {
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
	awaitRecent(c, old, before[old], "serving: node=")
	// On a machine that is too busy for the voters to agree in time, the usual election follows.
	const closed, disagreed = `?INFO.*: the leader has closed its connections and refuses new ones: leader=`, `?INFO.*: no election called against the lost leader`
	story(t, next, recent(c, next, before[next]),
		closed+old, disagreed,
		`WARN.*: the leader is (dead|silent): calling an election: leader=`+old,
		`INFO.*: elected, applying the barrier: term=`,
		`INFO.*: serving as leader: term=`,
		`WARN.*: the cluster has no policy`,
		`WARN.*: a member is not healthy: node=`+old+` reason="it does not answer.*" tolerated_failures=0`,
		`INFO.*: a member is healthy: node=`+old+` tolerated_failures=1`)
	story(t, other, recent(c, other, before[other]),
		closed+old, disagreed,
		`?WARN.*: the leader is silent: calling an election: leader=`+old,
		`INFO.*: following a leader: leader=`+next)
	story(t, old, recent(c, old, before[old]),
		`WARN.*: this configuration has a risk: detail="no --backup-dir`,
		`?INFO.*: following a leader: leader=`+next, `INFO.*: serving: node=`+old, `?INFO.*: following a leader: leader=`+next)
}
