package replica

import (
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/failover"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// AskToCampaign asks a node to call an election, as a leader does whose disk hangs.
func (r *Replica) AskToCampaign(id string, term uint64) error {
	_, err := r.handover.Ask(r.ctx, r.cluster.Peer(r.cluster.Servers()[id]), term)
	return err
}

// CampaignCutOff closes the peer port and then asks this node to call an election.
func (r *Replica) CampaignCutOff(ctx context.Context, leader string, term uint64) error {
	if err := r.layer.Close(); err != nil {
		return err
	}
	_, err := r.serveCampaign(ctx, leader, &wire.CampaignRequest{Term: term})
	return err
}

// HandOverSlow does what a leader does when a write takes long.
func (r *Replica) HandOverSlow() { r.handover.HandOver(r.ctx) }

// Campaign asks this node to call an election.
func (r *Replica) Campaign(ctx context.Context, leader string, term uint64) error {
	_, err := r.serveCampaign(ctx, leader, &wire.CampaignRequest{Term: term})
	return err
}

// MayCampaign returns the error that Campaign would return before the election, without calling one.
func (r *Replica) MayCampaign(leader string, term uint64) error {
	return r.handover.MayCampaign(leader, term)
}

// Demote takes a node's vote away, until the reconciler gives it back. If wholly is set, it removes the node
// from raft's configuration.
func (r *Replica) Demote(id string, wholly bool) error {
	if wholly {
		return r.cluster.Raft().RemoveServer(raft.ServerID(id), 0, 0).Error()
	}
	return r.cluster.Raft().DemoteVoter(raft.ServerID(id), 0, 0).Error()
}

// StoreBarrier makes raft store an entry, and does not wait for it.
func (r *Replica) StoreBarrier() { r.cluster.Raft().Barrier(0) }

// HasHandedOver records that this node has handed over because of its disk.
func (r *Replica) HasHandedOver() { r.handover.HandedOver("", 0, 0) }

// Heard returns the voters, and those that answered this node's question about a leader.
func (r *Replica) Heard(ctx context.Context, leader string) (voters, answered []string) {
	h := r.monitor.Load().Poll(ctx, failover.Loss{Leader: leader})
	return h.Voters, slices.Sorted(maps.Keys(h.Answers))
}

// AskStanding asks a member with that incarnation about a node.
func (r *Replica) AskStanding(ctx context.Context, member, incarnation, id, its string) wire.Standing {
	return r.askStanding(ctx, r.cluster.Peer(r.cluster.Servers()[member]), incarnation, &wire.StandingRequest{Id: id, Incarnation: its})
}
