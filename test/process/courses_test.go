package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// issued are the tokens that were granted so far.
type issued struct {
	mu      sync.Mutex
	tokens  map[uint64]bool
	highest uint64
}

// add fails the test if the token was granted before.
func (i *issued) add(t *testing.T, token uint64) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.tokens == nil {
		i.tokens = map[uint64]bool{}
	}
	if i.tokens[token] {
		t.Errorf("token %d was granted twice", token)
	}
	i.tokens[token] = true
	i.highest = max(i.highest, token)
}

// work acquires and releases a lock count times, or until an error. It returns the lowest token.
func (i *issued) work(ctx context.Context, t *testing.T, c *process.Cluster, count int) (lowest uint64, err error) {
	t.Helper()
	cl := c.NewClient()
	defer cl.Close()
	s, err := cl.NewSession(ctx, client.SessionOptions{TTL: briefest})
	for ; count > 0 && err == nil; count-- {
		var h *client.Hold
		if h, err = s.Lock(ctx, "door"); err != nil {
			break
		}
		i.add(t, h.Token())
		if lowest == 0 || h.Token() < lowest {
			lowest = h.Token()
		}
		err = h.Unlock(ctx)
	}
	return lowest, errors.Join(err, closed(ctx, s))
}

// briefest is the minimum TTL.
const briefest = 5 * time.Second

func closed(ctx context.Context, s *client.Session) error {
	if s == nil {
		return nil
	}
	return s.Close(ctx)
}

// must is work that has to succeed.
func (i *issued) must(t *testing.T, c *process.Cluster, count int) (lowest uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*process.WaitTimeout)
	defer cancel()
	lowest, err := i.work(ctx, t, c, count)
	if err != nil {
		t.Fatal(err)
	}
	return lowest
}

// TestRollbackUnknownToReachablePeers restores an old copy when no running node can detect it. n2 is copied and
// continues; n1 stops, and n2 and n3 commit; n2 gets its old copy back while n3 is down; n1 and n2 continue.
// No token is granted twice, and n3 ends after its restart before it truncates what it committed. If n1 leads
// at first, both histories may have leaders in the same term.
func TestRollbackUnknownToReachablePeers(t *testing.T) {
	beside(t)
	for _, leader := range []string{"n1", "n3"} {
		t.Run(leader+" leads at first", func(t *testing.T) {
			beside(t)
			nobodyKnows(t, leader)
		})
	}
}

func nobodyKnows(t *testing.T, leader string) {
	c := process.Start(t, programs, 3)
	var g issued
	if c.Leader() != leader {
		qlock(t, c, "cluster", "transfer", leader, "--reason", "test")
	}
	g.must(t, c, 20)
	// A copy made earlier may lack n1's incarnation, and n2 would not vote for n1.
	c.AwaitStatus("all incarnations are recorded", func(s *wire.StatusResponse) error {
		for _, n := range s.GetNodes() {
			if n.GetIncarnation() == "" {
				return fmt.Errorf("not that of %s", n.GetId())
			}
		}
		return nil
	})
	c.AwaitCaughtUp()
	c.Pass(writtenDown) // or n1 would not know n2
	old := c.Copy("n2", process.Frozen)
	c.Kill9("n1")
	g.must(t, c, 100) // these are lost
	c.Pass(writtenDown)
	c.Kill9("n2", "n3")
	had, lost := entriesOf(t, c, "n3"), g.highest

	c.PutBack("n2", old)
	c.Restart("n1", "n2")
	if lowest := g.must(t, c, 100); lowest <= lost {
		t.Errorf("token %d was granted after %d", lowest, lost)
	}
	c.Restart("n3")
	commands := forked(t, c, "n3")
	if has := entriesOf(t, c, "n3"); len(has) < len(had) || !slices.EqualFunc(has[:len(had)], had, sameEntry) {
		t.Errorf("n3 had %d entries, and not all of them are among the %d that it has", len(had), len(has))
	}
	c.Restart("n3") // as a supervisor would
	if again := forked(t, c, "n3"); !slices.EqualFunc(again, commands, slices.Equal) {
		t.Errorf("first n3 said %q, then %q", commands, again)
	}
	for _, id := range c.Others("n3") {
		c.AwaitLog(id, `ALARM: message="the log of node`)
	}
	g.must(t, c, 20)
	follow(t, c, "n3", commands)
	c.Kill9("n2") // n3 votes again
	g.must(t, c, 20)
}

// forked waits until a node has ended on its own because the others continued from an earlier point, and
// returns the commands that it printed.
func forked(t *testing.T, c *process.Cluster, id string) [][]string {
	t.Helper()
	if code := c.Ended(id); code != 70 {
		t.Errorf("%s: exit code %d, want 70", id, code)
	}
	last := lastWords(c, id)
	for _, want := range []string{"the cluster's log has forked", "are not deleted", "Keep the data directory"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last words of %s have no %q: %s", id, want, last)
		}
	}
	return replacement(t, id, last)
}

// entriesOf returns the entries in the log of a stopped node.
func entriesOf(t *testing.T, c *process.Cluster, id string) (entries []raft.Log) {
	t.Helper()
	err := storage.ReadLog(c.DataDir(id), func(e *raft.Log) error {
		entries = append(entries, raft.Log{Index: e.Index, Term: e.Term, Type: e.Type, Data: bytes.Clone(e.Data)})
		return nil
	})
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d entries in the log of %s: %v", len(entries), id, err)
	}
	return entries
}

func sameEntry(a, b raft.Log) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data)
}

// TestMostDisksRolledBack restores old copies of two of three disks, and the third node knows better. No node
// serves. Their advice leads to a new cluster with the third node's data, to which the others are added.
func TestMostDisksRolledBack(t *testing.T) {
	beside(t)
	c := process.Start(t, programs, 3)
	last := c.Leader()
	back, id := c.Others(last), c.AwaitAll().GetClusterId()
	old := map[string]string{}
	for _, id := range back {
		old[id] = c.Copy(id, process.Frozen)
	}
	var g issued
	g.must(t, c, 50)
	s, hold := heldFor(t, c, 10*time.Minute)
	g.add(t, hold.Token())
	c.Kill9(back...)
	for _, id := range back {
		c.PutBack(id, old[id])
	}
	c.Restart(back...)
	for _, id := range back {
		wentBack(t, c, id, process.Frozen)
		for _, text := range []string{"If most of the disks went back", "stop all nodes", "qlock cluster recover DATA-DIR"} {
			if words := lastWords(c, id); !strings.Contains(words, text) {
				t.Errorf("%s does not say %q: %q", id, text, words)
			}
		}
	}
	c.Await("nobody leads", process.WaitTimeout, func(ctx context.Context) error {
		status, err := wirecall.Of(c.Client()).Status(ctx, &wire.StatusRequest{Stale: true})
		if err == nil && status.GetLeaderId() != "" {
			err = errors.New(status.GetLeaderId() + " does")
		}
		return err
	})
	recoverFrom(t, c, last, id)
	wantRestored(t, c, s, hold)
	if lowest := g.must(t, c, 20); lowest <= hold.Token() {
		t.Errorf("token %d was granted after %d", lowest, hold.Token())
	}
}
