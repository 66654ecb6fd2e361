package replica

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Proposal is a command with the callback for its result.
type Proposal struct {
	// Command must not be changed until Done is called. Afterwards it belongs to the caller again.
	Command *wire.Command
	// Size is an upper bound on the encoded size of the command, in bytes.
	Size int
	// Connection distinguishes the senders of commands without a session, so that none of them takes the
	// others' share of the queue. It must be comparable. It may be nil if there is nothing to distinguish.
	Connection any
	// Until, if not nil, is set before Done is called to the time when the session of the command expires
	// without another sign of life. It stays zero if the session is not alive.
	Until *time.Time
	// Done is called exactly once, possibly before Propose returns. It must not block.
	Done func(*wire.Result)

	// The fields below are set by ProposeAll.
	work int // see workOf
	// growth is the number of units that the command may add to the state: see fsm.GrowthUnits.
	growth uint64
	// exhausted is set if the session was refused something because a budget was used up.
	exhausted bool
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
		all[i].work = workOf(all[i].Command, r.locksOf)
	}
	var refusals []refusal
	for begin := 0; begin < len(all); {
		end := begin + r.touchAll(all[begin:], now)
		refusals = r.proposer.submit(all[begin:end], r.faults(all[begin:end]), refusals[:0])
		for _, no := range refusals {
			no.done(no.result)
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
	ahead := r.proposer.growth.Load()
	for i := range all {
		p := &all[i]
		fault := fsm.Validate(p.Command, limits)
		if fault == nil {
			fault = fsm.ValidateSize(p.Command, p.Size, limits)
		}
		if fault == nil { // only valid commands can be counted
			p.growth = fsm.GrowthUnits(p.Command)
			fault = r.exhausted(p, ahead)
		}
		if fault == nil {
			ahead += p.growth
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
	if p.growth == 0 || !p.exhausted && !r.machine.Near(ahead+p.growth) {
		return nil
	}
	r.machine.View(func(m *fsm.Machine) { refusal = m.Exhausted(p.Command, ahead) })
	if refusal == nil && p.exhausted {
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
		p.exhausted = exhausted
		if p.Until != nil {
			*p.Until = until
		}
	})
}

// refusal is the result of a command that was not queued, and the callback for it.
type refusal struct {
	done   func(*wire.Result)
	result *wire.Result
}

// enqueue adds a client's command to the normal queue, and an operator's to the urgent one, since few of the
// latter are in flight at a time. Called with mu held.
func (p *proposer) enqueue(it item) {
	if isOperators(it.cmd) {
		p.urgent = append(p.urgent, it)
	} else {
		p.normal = append(p.normal, it)
		p.backlog += it.cost()
		p.coalescer.came(it.cmd.GetSessionId())
	}
	p.bytes += it.size
	p.work += it.work
	p.growth.Add(it.growth)
}

// isOperators reports whether a command is an operator's action on locks.
func isOperators(cmd *wire.Command) bool {
	switch cmd.GetOp().(type) {
	case *wire.Command_ForceRelease, *wire.Command_Revoke, *wire.Command_SkipDelay, *wire.Command_Resize:
		return true
	}
	return false
}

// submit queues clients' commands. It appends a refusal for each command that it does not queue, including
// those with a fault. A nil faults means that there are none.
func (p *proposer) submit(all []Proposal, faults []*wire.Result, refusals []refusal) []refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, one := range all {
		it := item{
			cmd: one.Command, connection: one.Connection, size: one.Size + itemOverhead,
			work: one.work, growth: one.growth, done: one.Done,
		}
		no := p.closed()
		if no == nil && faults != nil {
			no = faults[i]
		}
		if it.size > maxEntryBytes {
			no = refused(wire.Status_RESOURCE_EXHAUSTED, "the request is larger than a log entry may be (256 KiB)")
		}
		if no == nil && p.backlog+it.cost() > maxBacklog {
			if refusals = p.makeRoom(refusals); p.backlog+it.cost() > maxBacklog {
				no = queueFull()
			}
		}
		if no != nil {
			refusals = append(refusals, refusal{one.Done, no})
			continue
		}
		p.enqueue(it)
	}
	if p.inflight < p.depth() && (p.ready() || !p.coalescer.waiting()) {
		p.cond.Signal()
	}
	return refusals
}
