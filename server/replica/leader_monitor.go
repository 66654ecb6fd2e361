package replica

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/failover"
	"github.com/quorumlock/quorumlock/transport/peerport"
)

// The pause between two attempts to reach a leader grows from firstRetry to lastRetry.
const firstRetry, lastRetry = 2 * time.Millisecond, time.Second

// leaderMonitor detects that the leader's process has died. A follower holds a connection to the leader. When
// that closes and a new one is refused, it asks the other voters whether they saw the same (hint.go). Until
// then, the cost is one idle connection.
type leaderMonitor struct {
	r *Replica
	// moved is signalled when the leader may have changed.
	moved chan struct{}

	mu     sync.Mutex // guards the fields below
	leader string     // the node that the connection is, or will be, to
	leave  context.CancelFunc
	self   failover.Self // only Saw, Called and, as Term, the latest term in which a vote was requested
}

func newLeaderMonitor(r *Replica) *leaderMonitor {
	return &leaderMonitor{r: r, moved: make(chan struct{}, 1), leave: func() {}}
}

// run runs until the node stops. Raft must be running.
func (v *leaderMonitor) run() {
	node := v.r.node.Load()
	observer := raft.NewObserver(nil, false, v.observe)
	node.RegisterObserver(observer)
	defer node.DeregisterObserver(observer)
	for v.r.ctx.Err() == nil {
		leader, ctx := v.follow(node)
		if leader.ID == "" || leader.ID == v.r.cfg.ID {
			select {
			case <-v.moved:
			case <-v.r.ctx.Done():
			}
			continue
		}
		v.watch(ctx, leader)
	}
}

// observe records what raft is about to do. Raft calls it on its main loop, before it acts.
func (v *leaderMonitor) observe(o *raft.Observation) bool {
	switch data := o.Data.(type) {
	case raft.RequestVoteRequest:
		v.mu.Lock()
		v.self.Term = max(v.self.Term, data.Term)
		v.mu.Unlock()
	case raft.LeaderObservation:
		v.mu.Lock()
		if string(data.LeaderID) != v.leader {
			v.leave()
		}
		v.mu.Unlock()
		select {
		case v.moved <- struct{}{}:
		default:
		}
	}
	return false
}

// follow returns the leader that raft knows, and a context that is cancelled when raft learns of another one.
func (v *leaderMonitor) follow(node *raft.Raft) (Peer, context.Context) {
	ctx, cancel := context.WithCancel(v.r.ctx)
	v.mu.Lock()
	v.leave()
	addr, id := node.LeaderWithID() // with mu held: a later change finds the context
	v.leader, v.leave = string(id), cancel
	v.mu.Unlock()
	return v.r.peer(raft.Server{ID: id, Address: addr}), ctx
}

// watch holds a connection to the leader, reopening it as needed, until raft learns of another leader.
func (v *leaderMonitor) watch(ctx context.Context, leader Peer) {
	var lost failover.Loss // the leader whose connection has closed
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, lastRetry) {
		err := v.r.layer.Lifeline(ctx, leader.Addr, leader.ID, v.seenAlive)
		switch {
		case err == nil:
			lost = failover.Loss{Leader: leader.ID, Term: v.r.node.Load().CurrentTerm()}
			pause = firstRetry / 2
			continue
		case lost.Leader != "" && peerport.NobodyListens(err) && !v.r.layer.Linked(leader.ID):
			v.seenDead(lost)
			v.r.callElection(ctx, lost)
			lost = failover.Loss{}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (v *leaderMonitor) seenAlive() { v.saw(failover.Loss{}) }

func (v *leaderMonitor) seenDead(l failover.Loss) {
	v.r.log.Info("the leader has closed its connections and refuses new ones", "leader", l.Leader, "term", l.Term)
	v.r.metrics.leaderLosses.Inc()
	v.saw(l)
}

func (v *leaderMonitor) saw(l failover.Loss) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.self.Saw = l
}

// called records that this node calls an election against the leader of that term.
func (v *leaderMonitor) called(term uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.self.Called = max(v.self.Called, term)
}

// view returns the current state of this node. Raft reports it in several calls: if they do not belong to the
// same moment, Leader is empty.
func (v *leaderMonitor) view(node *raft.Raft) failover.Self {
	v.mu.Lock()
	self := v.self
	v.mu.Unlock()
	asked := self.Term
	self.ID, self.Term = v.r.cfg.ID, node.CurrentTerm()
	_, leader := node.LeaderWithID()
	self.Follower, self.Leader = node.State() == raft.Follower, string(leader)
	self.Tail = logEnd(node)
	if node.CurrentTerm() != self.Term {
		self.Leader = ""
	}
	self.Term = max(self.Term, asked)
	if v.r.layer.Linked(self.Saw.Leader) {
		self.Saw = failover.Loss{} // it has come back
	}
	return self
}
