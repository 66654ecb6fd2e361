package groupcommit

import (
	"time"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Proposal is a command with the callback for its result.
type Proposal struct {
	// Command must not be changed until Done is called. Afterwards it belongs to the caller again.
	Command *wire.Command
	// Size is an upper bound on the encoded size of the command, in bytes.
	Size int
	// Identity is the verified identity of the sender, empty if there is none. The queue is shared fairly among
	// identities first, and then among the senders of each.
	Identity string
	// Connection distinguishes the senders of commands without a session, so that none of them takes the
	// others' share of the queue. It must be comparable. It may be nil if there is nothing to distinguish.
	Connection any
	// Until, if not nil, is set before Done is called to the time when the session of the command expires
	// without another sign of life. It stays zero if the session is not alive.
	Until *time.Time
	// Done is called exactly once, possibly before Propose returns. It must not block.
	Done func(*wire.Result)

	// Work is the cost of applying the command: see WorkOf. It and the fields below are set by the replica.
	Work int
	// Growth is the number of units that the command may add to the state: see fsm.GrowthUnits.
	Growth uint64
	// Exhausted is set if the session or its identity was refused something because a budget was used up.
	Exhausted bool
}

// Refusal is the result of a command that was not queued, and the callback for it.
type Refusal struct {
	done   func(*wire.Result)
	result *wire.Result
}

// Answer calls the callback.
func (r Refusal) Answer() { r.done(r.result) }

// enqueue adds a client's command to the normal queue, and an operator's to the urgent one, since few of the
// latter are in flight at a time. Called with mu held.
func (p *Proposer) enqueue(it Item) {
	if isOperators(it.Command) {
		p.urgent = append(p.urgent, it)
	} else {
		p.normal = append(p.normal, it)
		p.backlog += it.cost()
		p.coalescer.came(it.Command.GetSessionId())
	}
	p.bytes += it.size
	p.work += it.Work
	p.growth.Add(it.growth)
}

// isOperators reports whether a command is an operator's action on locks.
func isOperators(cmd *wire.Command) bool {
	switch cmd.GetOp().(type) {
	case *wire.Command_ForceRelease, *wire.Command_Revoke, *wire.Command_SkipDelay, *wire.Command_Resize,
		*wire.Command_ForceClose:
		return true
	}
	return false
}

// Submit queues clients' commands. It appends a refusal for each command that it does not queue, including
// those with a fault. A nil faults means that there are none.
func (p *Proposer) Submit(all []Proposal, faults []*wire.Result, refusals []Refusal) []Refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, one := range all {
		it := Item{
			Command: one.Command, Identity: one.Identity, connection: one.Connection, size: one.Size + itemOverhead,
			Work: one.Work, growth: one.Growth, Done: one.Done,
		}
		no := p.closed()
		if no == nil && faults != nil {
			no = faults[i]
		}
		if it.size > MaxEntryBytes {
			no = status.Result(wire.Status_RESOURCE_EXHAUSTED, "the request is larger than a log entry may be (256 KiB)")
		}
		if no == nil && p.backlog+it.cost() > maxBacklog {
			if refusals = p.makeRoom(refusals, it.Identity); p.backlog+it.cost() > maxBacklog {
				no = queueFull()
			}
		}
		if no != nil {
			refusals = append(refusals, Refusal{one.Done, no})
			continue
		}
		p.enqueue(it)
	}
	if p.inflight < p.depth() && (p.ready() || !p.coalescer.waiting()) {
		p.cond.Signal()
	}
	return refusals
}
