package autopilot

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftautopilot "github.com/hashicorp/raft-autopilot"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// leadership is the application's side of the library, for one leadership.
type leadership struct {
	Config
	// ctx ends with the leadership.
	ctx      context.Context
	lead     membership.Leadership
	members  *membership.Members
	prober   probe.Prober
	contacts contacts
	// state is the library's last view, nil before the first.
	state atomic.Pointer[raftautopilot.State]
	// warned are the members that were logged as not healthy. Only NotifyState uses it, in one goroutine.
	warned map[raft.ServerID]bool
	// kept logs why dead members were not removed. Only the library's loop uses it.
	kept *ratelog.Repeated
}

var _ raftautopilot.ApplicationIntegration = (*leadership)(nil)

// AutopilotConfig implements the library's interface.
func (l *leadership) AutopilotConfig() *raftautopilot.Config {
	return &raftautopilot.Config{
		CleanupDeadServers: l.Settings.Cleanup, MinQuorum: uint(l.Settings.MinQuorum), ServerStabilizationTime: l.Settings.Stabilization,
		LastContactThreshold: contactTimeout, MaxTrailingLogs: maxLag,
	}
}

// KnownServers implements the library's interface. It returns all servers in raft's configuration. Those that are dead
// have failed; for the others, the library decides by their contact whether they are healthy. The library counts the
// servers of the type voter against MinQuorum. Members without a vote are not among them, although they will get one:
// it is not certain that they do.
func (l *leadership) KnownServers() map[raft.ServerID]*raftautopilot.Server {
	known := map[raft.ServerID]*raftautopilot.Server{}
	for id, s := range l.Cluster.Servers() {
		server := &raftautopilot.Server{ID: s.ID, Name: id, Address: s.Address, NodeStatus: raftautopilot.NodeAlive, IsLeader: id == l.NodeID}
		if s.Suffrage == raft.Voter {
			server.NodeType = raftautopilot.NodeVoter
		}
		if c, ok := l.contacts.of(id); ok && c.silent >= l.Settings.DeadAfter {
			server.NodeStatus = raftautopilot.NodeFailed
		}
		known[s.ID] = server
	}
	return known
}

// FetchServerStats implements the library's interface. It probes all members. For one that does not answer, it returns
// its last answer, with the time since its last contact.
func (l *leadership) FetchServerStats(ctx context.Context, servers map[raft.ServerID]*raftautopilot.Server) map[raft.ServerID]*raftautopilot.ServerStats {
	node := l.Cluster.Raft()
	term := node.CurrentTerm()
	stats := map[raft.ServerID]*raftautopilot.ServerStats{raft.ServerID(l.NodeID): {LastTerm: term, LastIndex: node.LastIndex()}}
	l.contacts.record(time.Now(), l.probe(term, servers))
	for id := range servers {
		if c, ok := l.contacts.of(string(id)); ok {
			stats[id] = &raftautopilot.ServerStats{LastContact: c.apart, LastTerm: c.term, LastIndex: c.applied}
		}
	}
	return stats
}

// probe asks all servers except this node. It takes the time that a slow network needs, which may be more than the
// library allows: then the next round is later.
func (l *leadership) probe(term uint64, servers map[raft.ServerID]*raftautopilot.Server) []reply {
	ctx, cancel := context.WithTimeout(l.ctx, answerTimeout)
	defer cancel()
	var others []directory.Peer
	for id, s := range servers {
		if string(id) != l.NodeID {
			others = append(others, l.Cluster.Peer(raft.Server{ID: s.ID, Address: s.Address}))
		}
	}
	var replies []reply
	for _, a := range l.prober.All(ctx, others) {
		replies = append(replies, replyOf(a, l.member(a.Peer.ID).GetIncarnation(), l.NodeID, term))
	}
	return replies
}

// member returns the record of a member, without incarnation and addresses if there is none.
func (l *leadership) member(id string) (known *wire.Member) {
	l.Machine.View(func(m *fsm.Machine) { known, _ = m.Member(id) })
	if known == nil {
		known = &wire.Member{Id: id}
	}
	return known
}

// NotifyState implements the library's interface. It logs changes of the members' health. At the beginning of a
// leadership, members may not know the leader yet: then only those are worth a message that do not answer.
func (l *leadership) NotifyState(state *raftautopilot.State) {
	was := l.state.Load()
	restartChanged(was, state, time.Now())
	l.state.Store(state)
	for id, s := range state.Servers {
		c, _ := l.contacts.of(string(id))
		before := string(id) != l.NodeID && !c.answers
		if was != nil {
			before = was.Servers[id] != nil && was.Servers[id].Health.Healthy
		}
		switch {
		case before && !s.Health.Healthy:
			l.warned[id] = true
			l.Logger.Warn("a member is not healthy", "node", id, "reason", l.reason(string(id)), "tolerated_failures", state.FailureTolerance)
		case l.warned[id] && s.Health.Healthy:
			delete(l.warned, id)
			l.Logger.Info("a member is healthy", "node", id, "tolerated_failures", state.FailureTolerance)
		}
	}
}

// restartChanged sets since when each member whose health has changed has been in its state. The library means to, but
// compares the new health with itself (v0.3.0), so that a member that fails and returns would count as stable since it was
// first seen. Nobody else has the new state yet.
func restartChanged(was, is *raftautopilot.State, now time.Time) {
	if was == nil {
		return
	}
	for id, s := range is.Servers {
		if before := was.Servers[id]; before != nil && before.Health.Healthy != s.Health.Healthy {
			s.Health.StableSince = now
		}
	}
}

// reason says why a member is not healthy.
func (l *leadership) reason(id string) string {
	c, ok := l.contacts.of(id)
	switch {
	case !ok:
		return "it has not been asked yet"
	case !c.answers && c.err != nil:
		return fmt.Sprintf("it does not answer: %v", c.err)
	case !c.answers:
		return "it has lost its data: another incarnation answers"
	case !c.follows:
		return "it does not follow this leader"
	}
	return "it lacks too many entries of the log"
}

// RemoveFailedServer implements the library's interface. It returns when the member was removed: the library's loop has
// nothing else to do until then.
func (l *leadership) RemoveFailedServer(s *raftautopilot.Server) {
	id := string(s.ID)
	c, _ := l.contacts.of(id)
	why := fmt.Sprintf("%v without an answer, --autopilot-dead-after is %v", c.silent.Round(time.Second), l.Settings.DeadAfter)
	act := &wire.RecordAct{Action: wire.AuditRecord_REMOVE_MEMBER, Operator: operator(l.NodeID), Reason: why, Member: id}
	err := l.members.RemoveIf(identity.NewNodeContext(l.ctx, l.NodeID), l.lead, id, act, func(servers map[string]raft.Server) error { return l.stillDead(id, servers) })
	switch {
	case err == nil:
		l.Logger.Warn("autopilot removed a dead member", "node", id, "reason", why)
	case l.ctx.Err() == nil:
		l.kept.Warn("autopilot did not remove a dead member", "node", id, "reason", err)
	}
}

// stillDead returns an error if the member must not be removed, now that no other change is in progress. The library has
// decided with an older configuration, and an older answer.
func (l *leadership) stillDead(id string, servers map[string]raft.Server) error {
	if err := l.Settings.keep(l.member(id), servers); err != nil {
		return err
	}
	a := l.prober.One(l.ctx, l.Cluster.Peer(servers[id]))
	if c, ok := l.contacts.of(id); !ok || c.silent < l.Settings.DeadAfter || replyOf(a, l.member(id).GetIncarnation(), l.NodeID, 0).answers {
		return fmt.Errorf("%w: node %q answers again", status.ErrPrecondition, id)
	}
	return nil
}

// operator is the name under which the leader's autopilot acts.
func operator(leader string) string { return "autopilot of " + leader }
