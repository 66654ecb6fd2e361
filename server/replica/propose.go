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
func (r *Replica) Propose(cmd *wire.Command, done func(*wire.Result)) {
	r.ProposeAll([]Proposal{{Command: cmd, Size: proto.Size(cmd), Done: done}})
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
			all[end].Done(lost())
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

// submit queues clients' commands and adds to refusals what it does not queue: those with
// a fault, among others. Nil faults are none.
func (p *proposer) submit(all []Proposal, faults []*wire.Result, refusals []refusal) []refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, one := range all {
		size := one.Size + itemOverhead
		no := p.admit(size)
		if no == nil && faults != nil {
			no = faults[i]
		}
		if size > maxEntryBytes {
			no = refused(wire.Status_RESOURCE_EXHAUSTED, "the request is larger than a log entry may be (256 KiB)")
		}
		if no != nil {
			refusals = append(refusals, refusal{one.Done, no})
			continue
		}
		p.normal = append(p.normal, item{cmd: one.Command, size: size, work: one.work, growth: one.growth, done: one.Done})
		p.gathering.came(one.Command.GetSessionId())
		p.bytes += size
		p.work += one.work
		p.growth.Add(one.growth)
	}
	if p.inflight < p.depth() && (p.ready() || !p.gathering.waiting()) {
		p.cond.Signal()
	}
	return refusals
}
