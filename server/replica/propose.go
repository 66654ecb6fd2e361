package replica

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Proposal is a command and who wants to know what became of it.
type Proposal struct {
	// Command must not be changed until Done is called, and may be from then on.
	Command *wire.Command
	// Size bounds what the command takes when it is encoded, in bytes.
	Size int
	// Connection tells commands without a session apart, so that none of their senders takes
	// the room of the others. It is comparable, and nil if there is nothing to tell apart.
	Connection any
	// Until is where to put, if it is not nil and before Done is called, when the session of
	// the command ends unless there is another sign of life. It stays zero if it is not alive.
	Until *time.Time
	// Done is called exactly once, possibly before Propose returns, and must not block.
	Done func(*wire.Result)

	// What follows is set by ProposeAll.
	work int // see workOf
	// growth is what it may add to the state: see fsm.GrowthUnits.
	growth uint64
	// exhausted says that the session was refused something for want of room.
	exhausted bool
}

// Propose queues a command, with the promises of ProposeAll.
func (r *Replica) Propose(cmd *wire.Command, done func(*wire.Result)) { r.ProposeFrom(nil, cmd, done) }

// ProposeFrom is Propose for a command that came over that connection: see Proposal.
func (r *Replica) ProposeFrom(connection any, cmd *wire.Command, done func(*wire.Result)) {
	r.ProposeAll([]Proposal{{Command: cmd, Size: proto.Size(cmd), Connection: connection, Done: done}})
}

// ProposeAll queues commands in order, and keeps nothing of the slice. NOT_LEADER and
// UNAVAILABLE mean that a command was not executed, UNCERTAIN that nobody knows. A command
// with a session counts as a sign of life of that session; once the session's expiry is
// decided it answers SESSION_LOST.
func (r *Replica) ProposeAll(all []Proposal) {
	now := time.Now()
	for i := range all {
		all[i].work = workOf(all[i].Command, r.locksOf)
	}
	var refusals []refusal
	for begin := 0; begin < len(all); {
		end := begin + r.deadlines.touchAll(all[begin:], now)
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

// faults returns why each of the commands is refused: because it is invalid whatever the
// state is, or because a budget is used up. What applying would refuse is not logged. Nil says
// that none is refused.
func (r *Replica) faults(all []Proposal) (faults []*wire.Result) {
	limits := r.machine.Limits()
	if limits == nil {
		return nil // before its bootstrap a cluster accepts nothing anyway
	}
	ahead := r.proposer.growth.Load()
	for i := range all {
		p := &all[i]
		fault := fsm.Validate(p.Command, limits)
		if fault == nil {
			fault = fsm.ValidateSize(p.Command, p.Size, limits)
		}
		if fault == nil { // what is valid can be counted
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

// exhausted refuses a command that would exceed a budget. ahead is what the commands before
// it may add to the state. The state is looked at only if it is nearly full, or if the session
// was refused something before. Applying checks the budgets again, exactly.
func (r *Replica) exhausted(p *Proposal, ahead uint64) (refusal *wire.Result) {
	if p.growth == 0 || !p.exhausted && !r.machine.Near(ahead+p.growth) {
		return nil
	}
	r.machine.View(func(m *fsm.Machine) { refusal = m.Exhausted(p.Command, ahead) })
	if refusal == nil && p.exhausted {
		r.deadlines.setExhausted(p.Command.GetSessionId(), false)
	}
	return refusal
}

// touchAll counts signs of life that arrived at the given time, up to that of a session
// whose expiry is decided, and returns the number of commands before it.
func (d *deadlines) touchAll(all []Proposal, arrived time.Time) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range all {
		p := &all[n]
		session := p.Command.GetSessionId()
		// An attach has yet to prove that it may speak for the session; its event counts.
		if session == 0 || p.Command.GetAttachSession() != nil {
			continue
		}
		e, state := d.sign(session, arrived)
		if state == decided {
			return n
		}
		if e == nil {
			continue
		}
		p.exhausted = e.exhausted
		if p.Until != nil {
			*p.Until = e.last.Add(e.ttl)
		}
	}
	return len(all)
}

// setExhausted notes whether a session was refused something for want of room.
func (d *deadlines) setExhausted(session uint64, exhausted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, _ := d.find(session); e != nil {
		e.exhausted = exhausted
	}
}

// refusal is the answer to a command that was not queued.
type refusal struct {
	done   func(*wire.Result)
	result *wire.Result
}

// enqueue adds a client's command to the queue, and an operator's to the urgent one: few of
// them are under way at once. Called with mu.
func (p *proposer) enqueue(it item) {
	if isOperators(it.cmd) {
		p.urgent = append(p.urgent, it)
	} else {
		p.normal = append(p.normal, it)
		p.backlog += it.cost()
		p.gathering.came(it.cmd.GetSessionId())
	}
	p.bytes += it.size
	p.work += it.work
	p.growth.Add(it.growth)
}

// isOperators reports whether a command is what an operator does to locks.
func isOperators(cmd *wire.Command) bool {
	switch cmd.GetOp().(type) {
	case *wire.Command_ForceRelease, *wire.Command_Revoke, *wire.Command_SkipDelay, *wire.Command_Resize:
		return true
	}
	return false
}

// submit queues clients' commands and adds to refusals what it does not queue: those with
// a fault, among others. Nil faults are none.
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
	if p.inflight < p.depth() && (p.ready() || !p.gathering.waiting()) {
		p.cond.Signal()
	}
	return refusals
}
