package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tokenLog records the tokens of grants, over the lives of two clusters.
type tokenLog struct {
	mu     sync.Mutex // guards tokens
	tokens []uint64
}

func (i *tokenLog) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.tokens)
}

// keepOn locks and unlocks with new sessions until ctx ends.
func (i *tokenLog) keepOn(ctx context.Context, cl *client.Client, name string) {
	for ctx.Err() == nil {
		_ = i.lockWith(ctx, cl, name) // the cluster ends
	}
}

func (i *tokenLog) lockWith(ctx context.Context, cl *client.Client, name string) error {
	s, err := cl.NewSession(ctx, client.SessionOptions{TTL: loadTTL})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	for {
		h, err := s.Lock(ctx, name)
		if err != nil {
			return err
		}
		i.mu.Lock()
		i.tokens = append(i.tokens, h.Token())
		i.mu.Unlock()
		if err := h.Unlock(ctx); err != nil {
			return err
		}
	}
}

// during runs clients while f runs.
func (i *tokenLog) during(t *testing.T, c *process.Cluster, at []string, f func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var clients []*client.Client
	for n := range 3 {
		cl := c.NewClient(at...)
		clients = append(clients, cl)
		running.Go(func() { i.keepOn(ctx, cl, fmt.Sprint("recovered/", n)) })
	}
	f()
	cancel()
	for _, cl := range clients {
		_ = cl.Close() // ends what waits for a cluster that is gone
	}
	running.Wait()
}

func (i *tokenLog) awaitMore(c *process.Cluster, count int) {
	now := i.count()
	c.Await("more grants", 2*process.WaitTimeout, func(context.Context) error {
		if got := i.count() - now; got < count {
			return fmt.Errorf("%d more grants", got)
		}
		return nil
	})
}

// TestLostMajority kills all nodes under load, loses two of three data directories, and makes a new cluster from the
// third, which may have been cut off before. Two new nodes are added. No token is issued twice, and each new one is
// greater than all old ones. A node that comes back with its old data does not disturb.
func TestLostMajority(t *testing.T) {
	beside(t)
	seeds := 2
	if full {
		seeds = 12
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 20))
			l := &loss{t: t, c: process.Start(t, programs, 3, "--snapshot-threshold", fmt.Sprint(16<<random.IntN(6))), behind: seed%2 == 1}
			l.survivor = l.c.Others(l.c.Leader())[random.IntN(2)]
			if !l.behind {
				l.survivor = l.c.IDs()[random.IntN(3)]
			}
			l.lose(20 + random.IntN(200))
			l.recover()
			l.grow()
			l.haunt()
			l.judge()
		})
	}
}

// loss is a cluster whose majority is lost.
type loss struct {
	t        *testing.T
	c        *process.Cluster
	behind   bool // the survivor lacks what the others have granted
	survivor string
	old      map[string]string // the data directories of the other nodes
	id       string            // of the lost cluster
	tokens   tokenLog
	before   int // how many tokens the lost cluster has issued
}

// lose kills all nodes under load. One data directory is left, and the others come back later.
func (l *loss) lose(grants int) {
	l.t.Helper()
	l.id = l.c.AwaitAll().GetClusterId()
	l.tokens.during(l.t, l.c, nil, func() {
		l.tokens.awaitMore(l.c, grants)
		l.c.Pass(writtenDown) // the cluster's id, among others
		if l.behind {
			l.c.Freeze(l.survivor)
			l.tokens.awaitMore(l.c, grants)
		}
		l.c.Kill9(l.c.IDs()...)
	})
	l.before = l.tokens.count()
	l.old = map[string]string{}
	for _, id := range l.c.Others(l.survivor) {
		l.old[id] = l.c.SetAside(id)
		l.c.Retire(id)
	}
}

// recover takes both steps, and starts the new cluster.
func (l *loss) recover() {
	l.t.Helper()
	dir := l.c.DataDir(l.survivor)
	closed := []string{"--endpoints", l.c.Endpoint(l.survivor), "--timeout", "1s", "cluster", "recover", dir}
	out, err := programs.Qlock(l.t.Context(), append(closed, "-o", "json")...)
	var step struct{ Best, Next string }
	if err := errors.Join(err, json.Unmarshal([]byte(out), &step)); err != nil || step.Best != dir || !strings.Contains(step.Next, l.id) {
		l.t.Fatalf("the first step: %v, %s", err, out)
	}
	to := dir + ".recovered"
	confirmed := func(id string) (string, error) {
		return programs.Qlock(l.t.Context(), append(closed, "--to", to, "--confirm", id, "--reason", "test")...)
	}
	if out, err := confirmed("another"); err == nil {
		l.t.Errorf("recovered without the cluster's id: %s", out)
	}
	if out, err = confirmed(l.id); err != nil {
		l.t.Fatal(err)
	}
	l.t.Log(out)
	l.c.UseDataDir(l.survivor, to)
	l.c.Restart(l.survivor)
	status := l.c.AwaitStatus("the survivor leads", func(s *wire.StatusResponse) error {
		if s.GetLeaderId() != l.survivor || len(s.GetNodes()) != 1 {
			return fmt.Errorf("%q leads %d nodes", s.GetLeaderId(), len(s.GetNodes()))
		}
		return nil
	})
	if status.GetClusterId() == l.id || status.GetSessions() != 0 {
		l.t.Errorf("cluster %q, %d sessions", status.GetClusterId(), status.GetSessions())
	}
	l.c.AwaitLog(l.survivor, "this data directory was made by a recovery")
}

// grow adds two nodes under load.
func (l *loss) grow() {
	l.t.Helper()
	l.tokens.during(l.t, l.c, nil, func() {
		for _, id := range []string{"n4", "n5"} {
			qlock(l.t, l.c, "cluster", "add", id, l.c.Add(id), "--reason", "test")
		}
		l.tokens.awaitMore(l.c, 50)
	})
	if n := len(l.c.AwaitAll().GetNodes()); n != 3 {
		l.t.Errorf("%d members", n)
	}
}

// haunt starts the old majority on its old data. Its nodes are refused, and end.
func (l *loss) haunt() {
	l.t.Helper()
	ids, term := l.c.IDs(), l.c.AwaitAll().GetTerm()
	l.tokens.during(l.t, l.c, ids, func() {
		for id, dir := range l.old {
			l.c.Return(id, dir)
		}
		for id := range l.old {
			if code := l.c.Ended(id); code != 70 || !strings.Contains(l.c.Log(id), "must not be used any more") {
				l.t.Errorf("%s: exit code %d", id, code)
			}
			l.c.Retire(id)
		}
		l.c.AwaitLog(l.survivor, fmt.Sprintf("belongs to cluster \\\"%s\\\", this is cluster", l.id)) // of one of them: such warnings are few
		l.tokens.awaitMore(l.c, 50)
	})
	if s := l.c.AwaitStatus("status", func(*wire.StatusResponse) error { return nil }); s.GetTerm() != term || len(s.GetNodes()) != 3 {
		l.t.Errorf("term %d became %d, and there are %d members", term, s.GetTerm(), len(s.GetNodes()))
	}
}

// judge verifies that no token was issued twice, and that the later ones are greater.
func (l *loss) judge() {
	l.t.Helper()
	l.c.AwaitAll()
	before, after := l.tokens.tokens[:l.before], l.tokens.tokens[l.before:]
	highest, lowest := slices.Max(before), slices.Min(after)
	l.t.Logf("%d tokens up to %d, then %d from %d on", len(before), highest, len(after), lowest)
	if lowest <= highest {
		l.t.Errorf("token %d was issued after %d", lowest, highest)
	}
	seen := map[uint64]bool{}
	for _, token := range l.tokens.tokens {
		if seen[token] {
			l.t.Errorf("token %d was issued twice", token)
		}
		seen[token] = true
	}
}

// TestLostMajorityWithCertificates recovers a cluster whose ports use TLS. Certificates and the policy stay valid, and
// nodes that were lost come back under their names, with empty data directories.
func TestLostMajorityWithCertificates(t *testing.T) {
	beside(t)
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Secure: []string{"op"}})
	run := func(args ...string) string {
		t.Helper()
		out, err := c.Qlock(t.Context(), "op", nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("bindings: [{identity: op, roles: [admin]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("policy", "apply", "--yes", policy, "--reason", "test")
	before := lockOnce(t, c)
	old := c.AwaitAll()
	c.Kill9(c.IDs()...)
	c.Wipe("n2", "n3")
	dir := c.DataDir("n1")
	run("--timeout", "1s", "cluster", "recover", dir, "--to", dir+".recovered", "--confirm", old.GetClusterId(), "--reason", "test")
	c.UseDataDir("n1", dir+".recovered")
	c.Restart("n1")
	c.AwaitLeader("")
	c.Restart("n2", "n3")
	for _, n := range old.GetNodes() {
		if n.GetId() != "n1" {
			c.Await("the vote of "+n.GetId(), process.WaitTimeout, func(ctx context.Context) error { // it may be starting
				_, err := c.Qlock(ctx, "op", nil, "cluster", "add", n.GetId(), n.GetPeerAddr(), "--reason", "test")
				return err
			})
		}
	}
	s := c.AwaitAll()
	if id := s.GetClusterId(); len(s.GetNodes()) != 3 || !s.GetHasPolicy() || id == old.GetClusterId() || !wire.NamesCluster(old.GetClusterId(), id) {
		t.Errorf("cluster %q has %d nodes, a policy: %v", id, len(s.GetNodes()), s.GetHasPolicy())
	}
	if after := lockOnce(t, c); after <= before {
		t.Errorf("token %d after %d", after, before)
	}
}

// lockOnce returns the token of one grant.
func lockOnce(t *testing.T, c *process.Cluster) uint64 {
	t.Helper()
	s := open(t, c.NewClient(), loadTTL)
	h, err := s.Lock(t.Context(), "recovered")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return h.Token()
}

// recoverFrom makes a new cluster of all nodes from the data of one, as nodes advise that cannot elect a leader. The
// others have ended.
func recoverFrom(t *testing.T, c *process.Cluster, last, cluster string) {
	t.Helper()
	var others [][]string
	for _, id := range c.Others(last) {
		others = append(others, []string{"cluster", "add", id, c.PeerAddr(id), "--reason", "lost"})
	}
	c.Kill9(last)
	dir := c.DataDir(last)
	out, err := programs.Qlock(t.Context(), "--endpoints", c.Endpoint(last), "--timeout", "1s", "cluster", "recover", dir, "--to", dir+".recovered", "--confirm", cluster, "--reason", "lost")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out)
	c.UseDataDir(last, dir+".recovered")
	c.Restart(last)
	c.AwaitLeader("")
	c.Wipe(c.Others(last)...)
	c.Restart(c.Others(last)...)
	for _, add := range others {
		qlock(t, c, add...)
	}
	if out := qlock(t, c, "audit"); !strings.Contains(out, "recover ") {
		t.Errorf("the audit log shows\n%s", out)
	}
}
