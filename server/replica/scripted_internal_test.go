package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/internal/catchup"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/server/internal/raftlog"
	"github.com/quorumlock/quorumlock/server/internal/samples"
	"github.com/quorumlock/quorumlock/server/membership/autopilot"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// lines returns the number of log lines that contain a text.
func (l *logged) lines(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *logged) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: l, Level: hclog.Info})
}

// idle is node n1 of a cluster of three, with its disk and its peer port open. It does not run raft, and
// cannot, because its raft settings are invalid.
type idle struct {
	*Replica
	net   *simnet.Net
	log   *logged
	index uint64 // of the last applied entry
}

// openIdle opens an idle node in a bubble, which closes it.
func openIdle(t *testing.T, tune func(*Config)) *idle {
	t.Helper()
	n := &idle{net: simnet.New(1), log: &logged{}}
	host := n.net.Host("n1")
	listener, err := host.Listen(t.Context(), "n1:7401")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		ID: "n1", Advertise: Addresses{Peer: "n1:7401", Client: "n1:7400", HTTP: "n1:7402"}, Version: "v", Level: fsm.Level,
		Cluster: []Peer{{ID: "n1", Addr: "n1:7401"}, {ID: "n2", Addr: "n2:7401"}, {ID: "n3", Addr: "n3:7401"}},
		Network: host, PeerListener: listener, Stores: inMemory(), Logger: n.log.logger(), LeaderLeaseTimeout: time.Hour,
	}
	if tune != nil {
		tune(&cfg)
	}
	cfg = cfg.withDefaults()
	r := &Replica{cfg: cfg, log: cfg.Logger, eventLog: eventlog.New(), pilot: autopilot.New(autopilot.Config{}), catchUp: catchup.New(), leaders: cluster.NewLeaderChanges()}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.machine = fsm.NewReplicated(cfg.Level, r.halt)
	r.checker = r.newChecker()
	r.metrics, r.alarms = metrics.New(cfg.Registry), r.newAlarms()
	r.sampler = samples.New(r.totals)
	r.Processor = r.newProcessor()
	n.Replica = r
	if err := errors.Join(r.openDisk(), r.openNetwork()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.cancel()
		r.running.Wait()
		if err := errors.Join(r.layer.Close(), r.stores.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// applies applies commands to the state machine without raft.
func (n *idle) applies(t *testing.T, commands ...*wire.Command) {
	t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: 1, Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	n.index++
	applied, ok := n.machine.Apply(&raft.Log{Index: n.index, Data: data}).(*fsm.Applied)
	if !ok {
		t.Fatal("the entry was not applied")
	}
	for i, result := range applied.Results {
		if result.GetStatus() != wire.Status_OK {
			t.Fatalf("%v: %v", commands[i], result)
		}
	}
}

// someMember returns a member with an incarnation and addresses.
func someMember(id string) *wire.Member {
	return &wire.Member{Id: id, Incarnation: "i-" + id, PeerAddr: id + ":7401", ClientAddr: id + ":7400", HttpAddr: id + ":7402", Level: fsm.Level}
}

// beginnings returns the commands that begin cluster c with these members.
func beginnings(members ...*wire.Member) []*wire.Command {
	return []*wire.Command{
		{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings(), Members: members}}},
		{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}},
	}
}

// runRaft runs raft alone on the stores, with these voters, of which the others do not run. If there are
// others, it never leads.
func (n *idle) runRaft(t *testing.T, voters ...string) *raft.Raft {
	t.Helper()
	conf := n.raftConfig(raftlog.New(raftlog.Config{Logger: n.log.logger()}))
	conf.LeaderLeaseTimeout = conf.HeartbeatTimeout
	_, trans := raft.NewInmemTransport(raft.ServerAddress(n.cfg.Advertise.Peer))
	var members raft.Configuration
	for _, id := range voters {
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ":7401")})
	}
	if len(voters) > 0 {
		if err := raft.BootstrapCluster(conf, n.stores.Log, n.stores.Votes, n.stores.Snapshots, trans, members); err != nil {
			t.Fatal(err)
		}
	}
	node, err := raft.NewRaft(conf, &raft.MockFSM{}, n.stores.Log, n.stores.Votes, n.stores.Snapshots, trans)
	if err != nil {
		t.Fatal(err)
	}
	n.cluster.Run(node)
	n.monitor.Store(n.newMonitor(node))
	t.Cleanup(func() {
		if err := node.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})
	return node
}

// scripted is another node, whose answers the test sets.
type scripted struct {
	id, cluster string // as its peer port reports them

	mu              sync.Mutex // guards the fields below
	state           *wire.NodeState
	answer          wire.Status_Code // to a report
	probes, reports int
}

// listenAs opens the peer port of s at the address of node at.
func listenAs(t *testing.T, net *simnet.Net, at string, s *scripted) *scripted {
	t.Helper()
	host := net.Host(at)
	listener, err := host.Listen(t.Context(), at+":7401")
	if err != nil {
		t.Fatal(err)
	}
	layer, err := peerport.New(peerport.Config{Listener: listener, Network: host, Identity: s, Handler: s.serve})
	if err != nil {
		t.Fatal(err)
	}
	layer.Start()
	t.Cleanup(func() {
		if err := layer.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// listens opens the peer port of another node, which answers probes with state.
func listens(t *testing.T, net *simnet.Net, id string, state *wire.NodeState) *scripted {
	t.Helper()
	if state.Member == nil {
		state.Member = someMember(id)
	}
	state.ClockUnixMs = time.Now().UnixMilli()
	return listenAs(t, net, id, &scripted{id: id, state: state, answer: wire.Status_OK})
}

func (s *scripted) serve(_ context.Context, _ *wire.PeerHello, req *wire.PeerRequest) *wire.PeerResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case req.GetProbe() != nil:
		s.probes++
		return &wire.PeerResponse{Status: wire.Status_OK, State: s.state}
	case req.GetReport() != nil:
		s.reports++
		return &wire.PeerResponse{Status: s.answer, Message: "as told"}
	}
	return nil
}

// asked returns the number of probes and reports since the last call.
func (s *scripted) asked() (probes, reports int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.probes, s.reports = 0, 0 }()
	return s.probes, s.reports
}

func (s *scripted) ClusterID() string                 { return s.cluster }
func (s *scripted) Self() (id, incarnation string)    { return s.id, "i-" + s.id }
func (s *scripted) Incarnation(string) (string, bool) { return "", false }
func (s *scripted) Observe(*wire.PeerHello)           {}
func (s *scripted) State(string) *wire.PeerState      { return nil }
func (s *scripted) Incompatible(string, error)        {}

func (s *scripted) Standing(string, string) wire.Standing { return wire.Standing_MEMBER }

func (s *scripted) CheckState(string, string, *wire.PeerState) error { return nil }

func (s *scripted) AskMembers(context.Context, *wire.PeerHello, string) wire.Standing {
	return wire.Standing_MEMBER
}

// teammate is a node that runs together with others.
type teammate struct {
	*Replica
	log *logged
}

// openTogether opens the nodes of a cluster in a bubble, which closes them, and waits until all are recorded.
// The first node returned is the leader.
func openTogether(t *testing.T, count int) (*simnet.Net, []*teammate) {
	t.Helper()
	net := simnet.New(1)
	var peers []Peer
	for i := range count {
		id := fmt.Sprintf("n%d", i+1)
		peers = append(peers, Peer{ID: id, Addr: id + ":7401"})
	}
	var nodes []*teammate
	for _, p := range peers {
		n, host := &teammate{log: &logged{}}, net.Host(p.ID)
		listener, err := host.Listen(t.Context(), p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		stores := inMemory()
		stores.Incarnation = "i-" + p.ID
		n.Replica, err = Open(t.Context(), Config{
			ID: p.ID, Advertise: Addresses{Peer: p.Addr, Client: p.ID + ":7400", HTTP: p.ID + ":7402"}, Cluster: peers, Network: host, PeerListener: listener, Stores: stores, Logger: n.log.logger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close(context.Background()) })
		nodes = append(nodes, n)
	}
	awaitRaft(t, "a cluster whose leader knows all members", func() bool {
		i := slices.IndexFunc(nodes, func(n *teammate) bool { return n.Serving() })
		if i < 0 {
			return false
		}
		nodes[0], nodes[i] = nodes[i], nodes[0]
		known := 0
		nodes[0].View(func(m *fsm.Machine) {
			for _, member := range m.Members() {
				if member.ClientAddr != "" {
					known++
				}
			}
		})
		return known == count
	})
	return net, nodes
}
