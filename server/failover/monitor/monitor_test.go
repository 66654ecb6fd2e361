package monitor

import (
	"context"
	"errors"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/failover"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// layer is a network that reaches nobody.
type layer struct{ linked string }

func (*layer) WatchProcess(context.Context, string, string, func()) error {
	return errors.New("unreachable")
}

func (l *layer) Linked(id string) bool { return id == l.linked }

func (*layer) Call(context.Context, string, string, *wire.PeerRequest) (*wire.PeerResponse, *wire.PeerHelloReply, error) {
	return nil, nil, errors.New("unreachable")
}

// start runs raft alone in memory until the end of the test, and returns a monitor of it.
func start(t *testing.T) (*Monitor, *layer) {
	t.Helper()
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "n1", hclog.NewNullLogger()
	store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	addr, transport := raft.NewInmemTransport("n1:7401")
	members := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: addr}}}
	if err := raft.BootstrapCluster(conf, store, store, snapshots, transport, members); err != nil {
		t.Fatal(err)
	}
	node, err := raft.NewRaft(conf, nil, store, store, snapshots, transport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})
	<-node.LeaderCh()
	if err := node.Barrier(0).Error(); err != nil {
		t.Fatal(err)
	}
	net := &layer{}
	return New(Config{
		NodeID: "n1", HeartbeatTimeout: conf.HeartbeatTimeout, Raft: node, Layer: net,
		Address:      func(s raft.Server) string { return string(s.Address) },
		Servers:      func() map[string]raft.Server { return map[string]raft.Server{"n1": members.Servers[0]} },
		Drained:      func(string) bool { return false },
		CallElection: func() error { t.Error("called an election"); return nil },
		Logger:       hclog.NewNullLogger(),
		Losses:       prometheus.NewCounter(prometheus.CounterOpts{Name: "losses"}),
		Decisions:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions"}, []string{"reason"}),
	}), net
}

// TestView verifies that the view combines raft's state with what the monitor has recorded.
func TestView(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, net := start(t)
		term := m.cfg.Raft.CurrentTerm()
		want := failover.Self{ID: "n1", Leader: "n1", Term: term, Tail: failover.Tail{Term: term, Index: m.cfg.Raft.LastIndex()}}
		see := func(when string) {
			t.Helper()
			if got := m.view(); got != want {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		see("at first")
		m.observe(&raft.Observation{Data: raft.RequestVoteRequest{Term: term + 7}})
		m.observe(&raft.Observation{Data: raft.RequestVoteRequest{Term: term + 5}})
		want.Term = term + 7
		see("asked for its vote")
		m.Called(4)
		m.Called(3)
		want.Called = 4
		see("after a call")
		want.Observed = failover.Loss{Leader: "n2", Term: 4}
		m.seenDead(want.Observed)
		see("after a loss")
		if got := m.Answer(&wire.LeaderLossRequest{LeaderId: "n2", Term: 4}).GetLeaderLoss(); got.GetLost() || got.GetTerm() != want.Term || got.GetLastLogIndex() != want.Tail.Index {
			t.Errorf("a leader answers %v", got)
		}
		net.linked = "n3"
		see("connected to another node")
		net.linked = "n2"
		saw := want.Observed
		want.Observed = failover.Loss{}
		see("connected again")
		net.linked = ""
		want.Observed = saw
		see("disconnected again")
		m.seenAlive()
		want.Observed = failover.Loss{}
		see("seen alive")
	})
}

// TestConnectionFollowsTheLeader verifies that the connection is given up when raft has another leader.
func TestConnectionFollowsTheLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, _ := start(t)
		disconnected := 0
		m.mu.Lock()
		m.leader, m.disconnect = "n2", func() { disconnected++ }
		m.mu.Unlock()
		m.observe(&raft.Observation{Data: raft.LeaderObservation{LeaderID: "n2"}})
		if disconnected != 0 {
			t.Error("disconnected from the leader")
		}
		m.observe(&raft.Observation{Data: raft.LeaderObservation{LeaderID: "n3"}})
		if disconnected != 1 {
			t.Error("still connected to the former leader")
		}
		leader, ctx := m.follow(t.Context())
		if leader.ID != "n1" || ctx.Err() != nil {
			t.Errorf("follows %v, %v", leader, ctx.Err())
		}
		if m.observe(&raft.Observation{Data: raft.LeaderObservation{LeaderID: "n2"}}); ctx.Err() == nil {
			t.Error("still follows the former leader")
		}
	})
}
