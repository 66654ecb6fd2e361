package replica

import (
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/failover/monitor"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func (r *Replica) newMonitor(node *raft.Raft) *monitor.Monitor {
	return monitor.New(monitor.Config{
		NodeID: r.cfg.ID, HeartbeatTimeout: r.cfg.HeartbeatTimeout, Raft: node, Layer: r.layer,
		Address: func(s raft.Server) string { return r.cluster.Peer(s).Addr }, Servers: r.cluster.Servers, CallElection: r.trans.CallElection,
		Logger: r.log, Losses: r.metrics.leaderLosses, Decisions: r.metrics.leaderHints,
	})
}

// answerLoss answers another voter's question about a leader. It returns nil if this node does not take part.
func (r *Replica) answerLoss(q *wire.LeaderLossRequest) *wire.PeerResponse {
	m := r.monitor.Load()
	if m == nil || r.halted.Load() != nil {
		return nil
	}
	return m.Answer(q)
}
