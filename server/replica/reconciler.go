package replica

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// reconcileInterval is how often a leader compares the members with their desired state.
	reconcileInterval = 500 * time.Millisecond
	// changeTimeout bounds how long a change of raft's configuration waits for the previous one.
	changeTimeout = 2 * time.Second
	// caughtUp is how many entries a node may lack when it gets its vote. It receives them while the change
	// is being committed.
	caughtUp = 256
)

// reconciler is the membership reconciler of a leadership. It compares the members in the log, raft's
// configuration and the nodes themselves, and takes the next small step towards the desired state. Every step
// is safe to repeat, including by the next leader.
type reconciler struct {
	r    *Replica
	lead *leadership
	wake chan struct{}
}

func newReconciler(r *Replica, lead *leadership) *reconciler {
	return &reconciler{r: r, lead: lead, wake: make(chan struct{}, 1)}
}

// poke requests a step immediately.
func (s *reconciler) trigger() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *reconciler) run() {
	tick := time.NewTicker(reconcileInterval)
	defer tick.Stop()
	for {
		s.step(s.lead.ctx)
		select {
		case <-tick.C:
		case <-s.wake:
		case <-s.lead.ctx.Done():
			return
		}
	}
}

// step takes every step that is due. What fails is tried again in the next one.
func (s *reconciler) step(ctx context.Context) {
	var members []*wire.Member
	var level uint32
	var revision, suspended uint64
	s.r.machine.View(func(m *fsm.Machine) {
		members, level = m.Members(), m.FeatureLevel()
		revision, suspended = m.Revision(), m.GrantsSuspended()
	})
	servers := s.r.cluster.Servers()
	s.reportSelf(ctx, members)
	s.raiseLevel(ctx, members, servers, level)
	s.markState(len(servers), revision, suspended)
	agreed, undecided := s.r.checker.Verdict()
	s.reconcileGrants(ctx, suspended, agreed, undecided)
	for _, m := range members {
		server, ok := servers[m.Id]
		if !ok || ctx.Err() != nil {
			continue
		}
		s.promote(ctx, server, m)
	}
}

func (s *reconciler) reportSelf(ctx context.Context, members []*wire.Member) {
	self := s.r.self()
	for _, m := range members {
		if proto.Equal(m, self) {
			return
		}
	}
	if !s.r.cluster.Contains(self.Id) {
		return // it is being removed
	}
	s.complain("record this node", s.r.do(ctx, s.lead, putMember(self), 0))
}

// raiseLevel raises the replicated feature level to the highest that all members support.
func (s *reconciler) raiseLevel(ctx context.Context, members []*wire.Member, servers map[string]raft.Server, level uint32) {
	lowest := s.r.cfg.Level
	reported := map[string]bool{}
	for _, m := range members {
		lowest = min(lowest, m.Level)
		reported[m.Id] = true
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
	err := s.r.do(ctx, s.lead, raise, lowest)
	s.complain("raise the feature level", err)
	if err == nil {
		s.r.log.Info("feature level raised", "level", lowest)
		s.r.proposer.RaiseLevel(lowest)
	}
}

// markState requests a hash point if one is due, and there are other nodes or granting is suspended.
func (s *reconciler) markState(nodes int, revision, suspended uint64) {
	if (nodes > 1 || suspended != 0) && s.r.checker.Due(s.r.cfg.HashInterval, revision, s.r.machine.Units(), suspended != 0) {
		s.r.proposer.Mark(s.lead.term)
	}
}

// reconcileGrants suspends granting while it is undecided which state is right, and resumes it once a majority
// has agreed on a later one. suspended is the revision since which it is suspended, 0 if it is not.
func (s *reconciler) reconcileGrants(ctx context.Context, suspended, agreed uint64, undecided bool) {
	switch {
	case undecided && suspended == 0:
		suspend := &wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}}
		err := s.r.do(ctx, s.lead, suspend, 0)
		s.complain("suspend granting", err)
		if err == nil {
			s.r.log.Error("GRANTS ARE SUSPENDED: the states of the nodes differ and no majority agrees; start the other voters, or replace the wrong node")
		}
	case !undecided && suspended != 0 && agreed >= suspended:
		resume := &wire.Command{Op: &wire.Command_ResumeGrants{ResumeGrants: &wire.ResumeGrants{Revision: suspended}}}
		err := s.r.do(ctx, s.lead, resume, 0)
		s.complain("resume granting", err)
		if err == nil {
			s.r.log.Warn("grants resumed: a majority of the voters agrees on a later state")
		}
	}
}

// promote gives a node its vote once it has caught up.
func (s *reconciler) promote(ctx context.Context, server raft.Server, m *wire.Member) {
	if !awaitsVote(server, m) {
		return
	}
	node := s.r.cluster.Raft()
	goal := node.CommitIndex()
	a := s.r.prober.One(ctx, Peer{ID: m.Id, Addr: m.PeerAddr})
	if !mayVote(a.State, m.Incarnation, goal) {
		return
	}
	changed, err := s.r.oneByOne(ctx)
	if err != nil {
		return // the leadership has ended
	}
	defer changed()
	if !s.awaits(server, m) {
		return // removed or replaced since
	}
	err = node.AddVoter(server.ID, server.Address, 0, changeTimeout).Error()
	s.complain("promote a node", err)
	if err == nil {
		s.r.log.Info("a node has caught up and votes now", "node", m.Id)
	}
}

// awaits reports whether the node is unchanged, so that it still awaits its vote.
func (s *reconciler) awaits(server raft.Server, m *wire.Member) bool {
	now := s.r.cluster.Servers()[m.Id]
	var known *wire.Member
	s.r.machine.View(func(machine *fsm.Machine) { known, _ = machine.Member(m.Id) })
	return unchanged(server, now, m, known)
}

func (s *reconciler) complain(what string, err error) {
	if err != nil && s.lead.ctx.Err() == nil {
		s.r.log.Warn("could not "+what, "error", err)
	}
}
