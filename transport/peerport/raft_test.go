package peerport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// list is a state machine that remembers everything.
type list struct {
	mu      sync.Mutex
	entries [][]byte
}

func (s *list) Apply(l *raft.Log) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, l.Data)
	return nil
}

func (s *list) Snapshot() (raft.FSMSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return frozen(bytes.Join(s.entries, []byte("\n"))), nil
}

func (s *list) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = bytes.Split(b, []byte("\n"))
	return err
}

func (s *list) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

type frozen []byte

func (f frozen) Persist(sink raft.SnapshotSink) error {
	_, err := sink.Write(f)
	return errors.Join(err, sink.Close())
}

func (frozen) Release() {}

// node is raft on a layer.
type node struct {
	id     string
	layer  *peerport.Layer
	trans  *peerport.Transport
	raft   *raft.Raft
	list   *list
	stores *raft.InmemStore
	snaps  raft.SnapshotStore
	log    *journal
}

func newNode(t *testing.T, l *peerport.Layer, id string, resolve func(raft.ServerID, raft.ServerAddress) raft.ServerAddress) *node {
	t.Helper()
	n := &node{id: id, layer: l, list: &list{}, stores: raft.NewInmemStore(), snaps: raft.NewInmemSnapshotStore(), log: &journal{}}
	logger := hclog.New(&hclog.LoggerOptions{Output: n.log, Level: hclog.Warn})
	var running atomic.Pointer[raft.Raft]
	follows := func(id raft.ServerID) bool {
		_, leader := running.Load().LeaderWithID()
		return leader == id
	}
	n.trans = peerport.NewTransport(l, peerport.TransportConfig{Resolve: resolve, Follows: follows, Logger: logger.Named("net")})
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(id)
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 500*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond
	cfg.CommitTimeout = 20 * time.Millisecond
	cfg.TrailingLogs = 10
	cfg.Logger = logger
	var err error
	if n.raft, err = raft.NewRaft(cfg, n.list, n.stores, n.stores, n.snaps, n.trans); err != nil {
		t.Fatal(err)
	}
	running.Store(n.raft)
	return n
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	if err := n.raft.Shutdown().Error(); err != nil {
		t.Error(err)
	}
}

func bootstrap(t *testing.T, nodes ...*node) {
	t.Helper()
	var c raft.Configuration
	for _, n := range nodes {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(n.id), Address: raft.ServerAddress(n.layer.Addr().String())})
	}
	for _, n := range nodes {
		if err := n.raft.BootstrapCluster(c).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

func leader(t *testing.T, nodes []*node) *node {
	t.Helper()
	var found *node
	until(t, "a leader that all know", func() bool {
		found = nil
		for _, n := range nodes {
			if n.raft.State() == raft.Leader {
				found = n
			}
		}
		for _, n := range nodes {
			if addr, id := n.raft.LeaderWithID(); found == nil || string(id) != found.id || string(addr) != found.layer.Addr().String() {
				return false
			}
		}
		return true
	})
	return found
}

func apply(t *testing.T, n *node, entries int) {
	t.Helper()
	var last raft.ApplyFuture
	for i := range entries {
		last = n.raft.Apply(fmt.Appendf(nil, "entry %d", i), 10*time.Second)
	}
	if err := last.Error(); err != nil {
		t.Fatal(err)
	}
}

// replicates elects, replicates, loses a leader, elects again, and lets a late node catch up from a snapshot.
func replicates(t *testing.T, nodes []*node, late func() *node) {
	t.Helper()
	bootstrap(t, nodes...)
	first := leader(t, nodes)
	apply(t, first, 100)
	for _, n := range nodes {
		until(t, "100 entries on "+n.id, func() bool { return n.list.len() == 100 })
	}
	if err := first.raft.LeadershipTransfer().Error(); err != nil {
		t.Fatal(err)
	}
	until(t, "the leader to step down", func() bool { return first.raft.State() != raft.Leader })
	second := leader(t, nodes)
	second.stop(t)
	var rest []*node
	for _, n := range nodes {
		if n != second {
			rest = append(rest, n)
		}
	}
	third := leader(t, rest)
	apply(t, third, 100)
	if err := third.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	last := late()
	if err := third.raft.AddVoter(raft.ServerID(last.id), raft.ServerAddress(last.layer.Addr().String()), 0, 0).Error(); err != nil {
		t.Fatal(err)
	}
	rest = append(rest, last)
	for _, n := range rest {
		until(t, "200 entries on "+n.id, func() bool { return n.list.len() == 200 })
	}
	if n, err := last.snaps.List(); err != nil || len(n) == 0 {
		t.Errorf("it did not catch up by a snapshot: %v", err)
	}
	for _, n := range rest {
		n.stop(t)
	}
	for _, n := range append(nodes, last) {
		if s := n.layer.Stats(); s.Inbound+s.Outbound+s.Handshaking != 0 {
			t.Errorf("%s: connections are left: %+v", n.id, s)
		}
		// A node that is stopped in the middle of a command may log that.
		if n.log.count("failed to decode incoming command") != n.log.count(`error="transport shutdown"`) {
			t.Errorf("%s: raft logs the closing of connections as errors:\n%s", n.id, n.log.buf.String())
		}
	}
}

func TestRaftOverTLS(t *testing.T) {
	dir := certificates(t, "c1")
	launch := func(id string) *node {
		l := start(t, knows(id, "n1", "n2", "n3", "n4"), with(files(dir, "nodes/"+id+"/peer")))
		return newNode(t, l, id, nil)
	}
	extend(t, dir, "n3", "n4")
	replicates(t, []*node{launch("n1"), launch("n2"), launch("n3")}, func() *node { return launch("n4") })
}

func TestRaftInVirtualTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		launch := func(id string) *node {
			return newNode(t, start(t, knows(id, "n1", "n2", "n3", "n4"), on(m)), id, nil)
		}
		replicates(t, []*node{launch("n1"), launch("n2"), launch("n3")}, func() *node { return launch("n4") })
	})
}

// TestRaftFindsNodesWhereTheyAreNow checks that the resolver's address is used if raft's configuration
// has an outdated one.
func TestRaftFindsNodesWhereTheyAreNow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		resolve := func(id raft.ServerID, _ raft.ServerAddress) raft.ServerAddress { return raft.ServerAddress(id) }
		nodes := []*node{
			newNode(t, start(t, knows("n1", "n2"), on(m)), "n1", resolve),
			newNode(t, start(t, knows("n2", "n1"), on(m)), "n2", resolve),
		}
		old := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "old1"}, {ID: "n2", Address: "old2"}}}
		for _, n := range nodes {
			if err := n.raft.BootstrapCluster(old).Error(); err != nil {
				t.Fatal(err)
			}
		}
		apply(t, leader(t, nodes), 10)
		for _, n := range nodes {
			n.stop(t)
		}
	})
}

// TestHeartbeatsGoThroughTheMainLoop checks that a heartbeat is passed to Consumer, which the main loop
// reads, and never to the handler that raft sets.
func TestHeartbeatsGoThroughTheMainLoop(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		follower := peerport.NewTransport(start(t, knows("n1", "n2"), on(m)), peerport.TransportConfig{})
		leader := peerport.NewTransport(start(t, knows("n2", "n1"), on(m)), peerport.TransportConfig{})
		follower.SetHeartbeatHandler(func(raft.RPC) { t.Error("the handler was called") })
		go func() {
			rpc := <-follower.Consumer()
			rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil)
		}()
		heartbeat := &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ID: []byte("n2"), Addr: []byte("n2@n2")}, Term: 7,
		}
		var resp raft.AppendEntriesResponse
		if err := leader.AppendEntries("n1", "n1", heartbeat, &resp); err != nil || !resp.Success {
			t.Errorf("got %+v, %v", resp, err)
		}
		if err := errors.Join(leader.Close(), follower.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestCallsBesideRaft checks that both protocols can share a port.
func TestCallsBesideRaft(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := start(t, knows("n1", "n2"), on(m), answering), start(t, knows("n2", "n1"), on(m), answering)
		nodes := []*node{newNode(t, a, "n1", nil), newNode(t, b, "n2", nil)}
		bootstrap(t, nodes...)
		apply(t, leader(t, nodes), 10)
		resp, _, err := a.Call(context.Background(), "n2", "n2", probe)
		if err != nil || resp.GetStatus() != wire.Status_OK {
			t.Errorf("got %v, %v", resp, err)
		}
		apply(t, leader(t, nodes), 10)
		for _, n := range nodes {
			n.stop(t)
		}
	})
}

// TestVoteIsForANodeAndNotForAnAddress checks two nodes that advertise the same address and ask a third
// for its vote in the same term. It may give only one: with two votes there would be two leaders.
func TestVoteIsForANodeAndNotForAnAddress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		voter := newNode(t, start(t, knows("n1", "n2", "n3"), on(m)), "n1", nil)
		defer voter.stop(t)
		candidates := []*peerport.Transport{}
		for _, id := range []string{"n2", "n3"} {
			l := start(t, knows(id, "n1"), on(m), func(c *peerport.Config) { c.Advertise = "copied:7401" })
			trans := peerport.NewTransport(l, peerport.TransportConfig{})
			defer trans.Close()
			candidates = append(candidates, trans)
		}
		granted := 0
		for i, id := range []raft.ServerID{"n2", "n3"} {
			me := candidates[i].EncodePeer(id, candidates[i].LocalAddr())
			request := &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(id), Addr: me}, Term: 7}
			var answer raft.RequestVoteResponse
			if err := candidates[i].RequestVote("n1", "n1", request, &answer); err != nil {
				t.Fatal(err)
			}
			if got := candidates[i].DecodePeer(me); got != "copied:7401" {
				t.Errorf("the candidate's address is told as %q", got)
			}
			if answer.Granted {
				granted++
			}
		}
		if granted != 1 {
			t.Errorf("%d votes in one term", granted)
		}
	})
}
