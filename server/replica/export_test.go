package replica

import (
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/failover"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// AskToStand asks a node to stand for election, as a leader does whose disk hangs.
func (r *Replica) AskToStand(id string, term uint64) error {
	_, err := r.handover.Ask(r.ctx, r.cluster.Peer(r.cluster.Servers()[id]), term)
	return err
}

// StandCutOff closes the peer port and then asks this node to stand for election.
func (r *Replica) StandCutOff(ctx context.Context, leader string, term uint64) error {
	if err := r.layer.Close(); err != nil {
		return err
	}
	_, err := r.serveStand(ctx, leader, &wire.StandRequest{Term: term})
	return err
}

// HandOverSlow does what a leader does when a write takes long.
func (r *Replica) HandOverSlow() { r.handover.HandOver(r.ctx) }

// Stand asks this node to stand for election.
func (r *Replica) Stand(ctx context.Context, leader string, term uint64) error {
	_, err := r.serveStand(ctx, leader, &wire.StandRequest{Term: term})
	return err
}

// MayStand returns the error that Stand would return before standing, without standing.
func (r *Replica) MayStand(leader string, term uint64) error {
	return r.handover.MayStand(leader, term)
}

// Demote takes a node's vote away, until the reconciler gives it back. If wholly is set, it removes the node
// from raft's configuration.
func (r *Replica) Demote(id string, wholly bool) error {
	if wholly {
		return r.cluster.Raft().RemoveServer(raft.ServerID(id), 0, 0).Error()
	}
	return r.cluster.Raft().DemoteVoter(raft.ServerID(id), 0, 0).Error()
}

// HasHandedOver records that this node has handed over because of its disk.
func (r *Replica) HasHandedOver() { r.handover.HandedOver("", 0, 0) }

// Heard returns the voters, and those that answered this node's question about a leader.
func (r *Replica) Heard(ctx context.Context, leader string) (voters, answered []string) {
	h := r.monitor.Load().Poll(ctx, failover.Loss{Leader: leader})
	return h.Voters, slices.Sorted(maps.Keys(h.Answers))
}

// AskVouch asks a member with that incarnation about a node.
func (r *Replica) AskVouch(ctx context.Context, member, incarnation, id, its string) wire.Standing {
	return r.askVouch(ctx, r.cluster.Peer(r.cluster.Servers()[member]), incarnation, &wire.VouchRequest{Id: id, Incarnation: its})
}
