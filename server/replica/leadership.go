package replica

import (
	"cmp"
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// barrierAgain is the pause before a refused barrier is proposed again.
const barrierAgain = 50 * time.Millisecond

// leadership is a leadership: one term in which this node leads. It starts with a barrier. Once that is applied,
// decisions that were made by time in older terms are void.
type leadership struct {
	term    uint64
	ctx     context.Context
	cancel  context.CancelFunc
	serving bool
	// refusedBarrier requests another barrier.
	refusedBarrier chan struct{}

	r *Replica
}

// Execute implements membership.Leadership.
func (l *leadership) Execute(ctx context.Context, cmd *wire.Command, level uint32) (*wire.Result, error) {
	return l.r.Execute(ctx, l.term, cmd, level)
}

// lead follows raft's leadership. LeaderCh coalesces: a true without a false before it means that leadership
// was lost and regained. That starts a new leadership, unless this was noticed before: there is exactly one
// per term.
func (r *Replica) lead() {
	node := r.cluster.Raft()
	for {
		var again <-chan struct{}
		if lead := r.current(); lead != nil {
			again = lead.refusedBarrier
		}
		select {
		case leads := <-node.LeaderCh():
			if lead := r.current(); leads && lead != nil && lead.term == node.CurrentTerm() && node.State() == raft.Leader {
				continue
			}
			r.endLeadership("leadership was lost")
			if leads {
				r.startLeadership(node)
			}
		case <-again:
			select {
			case <-time.After(barrierAgain):
				r.proposeBarrier(r.current())
			case <-r.ctx.Done():
			}
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *Replica) current() *leadership {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leadership
}

// startLeadership starts a leadership with its barrier. Clients are served once that is applied.
func (r *Replica) startLeadership(node *raft.Raft) {
	term := node.CurrentTerm()
	if node.State() != raft.Leader {
		return // lost again already; LeaderCh will report it
	}
	lead := &leadership{term: term, refusedBarrier: make(chan struct{}, 1), r: r}
	lead.ctx, lead.cancel = context.WithCancel(r.ctx)
	r.mu.Lock()
	if r.closing || r.halted.Load() != nil {
		r.mu.Unlock()
		lead.cancel()
		return
	}
	r.leadership = lead
	r.mu.Unlock()
	r.log.Info("elected, applying the barrier", "term", term)
	r.metrics.LeaderChanges.Inc()
	r.Proposer.Begin(term)
	r.proposeBarrier(lead)
}

func (r *Replica) proposeBarrier(lead *leadership) {
	if lead == nil {
		return
	}
	clock := unixMs(time.Now())
	begin := &wire.BeginTerm{
		Term: lead.term, LeaderId: r.cfg.ID, Nonce: r.peers.Nonce(),
		ClockUnixMs: clock, MedianUnixMs: r.peers.MedianClock(clock),
	}
	r.Proposer.ProposeUrgent(lead.term, groupcommit.NewItem(&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: begin}}, func(result *wire.Result) {
		r.barrierDone(lead, result)
	}))
}

// barrierDone runs on the completer: every entry of older leaderships has been completed, and the state is
// that of the barrier.
func (r *Replica) barrierDone(lead *leadership, result *wire.Result) {
	if result.GetStatus() != wire.Status_OK {
		r.log.Warn("cannot apply the barrier", "term", lead.term, "status", result.GetStatus().String(), "message", result.GetMessage())
		r.retryBarrier(lead, result)
		return
	}
	started := false
	r.machine.View(func(m *fsm.Machine) { started = m.ClusterID() != "" })
	if started {
		r.serve(lead)
		return
	}
	cmd := r.bootstrapCommand()
	begin := groupcommit.NewItem(cmd, func(result *wire.Result) {
		if result.GetStatus() != wire.Status_OK {
			r.log.Error("cannot bootstrap the cluster", "status", result.GetStatus().String(), "message", result.GetMessage())
			r.retryBarrier(lead, result)
			return
		}
		r.serve(lead)
	})
	begin.Level = fsm.LevelOf(cmd)
	r.Proposer.ProposeUrgent(lead.term, begin)
}

// retryBarrier requests another barrier where that can help. Otherwise raft will report that leadership is
// lost.
func (r *Replica) retryBarrier(lead *leadership, result *wire.Result) {
	switch result.GetStatus() {
	case wire.Status_UNAVAILABLE, wire.Status_INTERNAL, wire.Status_UNCERTAIN:
		select {
		case lead.refusedBarrier <- struct{}{}:
		default:
		}
	}
}

// bootstrapCommand returns the command that begins the cluster in the log.
func (r *Replica) bootstrapCommand() *wire.Command {
	_, _, known := r.directory.Record()
	members := []*wire.Member{}
	for _, m := range r.bootstrap.InitialMembers(nil) {
		members = append(members, cmp.Or(known[m.Id], m))
	}
	return &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{
		ClusterId:   cmp.Or(r.directory.Named(), storage.NewID()),
		TokenFloor:  max(fsm.ClockToken(unixMs(time.Now())), r.cfg.TokenFloor),
		Settings:    r.cfg.Settings,
		Members:     members,
		Lineage:     storage.NewID(),
		ClockUnixMs: unixMs(time.Now()),
	}}}
}

// serve opens the node for clients. Every session has a full TTL from now on. It runs on the completer, and
// under this leadership nothing but the barrier and, in a new cluster, the bootstrap has been applied.
func (r *Replica) serve(lead *leadership) {
	if err := r.checkInForce(); err != nil {
		r.running.Go(func() { r.halt(err) }) // not here, because it waits for the completer
		return
	}
	node := r.cluster.Raft()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leadership != lead || node.State() != raft.Leader || node.CurrentTerm() != lead.term {
		return
	}
	level := uint32(0)
	r.machine.View(func(m *fsm.Machine) {
		r.Deadlines.Start(lead.term, m)
		r.metrics.Lead(m)
		level = m.FeatureLevel()
	})
	r.Notifier.Open()
	r.catchUp.End()
	lead.serving = true
	r.running.Go(func() { r.members.Reconcile(lead.ctx, lead) })
	r.running.Go(func() { r.pilot.Run(lead.ctx, lead, r.members, r.prober) })
	r.running.Go(func() { r.superviseState(lead) })
	if r.backups != nil {
		r.running.Go(func() { r.backups.Run(lead.ctx, lead.recordBackup) })
	}
	r.Proposer.Serve(lead.term, level)
	r.leaders.Publish(r.Leader())
	r.log.Info("serving as leader", "term", lead.term)
	if r.machine.Access().Rights() == nil {
		r.log.Warn("the cluster has no policy: every client may do everything (qlock policy apply)")
	}
}

// endLeadership ends the leadership, if there is one. First it stops all decisions, then it answers everything
// that waits.
func (r *Replica) endLeadership(why string) {
	r.mu.Lock()
	lead := r.leadership
	r.leadership = nil
	if lead != nil {
		lead.cancel()
	}
	r.Deadlines.Stop()
	r.mu.Unlock()
	r.Proposer.End(status.Result(wire.Status_NOT_LEADER, why))
	r.Notifier.Close(r.Leader())
	if lead == nil {
		return
	}
	r.leaders.Publish(r.Leader())
	if r.halted.Load() == nil { // the log file may be on the disk that hangs
		r.log.Info("leadership ended", "term", lead.term, "reason", why)
	}
}

// refusal returns the result for commands that this node does not accept at present.
func (r *Replica) refusal() *wire.Result {
	node := r.cluster.Raft()
	switch {
	case r.halted.Load() != nil:
		return status.Result(wire.Status_UNAVAILABLE, "this node has failed and must stop")
	case r.ctx.Err() != nil:
		return status.Result(wire.Status_UNAVAILABLE, "this node is stopping")
	case node != nil && node.State() == raft.Leader && r.Leader().GetId() != r.cfg.ID:
		return status.Result(wire.Status_NOT_LEADER, "") // handed over, while raft is stuck in a write
	case node != nil && node.State() == raft.Leader:
		return status.Result(wire.Status_UNAVAILABLE, "the new leader has not taken over yet")
	}
	return status.Result(wire.Status_NOT_LEADER, "")
}

// Serving reports whether this node leads, has applied its barrier and accepts commands.
func (r *Replica) Serving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leadership != nil && r.leadership.serving
}

// CaughtUp reports whether this node has applied all that was committed when it started.
func (r *Replica) CaughtUp() bool { return r.catchUp.Done() }

// do is execute without the result.
func (r *Replica) do(ctx context.Context, lead *leadership, cmd *wire.Command, level uint32) error {
	_, err := r.Execute(ctx, lead.term, cmd, level)
	return err
}
