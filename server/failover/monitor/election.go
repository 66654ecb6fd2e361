package monitor

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/failover"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// firstPoll is the pause before the other voters are asked again. They may notice the same death slightly
// later.
const firstPoll = 5 * time.Millisecond

// turn is how long each voter has to call an election before the next one may. It is many times what that
// takes, but short compared with raft's timeouts.
func (m *Monitor) turn() time.Duration { return m.cfg.HeartbeatTimeout / 5 }

// callElection calls an election once package failover allows it. It gives up when another node has called
// one, when failover says so, or after four heartbeat timeouts, when raft's own timeouts have long passed.
func (m *Monitor) callElection(ctx context.Context, lost failover.Loss) {
	started := time.Now()
	for pause := firstPoll; ; pause = min(2*pause, m.turn()/2) {
		h := m.Poll(ctx, lost)
		h.Self = m.view()
		decision := h.Decide(int(time.Since(started) / m.turn()))
		switch {
		case ctx.Err() != nil:
			return // there is another leader, or an election in progress
		case decision.Outcome == failover.Call:
			m.campaign(h, decision)
			return
		case decision.Outcome == failover.Drop, time.Since(started) > 4*m.cfg.HeartbeatTimeout:
			level := hclog.Info
			if decision.Reason == failover.MovedOn {
				level = hclog.Debug // another node has called it
			}
			m.cfg.Logger.Log(level, "no election called against the lost leader", "leader", lost.Leader, "term", lost.Term, "reason", decision.Reason)
			m.cfg.Decisions.WithLabelValues(string(decision.Reason)).Inc()
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// campaign makes this node a candidate.
func (m *Monitor) campaign(h failover.Poll, decision failover.Decision) {
	m.cfg.Logger.Warn("the leader is dead: calling an election", "leader", h.Loss.Leader, "term", h.Loss.Term,
		"seen_by", decision.Observers, "voters", len(h.Voters), "last_index", h.Self.Tail.Index)
	m.cfg.Decisions.WithLabelValues(string(decision.Reason)).Inc()
	m.Called(h.Loss.Term)
	if err := m.cfg.CallElection(); err != nil {
		m.cfg.Logger.Warn("cannot call an election: raft's timeouts will", "error", err)
	}
}

// Poll asks all other voters what they saw.
func (m *Monitor) Poll(ctx context.Context, lost failover.Loss) failover.Poll {
	ctx, cancel := context.WithTimeout(ctx, m.turn()/2) // a silent voter must not cost this node its turn
	defer cancel()
	h := failover.Poll{Loss: lost, Answers: map[string]failover.Answer{}}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for id, s := range m.cfg.Servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		h.Voters = append(h.Voters, id)
		if m.cfg.Drained(id) {
			h.Drained = append(h.Drained, id)
		}
		if id == m.cfg.NodeID || id == lost.Leader {
			continue
		}
		asked.Go(func() {
			a := m.ask(ctx, s, lost)
			mu.Lock()
			defer mu.Unlock()
			h.Answers[id] = a
		})
	}
	asked.Wait()
	slices.Sort(h.Voters)
	return h
}

// ask asks one voter.
func (m *Monitor) ask(ctx context.Context, voter raft.Server, lost failover.Loss) failover.Answer {
	question := &wire.LeaderLossRequest{LeaderId: lost.Leader, Term: lost.Term}
	resp, _, err := m.cfg.Layer.Call(ctx, m.cfg.Address(voter), string(voter.ID), &wire.PeerRequest{Body: &wire.PeerRequest_LeaderLoss{LeaderLoss: question}})
	said := resp.GetLeaderLoss()
	switch {
	case peerport.NobodyListens(err), resp.GetStatus() == wire.Status_UNSUPPORTED:
		return failover.Answer{Absent: true}
	case said == nil:
		return failover.Answer{Silent: true}
	}
	return failover.Answer{Lost: said.Lost, Term: said.Term, Tail: failover.Tail{Term: said.LastLogTerm, Index: said.LastLogIndex}}
}

// Answer answers another voter's question about a leader.
func (m *Monitor) Answer(q *wire.LeaderLossRequest) *wire.PeerResponse {
	self := m.view()
	return &wire.PeerResponse{Status: wire.Status_OK, LeaderLoss: &wire.LeaderLossReply{
		Lost:         self.Confirms(failover.Loss{Leader: q.GetLeaderId(), Term: q.GetTerm()}),
		Term:         self.Term,
		LastLogTerm:  self.Tail.Term,
		LastLogIndex: self.Tail.Index,
	}}
}

// logEnd returns the last entry of the log, or of the snapshot if that is later. Raft provides it only
// through Stats.
func logEnd(node *raft.Raft) failover.Tail {
	stats := node.Stats()
	number := func(key string) uint64 {
		n, _ := strconv.ParseUint(stats[key], 10, 64)
		return n
	}
	log := failover.Tail{Term: number("last_log_term"), Index: number("last_log_index")}
	snapshot := failover.Tail{Term: number("last_snapshot_term"), Index: number("last_snapshot_index")}
	if snapshot.Index > log.Index {
		return snapshot
	}
	return log
}
