package replica

import (
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Proposal is a command with the callback for its result.
type Proposal = groupcommit.Proposal

// newProposer creates the proposer. It hands its entries to applyEntry.
func (r *Replica) newProposer() {
	apply := r.apply
	r.applyEntry.Store(&apply)
	r.proposer = groupcommit.New(func(data []byte, timeout time.Duration) raft.ApplyFuture {
		return (*r.applyEntry.Load())(data, timeout)
	}, r.refusal)
}

func (r *Replica) apply(data []byte, timeout time.Duration) raft.ApplyFuture {
	if r.halted.Load() != nil {
		return groupcommit.Failed{Err: raft.ErrNotLeader}
	}
	return r.cluster.Raft().Apply(data, timeout)
}

// Propose queues a command, with the guarantees of ProposeAll.
func (r *Replica) Propose(cmd *wire.Command, done func(*wire.Result)) { r.ProposeFrom(nil, cmd, done) }

// ProposeFrom is Propose for a command that arrived over connection: see Proposal.
func (r *Replica) ProposeFrom(connection any, cmd *wire.Command, done func(*wire.Result)) {
	r.ProposeAll([]Proposal{{Command: cmd, Size: proto.Size(cmd), Connection: connection, Done: done}})
}

// ProposeAll queues commands in order. It does not keep the slice. NOT_LEADER and UNAVAILABLE mean that a
// command was not executed, UNCERTAIN that the outcome is unknown. A command with a session counts as a sign
// of life of that session. Once the expiry of the session is decided, its commands are answered with
// SESSION_LOST.
func (r *Replica) ProposeAll(all []Proposal) {
	now := time.Now()
	for i := range all {
		all[i].Work = groupcommit.WorkOf(all[i].Command, r.locksOf)
	}
	var refusals []groupcommit.Refusal
	for begin := 0; begin < len(all); {
		end := begin + r.touchAll(all[begin:], now)
		refusals = r.proposer.Submit(all[begin:end], r.faults(all[begin:end]), refusals[:0])
		for _, no := range refusals {
			no.Answer()
		}
		if end < len(all) {
			all[end].Done(r.lost(all[end].Command.GetSessionId()))
			end++
		}
		begin = end
	}
}

// faults returns why each of the commands is refused, nil for those that are not. A command is refused if it
// is invalid in any state, or if a budget is used up. This keeps commands out of the log that applying would
// refuse. A nil slice means that no command is refused.
func (r *Replica) faults(all []Proposal) (faults []*wire.Result) {
	limits := r.machine.Limits()
	if limits == nil {
		return nil // before its bootstrap, a cluster accepts nothing anyway
	}
	ahead := r.proposer.Growth()
	for i := range all {
		p := &all[i]
		fault := fsm.Validate(p.Command, limits)
		if fault == nil {
			fault = fsm.ValidateSize(p.Command, p.Size, limits)
		}
		if fault == nil { // only valid commands can be counted
			p.Growth = fsm.GrowthUnits(p.Command)
			fault = r.exhausted(p, ahead)
		}
		if fault == nil {
			ahead += p.Growth
			continue
		}
		if faults == nil {
			faults = make([]*wire.Result, len(all))
		}
		faults[i] = fault
	}
	return faults
}

// exhausted refuses a command that would exceed a budget. ahead is what the commands before it may add to the
// state, in units. It reads the state only if that is nearly full or the session was refused something
// before. Applying the command checks the budgets again, exactly.
func (r *Replica) exhausted(p *Proposal, ahead uint64) (refusal *wire.Result) {
	if p.Growth == 0 || !p.Exhausted && !r.machine.Near(ahead+p.Growth) {
		return nil
	}
	r.machine.View(func(m *fsm.Machine) { refusal = m.Exhausted(p.Command, ahead) })
	if refusal == nil && p.Exhausted {
		r.deadlines.SetExhausted(p.Command.GetSessionId(), false)
	}
	return refusal
}

// touchAll counts signs of life that arrived at the given time, up to the first command of a session whose
// expiry is decided. It returns the number of commands before that one.
func (r *Replica) touchAll(all []Proposal, arrived time.Time) int {
	return r.deadlines.TouchAll(len(all), arrived, func(i int) uint64 {
		if all[i].Command.GetAttachSession() != nil {
			return 0 // it has yet to prove that it may act for the session; its event counts as the sign of life
		}
		return all[i].Command.GetSessionId()
	}, func(i int, exhausted bool, until time.Time) {
		p := &all[i]
		p.Exhausted = exhausted
		if p.Until != nil {
			*p.Until = until
		}
	})
}

// locksOf returns the number of a session's locks, for groupcommit.WorkOf.
func (r *Replica) locksOf(session uint64) (n int) {
	r.machine.View(func(m *fsm.Machine) { n = m.LocksOf(session, groupcommit.MaxEntryWork) })
	return n
}
