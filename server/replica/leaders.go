package replica

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// OnLeader calls f for every change of Leader, like cluster.LeaderChanges.Subscribe.
func (r *Replica) OnLeader(f func(*wire.LeaderHint)) (cancel func()) { return r.leaders.Subscribe(f) }

// leader returns the leading member, as far as this node knows.
func (r *Replica) leader() (m *wire.Member, term uint64, ok bool) {
	node := r.cluster.Raft()
	if node == nil {
		return nil, 0, false
	}
	term = node.CurrentTerm()
	_, id := node.LeaderWithID()
	if next, since := r.handover.Successor(term); next != "" {
		id, term = raft.ServerID(next), since
	}
	if id == "" || string(id) == r.cfg.ID && r.halted.Load() != nil {
		return nil, 0, false
	}
	r.machine.View(func(machine *fsm.Machine) { m, ok = machine.Member(string(id)) })
	if !ok {
		m = &wire.Member{Id: string(id)}
	}
	if m.Id == r.cfg.ID {
		m = r.self()
	}
	return m, term, true
}

// Leader returns what this node knows of the leader. The hint is empty if that is nothing.
func (r *Replica) Leader() *wire.LeaderHint {
	m, term, ok := r.leader()
	if !ok {
		return &wire.LeaderHint{}
	}
	return &wire.LeaderHint{Id: m.Id, ClientAddr: m.ClientAddr, Term: term}
}

// LastContact returns when this node last heard from a leader, or the present time if it leads.
func (r *Replica) LastContact() time.Time { return r.cluster.Raft().LastContact() }

// self returns this node as it reports itself.
func (r *Replica) self() *wire.Member {
	a := r.cfg.Advertise
	return &wire.Member{Id: r.cfg.ID, Incarnation: r.stores.Incarnation, PeerAddr: a.Peer, ClientAddr: a.Client, HttpAddr: a.HTTP, Level: r.cfg.Level}
}

// Boot returns the number of this start of the node, from 1 on.
func (r *Replica) Boot() uint64 { return r.peers.Boot() }

// Removed says that this node was removed from its cluster, and what to do; "" if it does not know that.
func (r *Replica) Removed() string { return r.bootstrap.Removed() }

// VotersInContact returns how many other voters answer this node.
func (r *Replica) VotersInContact(ctx context.Context) int {
	var others []Peer
	for _, s := range cluster.VotersBut(r.cluster.Servers(), r.cfg.ID) {
		others = append(others, r.cluster.Peer(s))
	}
	return len(others) - len(probe.Unreachable(r.prober.All(ctx, others)))
}
