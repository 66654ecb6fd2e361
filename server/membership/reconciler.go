package membership

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// reconcileInterval is how often a leader compares the members with their desired state.
const reconcileInterval = 500 * time.Millisecond

// Trigger requests a step of the reconciler immediately.
func (m *Members) Trigger() {
	select {
	case m.due <- struct{}{}:
	default:
	}
}

// Reconcile compares the members in the log, raft's configuration and the nodes themselves, and takes small steps
// towards the desired state, until ctx ends with the leadership. Every step is safe to repeat, including by the next
// leader.
func (m *Members) Reconcile(ctx context.Context, lead Leadership) {
	tick := time.NewTicker(reconcileInterval)
	defer tick.Stop()
	var attempt time.Time
	for {
		attempt = m.yield(ctx, attempt)
		m.step(ctx, lead)
		select {
		case <-tick.C:
		case <-m.due:
		case <-ctx.Done():
			return
		}
	}
}

// step takes every step that is due. What fails is tried again in the next one.
func (m *Members) step(ctx context.Context, lead Leadership) {
	var members []*wire.Member
	var level uint32
	m.cfg.Machine.View(func(machine *fsm.Machine) { members, level = machine.Members(), machine.FeatureLevel() })
	servers := m.cfg.Cluster.Servers()
	m.recordSelf(ctx, lead, members)
	m.raiseLevel(ctx, lead, members, servers, level)
}

func (m *Members) recordSelf(ctx context.Context, lead Leadership, members []*wire.Member) {
	self := m.cfg.Self()
	for _, member := range members {
		if Describes(member, self) {
			return
		}
	}
	if !m.cfg.Cluster.Contains(self.Id) {
		return // it is being removed
	}
	_, err := lead.Execute(ctx, Put(self), 0)
	m.warn(ctx, "record this node", err)
}

// raiseLevel raises the replicated feature level to the highest that all members support.
func (m *Members) raiseLevel(ctx context.Context, lead Leadership, members []*wire.Member, servers map[string]raft.Server, level uint32) {
	lowest := m.cfg.Level
	reported := map[string]bool{}
	for _, member := range members {
		lowest = min(lowest, member.Level)
		reported[member.Id] = true
	}
	for id := range servers {
		if !reported[id] {
			return
		}
	}
	if lowest <= level {
		return
	}
	raise := &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: lowest}}}
	_, err := lead.Execute(ctx, raise, lowest)
	m.warn(ctx, "raise the feature level", err)
	if err == nil {
		m.cfg.Logger.Info("feature level raised", "level", lowest)
		m.cfg.LevelRaised(lowest)
	}
}

// Promote gives a node its vote if it has caught up. It logs a failure, and is safe to repeat.
func (m *Members) Promote(ctx context.Context, id string) {
	server, configured := m.cfg.Cluster.Servers()[id]
	var member *wire.Member
	m.cfg.Machine.View(func(machine *fsm.Machine) { member, _ = machine.Member(id) })
	if !configured || member == nil || !awaitsVote(server, member) {
		return
	}
	node := m.cfg.Cluster.Raft()
	goal := node.CommitIndex()
	a := m.cfg.Prober.One(ctx, directory.Peer{ID: member.Id, Addr: member.PeerAddr})
	if !mayVote(a.State, member.Incarnation, goal) {
		return
	}
	changed, err := m.Lock(ctx)
	if err != nil {
		return // the leadership has ended
	}
	defer changed()
	if !m.awaits(server, member) {
		return // removed or replaced since
	}
	err = node.AddVoter(server.ID, server.Address, 0, changeTimeout).Error()
	m.warn(ctx, "promote a node", err)
	if err == nil {
		m.cfg.Logger.Info("a node has caught up and votes now", "node", member.Id)
	}
}

// awaits reports whether the node is unchanged, so that it still awaits its vote.
func (m *Members) awaits(server raft.Server, member *wire.Member) bool {
	now := m.cfg.Cluster.Servers()[member.Id]
	var known *wire.Member
	m.cfg.Machine.View(func(machine *fsm.Machine) { known, _ = machine.Member(member.Id) })
	return unchanged(server, now, member, known)
}

// warn logs a failed step, unless the leadership has ended.
func (m *Members) warn(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		m.cfg.Logger.Warn("a step of the leader failed", "step", what, "error", err)
	}
}
