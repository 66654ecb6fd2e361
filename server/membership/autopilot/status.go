package autopilot

import (
	"strings"
	"time"

	"github.com/hashicorp/raft"
	raftautopilot "github.com/hashicorp/raft-autopilot"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Health returns how many voters may fail before the cluster loses its majority, and what is known of each member. ok is
// false unless this node leads.
func (a *Autopilot) Health() (tolerance int, members map[string]metrics.Member, ok bool) {
	_, state := a.current()
	if state == nil {
		return 0, nil, false
	}
	members = map[string]metrics.Member{}
	last := uint64(0)
	if self := state.Servers[raft.ServerID(a.cfg.NodeID)]; self != nil {
		last = self.Stats.LastIndex // from before the others were asked
	}
	for id, s := range state.Servers {
		members[string(id)] = metrics.Member{
			Healthy: s.Health.Healthy, Self: string(id) == a.cfg.NodeID,
			LastContact: s.Stats.LastContact, Lag: last - min(last, s.Stats.LastIndex),
		}
	}
	return state.FailureTolerance, members, true
}

// Describe completes the status of the cluster. It adds nothing unless this node leads.
func (a *Autopilot) Describe(s *wire.StatusResponse) {
	l, state := a.current()
	if state == nil {
		return
	}
	set := a.cfg.Settings
	s.Autopilot = &wire.AutopilotStatus{
		FailureTolerance: uint32(state.FailureTolerance), Healthy: state.Healthy,
		Cleanup: set.Cleanup, MinQuorum: uint32(set.MinQuorum), DeadAfterMs: uint64(set.DeadAfter.Milliseconds()),
		StabilizationMs: uint64(set.Stabilization.Milliseconds()), LastRemoval: a.lastRemoval(),
	}
	for _, n := range s.Nodes {
		if server := state.Servers[raft.ServerID(n.Id)]; server != nil {
			n.Health = l.health(server)
		}
	}
}

func (a *Autopilot) current() (*leadership, *raftautopilot.State) {
	l := a.leading.Load()
	if l == nil {
		return nil, nil
	}
	return l, l.state.Load()
}

func (l *leadership) health(s *raftautopilot.ServerState) *wire.NodeHealth {
	id := string(s.Server.ID)
	h := &wire.NodeHealth{Healthy: s.Health.Healthy, SinceMs: uint64(time.Since(s.Health.StableSince).Milliseconds())}
	if !h.Healthy {
		h.Reason = l.reason(id)
	}
	c, ok := l.contacts.of(id)
	if !ok || c.answers {
		return h
	}
	h.SilentMs = uint64(c.silent.Milliseconds())
	if left := l.removedIn(c, l.Cluster.Servers()); left > 0 {
		h.RemovedInMs = uint64(left.Milliseconds())
	}
	return h
}

// removedIn returns when a silent member is removed if nothing changes, at least a millisecond, and 0 if it is kept.
func (l *leadership) removedIn(c contact, servers map[string]raft.Server) time.Duration {
	if !l.Settings.Cleanup || l.Settings.keep(l.member(c.id), servers) != nil {
		return 0
	}
	return max(l.Settings.DeadAfter-c.silent, time.Millisecond)
}

// lastRemoval returns the last member that any leader's autopilot has removed, as far as the audit log goes back, nil if
// there is none. Operators cannot write such a record: it has the identity of a node.
func (a *Autopilot) lastRemoval() (last *wire.AutopilotRemoval) {
	a.cfg.Machine.View(func(m *fsm.Machine) {
		for _, r := range m.AuditAfter(0) {
			if r.Action == wire.AuditRecord_REMOVE_MEMBER && r.Outcome == wire.Status_OK && rights.IsNode(r.GetCaller().GetIdentity()) && r.Imported == nil && strings.HasPrefix(r.Operator, operator("")) {
				last = &wire.AutopilotRemoval{NodeId: r.Member, UnixMs: r.WallUnixMs, Reason: r.Reason}
			}
		}
	})
	return last
}
