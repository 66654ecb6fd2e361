package replica

import (
	"context"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/failover/monitor"
	"github.com/quorumlock/quorumlock/server/internal/handover"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func (r *Replica) newMonitor(node *raft.Raft) *monitor.Monitor {
	return monitor.New(monitor.Config{
		NodeID: r.cfg.ID, HeartbeatTimeout: r.cfg.HeartbeatTimeout, Raft: node, Layer: r.layer,
		Address: func(s raft.Server) string { return r.cluster.Peer(s).Addr }, Servers: r.cluster.Servers, Drained: r.directory.Drained, CallElection: r.trans.CallElection,
		Logger: r.log, Losses: r.metrics.LeaderLosses, Decisions: r.metrics.LeaderHints,
	})
}

func (r *Replica) newHandover() *handover.Handover {
	return handover.New(handover.Config{
		NodeID: r.cfg.ID, Cluster: &r.cluster, Prober: r.prober, Layer: r.layer, Proposer: r.Proposer, Stores: r.stores,
		Term: r.leadingTerm, Serving: r.Serving, Superseded: r.endLeadership, Done: r.ctx.Done(), Logger: r.log, SlowDisks: r.metrics.SlowDisks,
		CallElection: func(term uint64) error {
			r.monitor.Load().Called(term)
			return r.trans.CallElection()
		},
	})
}

// leadingTerm returns the term in which this node leads, 0 if it does not.
func (r *Replica) leadingTerm() uint64 {
	if lead := r.current(); lead != nil {
		return lead.term
	}
	return 0
}

// serveCampaign calls an election at the leader's request. It returns nil if this node does not take part.
func (r *Replica) serveCampaign(ctx context.Context, from string, q *wire.CampaignRequest) (*wire.PeerResponse, error) {
	if r.monitor.Load() == nil || r.halted.Load() != nil {
		return nil, nil
	}
	return r.handover.Campaign(ctx, from, q)
}

// answerLoss answers another voter's question about a leader. It returns nil if this node does not take part.
func (r *Replica) answerLoss(q *wire.LeaderLossRequest) *wire.PeerResponse {
	m := r.monitor.Load()
	if m == nil || r.halted.Load() != nil {
		return nil
	}
	return m.Answer(q)
}

// handOver makes another node the leader before this one stops.
func (r *Replica) handOver(ctx context.Context) {
	node := r.cluster.Raft()
	if node == nil || node.State() != raft.Leader || r.halted.Load() != nil || ctx.Err() != nil || len(r.cluster.Voters()) < 2 {
		return
	}
	if err := r.handover.ToBest(ctx); err != nil {
		r.log.Warn("leadership was not handed over", "error", err)
	}
}
