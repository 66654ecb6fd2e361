package command

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Proposal is a command with the callback for its result.
type Proposal = groupcommit.Proposal

// Propose queues a command, with the guarantees of ProposeAll.
func (p *Processor) Propose(cmd *wire.Command, done func(*wire.Result)) {
	p.ProposeFrom(identity.Sender{}, cmd, done)
}

// ProposeFrom is Propose for a command that came from a sender: see Proposal.
func (p *Processor) ProposeFrom(from identity.Sender, cmd *wire.Command, done func(*wire.Result)) {
	p.ProposeAll([]Proposal{{Command: cmd, Size: proto.Size(cmd), Identity: from.Identity, Connection: from.Connection, Done: done}})
}

// ProposeAll queues commands in order. It does not keep the slice. NOT_LEADER and UNAVAILABLE mean that a
// command was not executed, UNCERTAIN that the outcome is unknown. A command with a session counts as a sign
// of life of that session. Once the expiry of the session is decided, its commands are answered with
// SESSION_LOST.
func (p *Processor) ProposeAll(all []Proposal) {
	now := time.Now()
	all = refuseNodes(all)
	for i := range all {
		all[i].Work = groupcommit.WorkOf(all[i].Command, p.locksOf)
	}
	var refusals []groupcommit.Refusal
	for begin := 0; begin < len(all); {
		end := begin + p.touchAll(all[begin:], now)
		refusals = p.Proposer.Submit(all[begin:end], p.faults(all[begin:end]), refusals[:0])
		for _, no := range refusals {
			no.Answer()
		}
		if end < len(all) {
			all[end].Done(p.lost(all[end].Command.GetSessionId()))
			end++
		}
		begin = end
	}
}

// refuseNodes refuses the commands that only a node may propose, by itself, and returns the others. A request of a session
// is none of them, or applying it refuses it.
func refuseNodes(all []Proposal) []Proposal {
	if !slices.ContainsFunc(all, isNodes) {
		return all
	}
	kept := make([]Proposal, 0, len(all))
	for _, one := range all {
		if isNodes(one) {
			one.Done(status.Result(wire.Status_PERMISSION_DENIED, "only a node proposes this, by itself"))
			continue
		}
		kept = append(kept, one)
	}
	return kept
}

func isNodes(one Proposal) bool { return one.Command.GetSessionId() == 0 && fsm.OfNode(one.Command) }

// faults returns why each of the commands is refused, nil for those that are not. A command is refused if it
// is invalid in any state, or if a budget is used up. This keeps commands out of the log that applying would
// refuse. A nil slice means that no command is refused.
func (p *Processor) faults(all []Proposal) (faults []*wire.Result) {
	limits := p.cfg.Machine.Limits()
	if limits == nil {
		return nil // before its bootstrap, a cluster accepts nothing anyway
	}
	ahead := p.Proposer.Growth()
	for i := range all {
		one := &all[i]
		fault := fsm.Validate(one.Command, limits)
		if fault == nil {
			fault = p.beyondLevel(one.Command)
		}
		if fault == nil {
			fault = fsm.ValidateSize(one.Command, one.Size, limits)
		}
		if fault == nil { // only valid commands can be counted
			one.Growth = fsm.GrowthUnits(one.Command)
			fault = p.exhausted(one, ahead)
		}
		if fault == nil {
			ahead += one.Growth
			continue
		}
		if faults == nil {
			faults = make([]*wire.Result, len(all))
		}
		faults[i] = fault
	}
	return faults
}

// beyondLevel refuses a command of a later feature level than the cluster's: nodes that do not know such commands must
// not get one.
func (p *Processor) beyondLevel(cmd *wire.Command) *wire.Result {
	needed, level := fsm.LevelOf(cmd), uint32(1)
	if needed > level {
		p.cfg.Machine.View(func(m *fsm.Machine) { level = m.FeatureLevel() })
	}
	if needed <= level {
		return nil
	}
	return status.Result(wire.Status_UNSUPPORTED, fmt.Sprintf("the request needs feature level %d, the cluster is at %d: upgrade all nodes", needed, level))
}

// exhausted refuses a command that would exceed a budget. ahead is what the commands before it may add to the
// state, in units. It reads the state only if that is nearly full or the session or its identity was refused
// something before. Applying the command checks the budgets again, exactly.
//
// While a policy is in force, the commands before it may be those of other identities, and may exceed their share of
// the state. They must not cost this one its own, so they do not count.
func (p *Processor) exhausted(one *Proposal, ahead uint64) (refusal *wire.Result) {
	full := one.Growth > 0 && p.full.has(one.Identity)
	if one.Growth == 0 || !one.Exhausted && !full && !p.cfg.Machine.Near(ahead+one.Growth) {
		return nil
	}
	near := false
	p.cfg.Machine.View(func(m *fsm.Machine) {
		if m.Access().Rights() != nil {
			ahead = 0
		}
		refusal = m.Exhausted(one.Command, ahead)
		near = full && m.NearQuota(one.Identity)
	})
	if refusal == nil && one.Exhausted {
		p.Deadlines.SetExhausted(one.Command.GetSessionId(), false)
	}
	if refusal == nil && full && !near {
		p.full.remove(one.Identity)
	}
	return refusal
}

// touchAll counts signs of life that arrived at the given time, up to the first command of a session whose
// expiry is decided. It returns the number of commands before that one.
func (p *Processor) touchAll(all []Proposal, arrived time.Time) int {
	return p.Deadlines.TouchAll(len(all), arrived, func(i int) uint64 {
		if all[i].Command.GetAttachSession() != nil {
			return 0 // it has yet to prove that it may act for the session; its event counts as the sign of life
		}
		return all[i].Command.GetSessionId()
	}, func(i int, exhausted bool, until time.Time) {
		one := &all[i]
		one.Exhausted = exhausted
		if one.Until != nil {
			*one.Until = until
		}
	})
}

// locksOf returns the number of a session's locks, for groupcommit.WorkOf.
func (p *Processor) locksOf(session uint64) (n int) {
	p.cfg.Machine.View(func(m *fsm.Machine) { n = m.LocksOf(session, groupcommit.MaxEntryWork) })
	return n
}

// Execute proposes a command of this node, in a term in which it leads, and waits for its result. If it returns no error, the
// result is OK.
func (p *Processor) Execute(ctx context.Context, term uint64, cmd *wire.Command, level uint32) (*wire.Result, error) {
	if faults := p.faults([]Proposal{{Command: cmd, Size: proto.Size(cmd)}}); faults != nil {
		return faults[0], status.Err(faults[0])
	}
	done := make(chan *wire.Result, 1)
	it := groupcommit.NewItem(cmd, func(result *wire.Result) { done <- result })
	it.Level = level
	if !it.Fits() {
		return nil, fmt.Errorf("%w: the request is larger than a log entry may be (256 KiB)", status.ErrInvalid)
	}
	if !p.Proposer.ProposeUrgent(term, it) {
		return nil, status.ErrNotLeader
	}
	select {
	case result := <-done:
		return result, status.Err(result)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", status.ErrUncertain, ctx.Err())
	}
}
