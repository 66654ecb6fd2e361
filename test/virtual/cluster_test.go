package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/test/workload"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// cluster is a set of nodes with their network and everything recorded about its clients.
type cluster struct {
	t      *testing.T
	begin  time.Time
	net    *simnet.Net
	log    *history.Log
	random *rand.Rand // used only by the test's own goroutine
	tune   func(i int, cfg *server.Config)
	peers  []server.Peer // the initial ones
	run    *workload.Run // nil without a load
	all    []*node       // including removed ones

	mu      sync.Mutex // guards which nodes exist and run, and the fields below
	nodes   []*node
	clients []*client.Client
	gates   map[string]*gate
	lives   []*workload.Life
}

// node is one machine.
type node struct {
	c    *cluster
	id   string
	host string
	cfg  server.Config
	disk *disk
	wire *port

	proc *server.Node // nil while it is down; guarded by the cluster's mu
}

// port is the node's network. That of a dead process dials nothing.
type port struct {
	*simnet.Host
	dead atomic.Bool
}

var errDead = errors.New("the process is dead")

// Dial implements transport.Network.
func (p *port) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if p.dead.Load() {
		return nil, errDead
	}
	return p.Host.Dial(ctx, addr)
}

// usual is the quality of links without faults.
var usual = simnet.Weather{Delay: time.Millisecond}

// clusters counts the started clusters, for the whole package.
var clusters atomic.Int64

// newCluster starts n nodes. tune changes a node's config before its first start.
func newCluster(t *testing.T, seed uint64, n int, tune func(i int, cfg *server.Config)) *cluster {
	var peers []server.Peer
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		peers = append(peers, server.Peer{ID: id, Addr: id + ":7401"})
	}
	return newClusterOf(t, seed, peers, tune)
}

// newClusterOf is newCluster with these nodes, each on the host of its address.
func newClusterOf(t *testing.T, seed uint64, peers []server.Peer, tune func(i int, cfg *server.Config)) *cluster {
	clusters.Add(1)
	c := &cluster{t: t, begin: time.Now(), net: simnet.New(seed), random: rand.New(rand.NewPCG(seed, 1)), tune: tune, peers: peers, gates: map[string]*gate{}}
	c.log = history.New(c.now)
	c.net.Weather(usual)
	for i, p := range c.peers {
		c.nodes = append(c.nodes, c.newNode(i, p, c.peers))
	}
	c.startAll()
	t.Cleanup(c.stopAll)
	return c
}

// newNode creates a node with an empty disk.
func (c *cluster) newNode(i int, p server.Peer, all []server.Peer) *node {
	host, _, _ := net.SplitHostPort(p.Addr)
	n := &node{c: c, id: p.ID, host: host, disk: newDisk()}
	n.cfg = server.Config{
		ID:            p.ID,
		Listen:        server.Addresses{Peer: p.Addr, Client: host + ":7400"},
		Cluster:       all,
		Insecure:      true,
		CommitTimeout: 50 * time.Millisecond,
		Stores:        storage.Backend{Log: n.disk, Stable: n.disk, Snapshots: &n.disk.snapshots, Incarnation: p.ID + "-1"},
		Logger:        testLogger(c.t, p.ID),
		Version:       "test",
	}
	if c.tune != nil {
		c.tune(i, &n.cfg)
	}
	c.all = append(c.all, n)
	return n
}

// testLogger is silent unless QUORUMLOCK_TEST_LOG names a level.
func testLogger(t *testing.T, id string) hclog.Logger {
	level := hclog.LevelFromString(os.Getenv("QUORUMLOCK_TEST_LOG"))
	if level == hclog.NoLevel {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: id, Level: level, Output: t.Output(), TimeFormat: "04:05.000"})
}

// now returns the virtual time since the cluster began.
func (c *cluster) now() time.Duration { return time.Since(c.begin) }

// calm ends every fault of the network except its weather.
func (c *cluster) calm() {
	c.net.Heal()
	c.log.Mark(history.Healed)
}

// isolate cuts a machine off from nodes, in both directions.
func (c *cluster) isolate(name string, from ...*node) {
	for _, n := range from {
		if n.id != name {
			c.net.Isolate(name, n.id)
		}
	}
}

func (n *node) open() error {
	n.wire = &port{Host: n.c.net.Host(n.host)}
	n.disk.power(true)
	cfg := n.cfg
	cfg.Network = n.wire
	proc, err := server.Open(context.Background(), cfg)
	if err == nil {
		n.c.mu.Lock()
		n.proc = proc
		n.c.mu.Unlock()
	}
	return err
}

// start starts or restarts the node.
func (n *node) start() {
	n.c.t.Helper()
	if err := n.open(); err != nil {
		n.c.t.Errorf("open %s: %v", n.id, err)
	}
	n.c.log.Mark(n.id + " started")
}

// take returns the node's process and marks the node as down.
func (n *node) take() *server.Node {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	proc := n.proc
	n.proc = nil
	return proc
}

// crash ends the node abruptly. Its disk survives, without the writes in progress.
func (n *node) crash() {
	proc := n.take()
	if proc == nil {
		return
	}
	n.disk.power(false)
	n.wire.dead.Store(true)
	n.wire.Kill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = proc.Close(ctx)
	n.wire.Kill()
}

// stop stops the node gracefully.
func (n *node) stop() {
	if proc := n.take(); proc != nil {
		if err := proc.Close(context.Background()); err != nil {
			n.c.t.Errorf("close %s: %v", n.id, err)
		}
	}
}

func (c *cluster) startAll() {
	var starting sync.WaitGroup
	for _, n := range c.nodes {
		if n.process() == nil {
			starting.Go(n.start)
		}
	}
	starting.Wait()
}

// closeClients closes every client, which also ends every waiting call.
func (c *cluster) closeClients() {
	if c.run != nil {
		c.run.Abandon()
	}
	c.mu.Lock()
	clients := c.clients
	c.mu.Unlock()
	for _, cl := range clients {
		_ = cl.Close()
	}
}

// stopAll ends all nodes without transferring leadership.
func (c *cluster) stopAll() {
	c.openGates()
	c.closeClients()
	for _, n := range c.nodes {
		if proc := n.process(); proc != nil {
			select {
			case err := <-proc.Halted():
				c.t.Errorf("%s halted: %v", n.id, err)
			default:
			}
		}
		n.crash()
	}
}

func (n *node) process() *server.Node {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.proc
}

// replica returns the node's replica, or nil while it is down.
func (n *node) replica() *replica.Replica {
	if proc := n.process(); proc != nil {
		return proc.Replica()
	}
	return nil
}

// serving returns the node that serves in the highest term, or nil if none does.
func (c *cluster) serving() *node {
	var best *node
	var term uint64
	for _, n := range c.nodes {
		if r := n.replica(); r != nil && r.Serving() && r.Leader().GetTerm() >= term {
			best, term = n, r.Leader().GetTerm()
		}
	}
	return best
}

// leader waits until a node serves, and returns it.
func (c *cluster) leader() *node {
	c.t.Helper()
	var leader *node
	if !within(time.Minute, func() bool { leader = c.serving(); return leader != nil }) {
		c.t.Fatal("no node served within a minute")
	}
	return leader
}

// successor waits until a node other than old serves, and returns it.
func (c *cluster) successor(old *node) *node {
	c.t.Helper()
	var next *node
	if !within(time.Minute, func() bool { next = c.serving(); return next != nil && next != old }) {
		c.t.Fatalf("nobody replaced %s within a minute", old.id)
	}
	return next
}

// leaderWithReports waits for a leader and until its nodes' own reports are in the log.
func (c *cluster) leaderWithReports() *node {
	c.t.Helper()
	c.leader()
	pause(4 * time.Second)
	return c.leader()
}

// except returns the other nodes.
func (c *cluster) except(nodes ...*node) []*node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return slices.Contains(nodes, n) })
}

// lead moves leadership to the node.
func (c *cluster) lead(n *node) {
	c.t.Helper()
	if !within(time.Minute, func() bool {
		l := c.leader()
		if l != n {
			_ = l.replica().TransferLeadership(c.t.Context(), &wire.TransferLeadershipRequest{Id: n.id, Reason: "test"})
		}
		return c.serving() == n
	}) {
		c.t.Fatalf("%s did not become the leader within a minute", n.id)
	}
}

// between returns a random duration. Only the test's own goroutine may call it.
func (c *cluster) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.random.Int64N(int64(most-least)))
}
