package monitor

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/failover"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Layer connects to other nodes; *peerport.Layer implements it.
type Layer interface {
	WatchProcess(ctx context.Context, addr, id string, opened func()) error
	Linked(id string) bool
	Call(ctx context.Context, addr, id string, req *wire.PeerRequest) (*wire.PeerResponse, *wire.PeerHelloReply, error)
}

// Config configures a Monitor. All fields are required.
type Config struct {
	// NodeID is the ID of this node.
	NodeID string
	// HeartbeatTimeout is raft's.
	HeartbeatTimeout time.Duration
	// Raft runs already.
	Raft *raft.Raft
	// Layer connects to the leader and the voters.
	Layer Layer
	// Address returns the current address of a member of raft's configuration.
	Address func(raft.Server) string
	// Servers returns the members of raft's configuration, by ID.
	Servers func() map[string]raft.Server
	// Drained reports whether a member is drained.
	Drained func(id string) bool
	// CallElection makes this node a candidate.
	CallElection func() error
	Logger       hclog.Logger
	// Losses counts dead leaders, and Decisions what became of each, by reason.
	Losses    prometheus.Counter
	Decisions *prometheus.CounterVec
}

// The pause between two attempts to reach a leader grows from firstRetry to lastRetry.
const firstRetry, lastRetry = 2 * time.Millisecond, time.Second

// Monitor observes the leader. It is safe for concurrent use.
type Monitor struct {
	cfg Config
	// changed is signalled when the leader may have changed.
	changed chan struct{}

	mu         sync.Mutex // guards the fields below
	leader     string     // the node that the connection is, or will be, to
	disconnect context.CancelFunc
	self       failover.Self // only Observed, Called and, as Term, the latest term in which a vote was requested
}

// New returns a Monitor. [Monitor.Run] must be called for it to detect anything.
func New(cfg Config) *Monitor {
	for _, reason := range failover.Reasons() {
		cfg.Decisions.WithLabelValues(string(reason)) // so that the first one is seen as an increase
	}
	return &Monitor{cfg: cfg, changed: make(chan struct{}, 1), disconnect: func() {}}
}

// Run observes the leader until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	observer := raft.NewObserver(nil, false, m.observe)
	m.cfg.Raft.RegisterObserver(observer)
	defer m.cfg.Raft.DeregisterObserver(observer)
	for ctx.Err() == nil {
		leader, following := m.follow(ctx)
		if id := string(leader.ID); id == "" || id == m.cfg.NodeID {
			select {
			case <-m.changed:
			case <-ctx.Done():
			}
			continue
		}
		m.watch(following, leader)
	}
}

// observe records what raft is about to do. Raft calls it on its main loop, before it acts.
func (m *Monitor) observe(o *raft.Observation) bool {
	switch data := o.Data.(type) {
	case raft.RequestVoteRequest:
		m.mu.Lock()
		m.self.Term = max(m.self.Term, data.Term)
		m.mu.Unlock()
	case raft.LeaderObservation:
		m.mu.Lock()
		if string(data.LeaderID) != m.leader {
			m.disconnect()
		}
		m.mu.Unlock()
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
	return false
}

// follow returns the leader that raft knows, and a context that is cancelled when raft learns of another one.
func (m *Monitor) follow(ctx context.Context) (raft.Server, context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disconnect()
	addr, id := m.cfg.Raft.LeaderWithID() // with mu held: a later change finds the context
	m.leader, m.disconnect = string(id), cancel
	return raft.Server{ID: id, Address: addr}, ctx
}

// watch holds a connection to the leader, reopening it as needed, until raft learns of another leader.
func (m *Monitor) watch(ctx context.Context, leader raft.Server) {
	id, addr := string(leader.ID), m.cfg.Address(leader)
	var lost failover.Loss // the leader whose connection has closed
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, lastRetry) {
		err := m.cfg.Layer.WatchProcess(ctx, addr, id, m.seenAlive)
		switch {
		case err == nil:
			lost = failover.Loss{Leader: id, Term: m.cfg.Raft.CurrentTerm()}
			pause = firstRetry / 2
			continue
		case lost.Leader != "" && peerport.NobodyListens(err) && !m.cfg.Layer.Linked(id):
			m.seenDead(lost)
			m.callElection(ctx, lost)
			lost = failover.Loss{}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (m *Monitor) seenAlive() { m.setSeen(failover.Loss{}) }

func (m *Monitor) seenDead(l failover.Loss) {
	m.cfg.Logger.Info("the leader has closed its connections and refuses new ones", "leader", l.Leader, "term", l.Term)
	m.cfg.Losses.Inc()
	m.setSeen(l)
}

func (m *Monitor) setSeen(l failover.Loss) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.self.Observed = l
}

// Called records that this node calls an election against the leader of that term.
func (m *Monitor) Called(term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.self.Called = max(m.self.Called, term)
}

// view returns the current state of this node. Raft reports it in several calls: if they do not belong to the
// same moment, Leader is empty.
func (m *Monitor) view() failover.Self {
	m.mu.Lock()
	self := m.self
	m.mu.Unlock()
	node := m.cfg.Raft
	asked := self.Term
	self.ID, self.Term = m.cfg.NodeID, node.CurrentTerm()
	_, leader := node.LeaderWithID()
	self.Follower, self.Leader = node.State() == raft.Follower, string(leader)
	self.Tail = logEnd(node)
	if node.CurrentTerm() != self.Term {
		self.Leader = ""
	}
	self.Term = max(self.Term, asked)
	if m.cfg.Layer.Linked(self.Observed.Leader) {
		self.Observed = failover.Loss{} // it has come back
	}
	return self
}
