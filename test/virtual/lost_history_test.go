package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// Clusters whose disks are all rolled back while their clients live on.

// longTTL is longer than any of these scenes: what comes free was given back and has not expired.
const longTTL = 5 * time.Minute

// lostScene is something that a session did before and after the disks were copied.
type lostScene struct {
	name   string
	before func(*survivor)
	after  func(*survivor)
}

// survivor is a client that outlives the rollback, with its session, and another client that competes with it.
type survivor struct {
	c       *cluster
	cl      *client.Client
	s       *client.Session
	other   *client.Session
	holds   []*client.Hold
	pending []<-chan error // calls that wait
	blocker *client.Hold
}

var lostScenes = []lostScene{
	{name: "idle"},
	{name: "hold", after: func(v *survivor) { v.lock("a") }},
	{name: "hold of before and another one", before: func(v *survivor) { v.lock("a") }, after: func(v *survivor) { v.lock("b") }},
	{name: "shared", after: func(v *survivor) { v.lock("a", client.WithShared()) }},
	{name: "cached", after: func(v *survivor) { v.lock("a", client.WithCached(10*time.Minute)) }},
	{name: "cached and idle", after: func(v *survivor) { v.lock("a", client.WithCached(10*time.Minute)); v.unlock() }},
	{name: "several names", after: func(v *survivor) { v.lockAll("a", "b", "c") }},
	{name: "released", before: func(v *survivor) { v.lock("a") }, after: func(v *survivor) { v.unlock() }},
	{name: "acquired and released", after: func(v *survivor) { v.lock("a"); v.unlock() }},
	{name: "acquired again", before: func(v *survivor) { v.lock("a") }, after: func(v *survivor) { v.unlock(); v.lock("a") }},
	{name: "waits", before: func(v *survivor) { v.block("a") }, after: func(v *survivor) { v.wait("a") }},
	{name: "granted after a wait", before: func(v *survivor) { v.block("a"); v.wait("a") }, after: func(v *survivor) { v.unblock(); v.granted() }},
	{name: "upgraded", before: func(v *survivor) { v.lock("a", client.WithShared()) }, after: func(v *survivor) {
		if err := v.holds[0].Upgrade(v.c.t.Context()); err != nil {
			v.c.t.Fatal(err)
		}
	}},
	{name: "session of later", after: func(v *survivor) { v.reopen(); v.lock("a") }},
	{name: "session of later, waiting", before: func(v *survivor) { v.block("a") }, after: func(v *survivor) { v.reopen(); v.wait("a") }},
}

func (v *survivor) lock(name string, opts ...client.LockOption) {
	v.c.t.Helper()
	h, err := v.s.Lock(v.c.t.Context(), name, opts...)
	if err != nil {
		v.c.t.Fatal(err)
	}
	v.holds = append(v.holds, h)
}

func (v *survivor) lockAll(names ...string) {
	v.c.t.Helper()
	h, err := v.s.LockAll(v.c.t.Context(), client.Names(names...))
	if err != nil {
		v.c.t.Fatal(err)
	}
	v.holds = append(v.holds, h)
}

func (v *survivor) unlock() {
	v.c.t.Helper()
	for _, h := range v.holds {
		if err := h.Unlock(v.c.t.Context()); err != nil {
			v.c.t.Fatal(err)
		}
	}
	v.holds = nil
}

func (v *survivor) block(name string) {
	v.c.t.Helper()
	h, err := v.other.Lock(v.c.t.Context(), name)
	if err != nil {
		v.c.t.Fatal(err)
	}
	v.blocker = h
}

func (v *survivor) unblock() {
	v.c.t.Helper()
	if err := v.blocker.Unlock(v.c.t.Context()); err != nil {
		v.c.t.Fatal(err)
	}
}

func (v *survivor) wait(name string) {
	v.c.t.Helper()
	done := make(chan error, 1)
	s := v.s
	go func() {
		h, err := s.Lock(context.Background(), name)
		if err == nil {
			v.holds = append(v.holds, h) // read only after done
		}
		done <- err
	}()
	v.pending = append(v.pending, done)
	v.c.eventually("it waits", func() bool { return len(v.c.line(name)) == 1 })
}

func (v *survivor) granted() {
	v.c.t.Helper()
	if err := <-v.pending[0]; err != nil {
		v.c.t.Fatal(err)
	}
	v.pending = nil
}

func (v *survivor) reopen() {
	v.c.t.Helper()
	s, err := v.cl.NewSession(v.c.t.Context(), client.SessionOptions{TTL: longTTL, Name: "later"})
	if err != nil {
		v.c.t.Fatal(err)
	}
	v.s = s
}

// revision returns the revision of the serving node.
func (c *cluster) revision() (revision uint64) {
	c.leader().replica().View(func(m *fsm.Machine) { revision = m.Revision() })
	return revision
}

// commands advances the revision to at least that of to, by one command at a time.
func (c *cluster) commands(to uint64) {
	c.t.Helper()
	cl := c.client("stranger")
	defer cl.Close()
	s, err := cl.NewSession(c.t.Context(), client.SessionOptions{TTL: longTTL, Name: "stranger"})
	if err != nil {
		c.t.Fatal(err)
	}
	h, err := s.Lock(c.t.Context(), "strange")
	for ; err == nil && c.revision()+1 < to; err = h.SetValue(c.t.Context(), nil) {
	}
	if err == nil {
		err = s.Close(c.t.Context())
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// rollBack replaces all disks by their copies while the survivors are cut off, and lets the cluster serve again.
func (c *cluster) rollBack(copies map[*node]*disk) {
	c.crashAll()
	for n, old := range copies {
		n.putBack(old)
	}
	for _, name := range []string{"survivor", "other"} {
		c.isolate(name, c.nodes...)
	}
	c.startAll()
	c.leader()
}

func (c *cluster) copies() map[*node]*disk {
	copies := map[*node]*disk{}
	for _, n := range c.nodes {
		copies[n] = n.disk.copy()
	}
	return copies
}

// TestClientsOfARolledBackCluster puts all disks back while clients live on. Their sessions end with ErrRolledBack, the
// contexts of their holds first, their calls return, and nothing of theirs remains in the cluster: whether the new history
// is shorter than what they have seen, as long, or has run past it.
func TestClientsOfARolledBackCluster(t *testing.T) {
	for _, size := range []int{1, 3} {
		for _, course := range []string{"shorter", "equal", "past"} {
			for _, scene := range lostScenes {
				if !full && (size == 3 || raced) && scene.name != "hold" && scene.name != "released" && scene.name != "waits" {
					continue
				}
				t.Run(fmt.Sprintf("%d nodes, %s, %s", size, course, scene.name), func(t *testing.T) {
					t.Parallel()
					bubble.Test(t, func(t *testing.T) { scene.test(t, size, course) })
				})
			}
		}
	}
}

func (scene lostScene) test(t *testing.T, size int, course string) {
	in2026()
	c := newCluster(t, uint64(size), size, nil)
	c.leaderWithReports()
	v := &survivor{c: c, cl: c.client("survivor")}
	v.reopen()
	other, err := c.client("other").NewSession(t.Context(), client.SessionOptions{TTL: longTTL, Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	v.other = other
	first := v.s
	if scene.before != nil {
		scene.before(v)
	}
	pause(2 * time.Second) // the nodes write down what they know of each other
	copies := c.copies()
	if course != "equal" {
		c.commands(c.revision() + 30)
	}
	if scene.after != nil {
		scene.after(v)
	} else if h, err := v.other.Lock(t.Context(), "seen"); err != nil || h.Unlock(t.Context()) != nil {
		t.Fatal(err)
	}
	sessions := []*client.Session{first, v.s}
	if scene.after == nil {
		pause(longTTL / 2) // only heartbeats show the revision
	}
	seen := c.revision()
	c.rollBack(copies)
	switch course {
	case "equal":
		if c.revision() < seen {
			c.commands(seen)
		}
	case "past":
		c.commands(seen + 50)
	}
	c.calm()
	for _, s := range sessions {
		select {
		case <-s.Lost():
		case <-time.After(10 * time.Second):
			t.Fatal("a session goes on")
		}
		if err := s.Err(); !errors.Is(err, client.ErrRolledBack) || !errors.Is(err, client.ErrSessionLost) {
			t.Errorf("it ended with %v", err)
		}
	}
	for _, done := range v.pending {
		select {
		case err := <-done:
			if !errors.Is(err, client.ErrRolledBack) {
				t.Errorf("a wait ended with %v", err)
			}
		case <-time.After(time.Second):
			t.Error("a call waits for ever")
		}
	}
	for _, h := range v.holds {
		if err := context.Cause(h.Context()); !errors.Is(err, client.ErrRolledBack) {
			t.Errorf("a hold ended with %v", err)
		}
	}
	_ = v.other.Close(t.Context()) // it has seen too little to know
	v.nothingRemains(sessions)
}

// nothingRemains checks that all locks are free soon, and that the client works in the new history.
func (v *survivor) nothingRemains(sessions []*client.Session) {
	t := v.c.t
	if !within(10*time.Second, func() bool {
		left := false
		v.c.leader().replica().View(func(m *fsm.Machine) {
			for _, s := range sessions {
				_, found := m.Session(s.ID())
				left = left || found
			}
		})
		return !left
	}) {
		t.Error("a session is left in the cluster")
	}
	s, err := v.cl.NewSession(t.Context(), client.SessionOptions{TTL: 10 * time.Second, Name: "next"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.Lock(t.Context(), name, client.WithTry()); err != nil {
			t.Errorf("lock %s: %v", name, err)
		}
	}
	pause(30 * time.Second)
	if err := s.Err(); err != nil {
		t.Errorf("the next session ended with %v", err)
	}
}

// TestNoSessionIsRolledBackWithoutReason changes leaders, loses answers, restarts nodes and cuts clients off in random
// orders, while clients acquire, wait and release. No disk goes back, so no session may end, and none of these faults lasts
// as long as a TTL.
func TestNoSessionIsRolledBackWithoutReason(t *testing.T) {
	did := eachSeed(t, 6, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3+2*int(seed%2), func(_ int, cfg *server.Config) {
			if seed%3 == 0 { // nodes get snapshots instead of the log
				cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 32, 16, time.Second
			}
		})
		c.leader()
		return c.unrest()
	})
	if !raced && *onlySeed == 0 && (did["grants"] == 0 || did["leader changes"] == 0) {
		t.Errorf("too little happened: %v", did)
	}
}

// unrest is one random order.
func (c *cluster) unrest() counts {
	did := counts{}
	ctx, cancel := context.WithCancel(context.Background())
	var sessions []*client.Session
	var users sync.WaitGroup
	for i := range 4 {
		cl := c.client(fmt.Sprintf("c%d", i))
		for range 2 {
			s, err := cl.NewSession(ctx, client.SessionOptions{TTL: longTTL})
			if err != nil {
				c.t.Fatal(err)
			}
			sessions = append(sessions, s)
			users.Go(func() {
				for ctx.Err() == nil {
					opts := []client.LockOption{client.WithWait(3 * time.Second)}
					if i == 3 {
						opts = append(opts, client.WithCached(time.Minute))
					}
					if h, err := s.Lock(ctx, "door", opts...); err == nil {
						pause(10 * time.Millisecond)
						_ = h.Unlock(context.Background())
						c.mu.Lock()
						did["grants"]++
						c.mu.Unlock()
					}
					pause(time.Duration(100+50*i) * time.Millisecond)
				}
			})
		}
	}
	for range 16 {
		old := c.leader()
		c.disturb(old)
		pause(c.between(10*time.Millisecond, 8*time.Second))
		c.calm()
		c.startAll()
		if c.leader() != old {
			did["leader changes"]++
		}
	}
	c.eventually("all clients are attached", func() bool {
		for _, s := range sessions {
			if s.State() != client.Active {
				return false
			}
		}
		return true
	})
	cancel()
	users.Wait()
	for _, s := range sessions {
		if err := s.Err(); err != nil {
			c.t.Errorf("session %d ended with %v", s.ID(), err)
		}
	}
	return did
}

// disturb causes one fault.
func (c *cluster) disturb(leader *node) {
	switch c.random.IntN(5) {
	case 0:
		leader.crash()
	case 1:
		c.isolate(leader.id, c.nodes...)
	case 2:
		_ = leader.replica().StepDown(c.t.Context())
	case 3: // answers are lost
		for _, n := range c.nodes {
			c.net.Cut(n.id, fmt.Sprintf("c%d", c.random.IntN(4)))
		}
	case 4:
		c.isolate(fmt.Sprintf("c%d", c.random.IntN(4)), c.shuffled()[:1+c.random.IntN(2)]...)
	}
}
