package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Disks that are rolled back: a node's data directory is replaced by an old copy.

// putBack replaces the disk of a node that is down by an older one.
func (n *node) putBack(old *disk) {
	n.disk = old
	n.cfg.Stores.Log, n.cfg.Stores.Stable, n.cfg.Stores.Snapshots = old, old, &old.snapshots
}

// ended starts a node and waits for it to end. It returns the error, or nil if the node keeps running.
func (n *node) ended() error {
	if err := n.open(); err != nil {
		return err
	}
	select {
	case err := <-n.process().Halted():
		pause(10 * time.Millisecond) // what it has sent arrives, unlike after a crash
		n.crash()
		return err
	case <-time.After(20 * time.Second):
		return nil
	}
}

// grants are the tokens of a lock that one worker after the other acquires.
type grants struct {
	mu     sync.Mutex
	tokens []uint64
}

// work acquires and releases a lock for d, or until there were least grants, whichever is later.
func (g *grants) work(c *cluster, name string, d time.Duration, least int) {
	c.t.Helper()
	cl := c.client(name)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := cl.NewSession(ctx, client.SessionOptions{TTL: 10 * time.Second, Name: name})
	if err != nil {
		c.t.Fatalf("%s: open a session: %v", name, err)
	}
	started, done := time.Now(), 0
	for time.Since(started) < d || done < least {
		h, err := s.Lock(ctx, "door")
		if err != nil {
			c.t.Fatalf("%s: lock: %v", name, err)
		}
		g.mu.Lock()
		g.tokens = append(g.tokens, h.Token())
		g.mu.Unlock()
		done++
		if err := h.Unlock(ctx); err != nil {
			c.t.Fatalf("%s: unlock: %v", name, err)
		}
		pause(20 * time.Millisecond)
	}
	_ = s.Close(ctx)
}

// check fails the test if a token was granted twice.
func (g *grants) check(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, token := range g.tokens {
		if slices.Contains(g.tokens[:i], token) {
			t.Errorf("token %d was granted twice", token)
		}
	}
}

// in2026 advances the bubble's clock, which begins in 2000, to a time that tokens count.
func in2026() { pause(26 * 366 * 24 * time.Hour) }

// TestRolledBackNodeIsStopped restores an old disk of a node while others remember more of it, either because
// they kept running, or because they wrote it down before they were restarted.
func TestRolledBackNodeIsStopped(t *testing.T) {
	for _, size := range []int{3, 5} {
		for _, when := range []string{"others run on", "others restarted before", "all restarted at once"} {
			t.Run(fmt.Sprintf("%d nodes, %s", size, when), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					in2026()
					c := newCluster(t, uint64(size), size, nil)
					var g grants
					leader := c.leaderWithReports()
					n := c.except(leader)[0]
					old := n.disk.copy()
					g.work(c, "before", 3*time.Second, 50)
					n.crash()
					n.putBack(old)
					switch when {
					case "others restarted before":
						for _, other := range c.except(n) {
							other.crash()
							other.start()
						}
						c.leader()
					case "all restarted at once":
						for _, other := range c.except(n) {
							other.crash()
						}
						var starting sync.WaitGroup
						for _, other := range c.except(n) {
							starting.Go(other.start)
						}
						defer starting.Wait()
					}
					err := n.ended()
					if !errors.Is(err, status.ErrRolledBack) || !strings.Contains(err.Error(), "cluster remove "+n.id) {
						t.Errorf("it ended with %v", err)
					}
					if again := n.ended(); !errors.Is(again, status.ErrRolledBack) {
						t.Errorf("started again, it ended with %v", again)
					}
					g.work(c, "after", time.Second, 10)
					g.check(t)
				})
			})
		}
	}
}

// TestRepeatedRestartsWithAnOldDisk restarts a node with an old disk while the others are down, until
// it has started more often than they remember. It must still end when they are back.
func TestRepeatedRestartsWithAnOldDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		in2026()
		c := newCluster(t, 1, 3, nil)
		leader := c.leaderWithReports()
		n := c.except(leader)[0]
		n.crash()
		old := n.disk.copy()
		n.start()
		c.leaderWithReports()
		for _, each := range c.nodes {
			each.crash()
		}
		n.putBack(old)
		for range 3 {
			if err := n.open(); err != nil {
				t.Fatal(err)
			}
			pause(time.Second)
			n.crash()
		}
		for _, other := range c.except(n) {
			other.start()
		}
		if err := n.ended(); !errors.Is(err, status.ErrRolledBack) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestForkedLog restores an old disk when no running node can detect it. n2 is copied and continues; n1
// stops, and n2 and n3 commit; n2 gets its old copy back while n3 is down; n1 and n2 continue. No token is
// granted twice, and n3 ends after its restart instead of truncating what it committed.
func TestForkedLog(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		in2026()
		c := newCluster(t, 1, 3, nil)
		var g grants
		c.leaderWithReports()
		n1, n2, n3 := c.nodes[0], c.nodes[1], c.nodes[2]
		c.lead(n3)
		g.work(c, "before", time.Second, 10)
		n1.crash()
		old := n2.disk.copy()
		g.work(c, "lost", 5*time.Second, 100)
		n2.crash()
		n3.crash()
		n2.putBack(old)
		n1.start()
		n2.start()
		g.work(c, "afterwards", 5*time.Second, 50)
		g.check(t)
		forked := n3.disk.copy()
		err := n3.ended()
		if !errors.Is(err, status.ErrForked) {
			t.Errorf("n3 ended with %v", err)
		}
		if again := n3.ended(); !errors.Is(again, status.ErrForked) {
			t.Errorf("n3, started again, ended with %v", again)
		}
		c.alarmed("n3 came back", n1, n2)
		for _, n := range c.except(n3) {
			n.crash()
			n.start()
		}
		c.leaderWithReports()
		c.alarmed("n1 and n2 were restarted", n1, n2)
		c.acknowledged(n1, n2)
		n3.putBack(forked)
		if err := n3.ended(); !errors.Is(err, status.ErrForked) {
			t.Errorf("n3, put back, ended with %v", err)
		}
		c.alarmed("n3 came back once more", n1, n2)
		g.work(c, "at last", time.Second, 10)
		g.check(t)
	})
}

// alarmed fails the test unless the status soon shows one alarm about n3 for each of these nodes.
func (c *cluster) alarmed(when string, nodes ...*node) {
	c.t.Helper()
	var shown []string
	if within(10*time.Second, func() bool { shown = c.alarms(); return len(shown) == len(nodes) }) {
		return
	}
	c.t.Errorf("%s: the alarms about n3 are those of %v", when, shown)
}

// alarms returns the nodes for which the status shows one alarm, about n3.
func (c *cluster) alarms() (alarmed []string) {
	c.t.Helper()
	status, err := c.leader().replica().Status(c.t.Context(), &wire.StatusRequest{})
	if err != nil {
		return nil // the leader may change
	}
	for _, s := range status.GetNodes() {
		if a := s.GetAlarms(); len(a) == 1 && a[0].GetNodeId() == "n3" && strings.Contains(a[0].GetMessage(), `the log of node "n3" has forked from this node's`) {
			alarmed = append(alarmed, s.GetId())
		}
	}
	return alarmed
}

// acknowledged acknowledges all alarms as an operator and waits until these nodes have none.
func (c *cluster) acknowledged(nodes ...*node) {
	c.t.Helper()
	cl := c.client("operator")
	defer cl.Close()
	answer, err := wirecall.Of(cl).AcknowledgeAlarms(c.t.Context(), &wire.AcknowledgeAlarmsRequest{Operator: "ann", Reason: "n3 is known"})
	if err != nil || answer.GetRevision() == 0 {
		c.t.Fatalf("acknowledged: %v, %v", answer, err)
	}
	for _, n := range nodes {
		if !within(10*time.Second, func() bool { return len(n.replica().Alarms()) == 0 }) {
			c.t.Errorf("%s alarms %v after the acknowledgement", n.id, n.replica().Alarms())
		}
	}
}

// TestDisksRolledBackInAnyOrder copies, kills, starts and restores nodes in random order. No token is granted
// twice, and no node ends without a reason.
func TestDisksRolledBackInAnyOrder(t *testing.T) {
	did := eachSeed(t, 20, func(t *testing.T, seed uint64) counts {
		in2026()
		c := newCluster(t, seed, 3+2*int(seed%2), func(_ int, cfg *server.Config) {
			if seed%3 == 0 {
				cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 32, 16, time.Second
			}
		})
		return (&backAndForth{c: c, t: t, copies: map[*node]*disk{}, back: map[*node]bool{}, out: map[*node]bool{}, did: counts{}}).run()
	})
	if !raced && *onlySeed == 0 {
		for _, needed := range []string{"put back", "rolled back", "granted after that"} {
			if did[needed] == 0 {
				t.Errorf("never %s", needed)
			}
		}
	}
}

// backAndForth is one random order.
type backAndForth struct {
	c      *cluster
	t      *testing.T
	copies map[*node]*disk
	back   map[*node]bool // nodes whose disks went back
	out    map[*node]bool // nodes that ended for good
	did    counts
	grants
}

func (b *backAndForth) run() counts {
	c := b.c
	c.leaderWithReports()
	for range 24 {
		b.step(c.nodes[c.random.IntN(len(c.nodes))])
		pause(c.between(100*time.Millisecond, 4*time.Second))
		b.reap()
		before := len(b.tokens)
		b.try(c)
		b.did["granted"] += len(b.tokens) - before
		if len(b.back) > 0 {
			b.did["granted after that"] += len(b.tokens) - before
		}
	}
	b.check(b.t)
	return b.did
}

// step does something to a node.
func (b *backAndForth) step(n *node) {
	up, pick := n.process() != nil, b.c.random.IntN(3)
	switch {
	case b.out[n]:
	case pick == 0:
		b.copies[n] = n.disk.copy()
	case up && pick == 1:
		n.crash()
	case up:
	case pick == 1 && b.copies[n] != nil:
		n.putBack(b.copies[n].copy())
		b.back[n] = true
		b.did["put back"]++
	default:
		if err := n.open(); err != nil {
			b.stopped(n, err)
		}
	}
}

// reap shuts down the nodes that have halted.
func (b *backAndForth) reap() {
	for _, n := range b.c.nodes {
		if proc := n.process(); proc != nil {
			select {
			case err := <-proc.Halted():
				n.crash()
				b.stopped(n, err)
			default:
			}
		}
	}
}

func (b *backAndForth) stopped(n *node, err error) {
	b.out[n] = true
	switch {
	case errors.Is(err, status.ErrRolledBack) && b.back[n]:
		b.did["rolled back"]++
	case errors.Is(err, status.ErrForked) && len(b.back) > 0:
		b.did["forked"]++
	default:
		b.t.Errorf("%s ended with %v", n.id, err)
	}
}

// try acquires and releases a lock several times, if possible.
func (b *backAndForth) try(c *cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	cl := c.client("worker")
	defer cl.Close()
	s, err := cl.NewSession(ctx, client.SessionOptions{TTL: 5 * time.Second})
	for range 5 {
		var h *client.Hold
		if err == nil {
			h, err = s.Lock(ctx, "door")
		}
		if err == nil {
			b.tokens = append(b.tokens, h.Token())
			err = h.Unlock(ctx)
		}
	}
}
