package replica_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// cluster is a set of replicas on an in-memory network, in virtual time.
type cluster struct {
	t     *testing.T
	net   *simnet.Net
	nodes map[string]*node
	peers []replica.Peer

	mu sync.Mutex // guards which nodes are up
}

// node is a machine. Its disk outlives its process.
type node struct {
	*replica.Replica
	c           *cluster
	id          string
	cfg         replica.Config
	disk        *disk
	host        *simnet.Host
	incarnation int
	up          bool // guarded by the cluster's mu

	mu     sync.Mutex
	halted error
}

// disk is what survives a crash. Writes fail once broken is set, take as long as slow says, do not return
// before hung is closed, and store entries as damage changes them.
type disk struct {
	*raft.InmemStore
	snapshots *raft.InmemSnapshotStore
	mu        sync.Mutex
	broken    error
	damage    func(*raft.Log)
	slow      time.Duration
	hung      chan struct{}
}

func (d *disk) StoreLogs(entries []*raft.Log) error {
	if err := d.wait(); err != nil {
		return err
	}
	d.mu.Lock()
	damage := d.damage
	d.mu.Unlock()
	for _, e := range entries {
		if damage != nil {
			damage(e)
		}
	}
	return d.InmemStore.StoreLogs(entries)
}

func (d *disk) SetUint64(key []byte, value uint64) error {
	d.mu.Lock()
	hung := d.hung
	d.mu.Unlock()
	if hung != nil {
		<-hung
	}
	return d.InmemStore.SetUint64(key, value)
}

func (d *disk) wait() error {
	d.mu.Lock()
	broken, slow, hung := d.broken, d.slow, d.hung
	d.mu.Unlock()
	if hung != nil {
		<-hung
	}
	time.Sleep(slow)
	return broken
}

// hang blocks all writes until release is called.
func (d *disk) hang() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	hung := make(chan struct{})
	d.hung = hung
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.hung = nil
		close(hung)
	}
}

func (d *disk) takeTime(each time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = each
}

func (d *disk) breakWith(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = err
}

// inVirtualTime runs a test in its own bubble.
func inVirtualTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	bubble.Test(t, f)
}

func newCluster(t *testing.T, n int) *cluster {
	c := &cluster{t: t, net: simnet.New(1), nodes: map[string]*node{}}
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		c.peers = append(c.peers, replica.Peer{ID: id, Addr: id + ":7401"})
	}
	for _, p := range c.peers {
		c.machine(p.ID)
	}
	t.Cleanup(c.stopAll)
	return c
}

// machine returns a node that is not running yet.
func (c *cluster) machine(id string) *node {
	n := &node{c: c, id: id, host: c.net.Host(id)}
	n.cfg = replica.Config{
		ID:        id,
		Advertise: replica.Addresses{Peer: id + ":7401", Client: id + ":7400", HTTP: id + ":7402"},
		Cluster:   c.peers,
		Network:   n.host,
		Logger:    testLogger(c.t, id),
		Halt:      n.halt,
		Version:   "test",
	}
	n.wipe()
	c.nodes[id] = n
	return n
}

// testLogger discards everything unless QUORUMLOCK_TEST_LOG names a level.
func testLogger(t *testing.T, id string) hclog.Logger {
	level := hclog.LevelFromString(os.Getenv("QUORUMLOCK_TEST_LOG"))
	if level == hclog.NoLevel {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: id, Level: level, Output: t.Output(), TimeFormat: "04:05.000"})
}

func (n *node) halt(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.halted = err
}

func (n *node) haltedWith() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.halted
}

// wipe gives the node an empty disk.
func (n *node) wipe() {
	n.incarnation++
	n.disk = &disk{InmemStore: raft.NewInmemStore(), snapshots: raft.NewInmemSnapshotStore()}
	n.cfg.Stores = storage.Backend{Log: n.disk, Stable: n.disk, Snapshots: n.disk.snapshots, Incarnation: fmt.Sprintf("%s-%d", n.id, n.incarnation)}
}

func (n *node) open() error {
	l, err := n.host.Listen(context.Background(), n.cfg.Advertise.Peer)
	if err != nil {
		return err
	}
	n.cfg.PeerListener = l
	r, err := replica.Open(context.Background(), n.cfg)
	if err != nil {
		return err
	}
	n.set(r)
	return nil
}

func (n *node) set(r *replica.Replica) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.up = r != nil
	if r != nil {
		n.Replica = r
	}
}

func (n *node) start() *node {
	n.c.t.Helper()
	if err := n.open(); err != nil {
		n.c.t.Fatalf("open %s: %v", n.id, err)
	}
	return n
}

// stop stops the node gracefully.
func (n *node) stop() {
	if !n.up {
		return
	}
	n.set(nil)
	if err := n.Close(context.Background()); err != nil && n.haltedWith() == nil {
		n.c.t.Errorf("close %s: %v", n.id, err)
	}
}

// crash ends the node abruptly: nothing that it sends while it goes down arrives.
func (n *node) crash() {
	if !n.up {
		return
	}
	n.set(nil)
	for _, o := range n.c.nodes {
		if o != n {
			n.c.net.Isolate(n.id, o.id)
		}
	}
	n.host.Kill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Close(ctx)
	n.c.net.Heal()
}

func (c *cluster) startAll() *cluster {
	c.t.Helper()
	var started sync.WaitGroup
	for _, p := range c.peers {
		started.Go(func() { c.nodes[p.ID].start() })
	}
	started.Wait()
	return c
}

func (c *cluster) stopAll() {
	for _, n := range c.nodes {
		n.stop()
	}
}

// eventually waits for a condition, for longer than anything here can take.
func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	c.within(time.Minute, what, ok)
}

func (c *cluster) within(limit time.Duration, what string, ok func() bool) {
	c.t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > limit {
			c.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// leader waits until a running node serves, and returns it.
func (c *cluster) leader() *node {
	c.t.Helper()
	var leader *node
	c.eventually("a serving leader", func() bool {
		leader = c.serving()
		return leader != nil
	})
	return leader
}

// serving returns a node that serves at present, or nil if there is none.
func (c *cluster) serving() *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.up && n.Serving() {
			return n
		}
	}
	return nil
}

// servingReplica is serving for other goroutines than the test's own, which restarts nodes.
func (c *cluster) servingReplica() *replica.Replica {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.up && n.Serving() {
			return n.Replica
		}
	}
	return nil
}

func (c *cluster) followers() []*node {
	leader := c.leader()
	var others []*node
	for _, p := range c.peers {
		if n := c.nodes[p.ID]; n != leader && n.up {
			others = append(others, n)
		}
	}
	return others
}

func (c *cluster) except(leader *node) (ids []string) {
	for id := range c.nodes {
		if id != leader.id {
			ids = append(ids, id)
		}
	}
	return ids
}

func (n *node) heartbeat(session uint64) *wire.Result {
	n.c.t.Helper()
	return n.wait("a heartbeat", func(done func(*wire.Result)) { n.Heartbeat(session, nil, done) })
}

func (n *node) wait(what string, call func(func(*wire.Result))) *wire.Result {
	n.c.t.Helper()
	done := make(chan *wire.Result, 2)
	call(func(r *wire.Result) { done <- r })
	select {
	case r := <-done:
		return r
	case <-time.After(time.Minute):
		n.c.t.Fatalf("%s: no answer from %s within a minute", what, n.id)
		return nil
	}
}

// must proposes a command to the current leader until it is executed.
func (c *cluster) must(cmd *wire.Command) *wire.Result {
	c.t.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		switch r := c.leader().do(cmd); r.Status {
		case wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_UNCERTAIN:
			if time.Since(begin) > time.Minute {
				c.t.Fatalf("%v was not executed within a minute: %v", cmd, r)
			}
		default:
			return r
		}
	}
}

func (c *cluster) expect(r *wire.Result, want wire.Status_Code) *wire.Result {
	c.t.Helper()
	if r.GetStatus() != want {
		c.t.Fatalf("status %v (%s), want %v", r.GetStatus(), r.GetMessage(), want)
	}
	return r
}

// openSession opens a session with that TTL on the current leader.
func (c *cluster) openSession(name string, ttl time.Duration) uint64 {
	c.t.Helper()
	return c.expect(c.must(openCommand(name, ttl)), wire.Status_OK).Session.SessionId
}

func openCommand(name string, ttl time.Duration) *wire.Command {
	hash := sha256.Sum256([]byte(name))
	return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash[:], TtlMs: uint32(ttl.Milliseconds()), Client: &wire.ClientInfo{Name: name}}}}
}

func attachCommand(session uint64, name string) *wire.Command {
	hash := sha256.Sum256([]byte(name))
	return &wire.Command{SessionId: session, Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: hash[:]}}}
}

func acquireCommand(session, seq uint64, lock string, wait time.Duration) *wire.Command {
	a := &wire.Acquire{Locks: []*wire.LockRequest{{Name: lock}}, WaitMs: uint32(wait.Milliseconds()), WaitForever: wait < 0, Owner: seq}
	if wait < 0 {
		a.WaitMs = 0
	}
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: a}}
}

func releaseCommand(session, seq uint64, of *wire.Result) *wire.Command {
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Release{Release: &wire.Release{HoldId: of.HoldId, Token: of.Token}}}
}

const forever = -1

// holder returns the session that holds the lock according to this node, 0 if there is none.
func (n *node) holder(lock string) (session uint64) {
	n.View(func(m *fsm.Machine) {
		if l, ok := m.GetLock(&wire.GetLockRequest{Name: lock}); ok && len(l.Holders) > 0 {
			session = l.Holders[0].SessionId
		}
	})
	return session
}

func (n *node) lives(session uint64) (ok bool) {
	n.View(func(m *fsm.Machine) { _, ok = m.Session(session) })
	return ok
}

// entries returns this package's entries in the node's log, except those that are only hash points.
func (n *node) entries() (entries []*wire.Entry) {
	n.c.t.Helper()
	first, _ := n.disk.FirstIndex()
	last, _ := n.disk.LastIndex()
	for i := first; i <= last && i > 0; i++ {
		var l raft.Log
		if err := n.disk.GetLog(i, &l); err != nil {
			n.c.t.Fatal(err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		e := &wire.Entry{}
		if err := proto.Unmarshal(l.Data, e); err != nil {
			n.c.t.Fatal(err)
		}
		if !e.HashPoint || len(e.Commands) > 0 {
			entries = append(entries, e)
		}
	}
	return entries
}

// sink collects pushes.
type sink struct {
	mu     sync.Mutex
	pushes []*wire.Push
}

func (s *sink) Push(p *wire.Push) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushes = append(s.pushes, p)
}

func (s *sink) all() []*wire.Push {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pushes)
}

// waitForReports waits until the members have reported themselves, so that the reconciler adds no entries later.
func (c *cluster) waitForReports() *node {
	c.t.Helper()
	leader := c.leader()
	c.eventually("all members recorded", func() bool {
		known := 0
		leader.View(func(m *fsm.Machine) {
			for _, member := range m.Members() {
				if member.Incarnation != "" && member.ClientAddr != "" {
					known++
				}
			}
		})
		return known == len(c.peers)
	})
	time.Sleep(3 * time.Second)
	return leader
}

func mentions(err error, words ...string) bool {
	return err != nil && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(err.Error(), w) })
}

var errDisk = errors.New("input/output error")
