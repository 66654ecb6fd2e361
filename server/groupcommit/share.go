package groupcommit

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// MaxEntryWork bounds the cost of applying one entry, during which a node applies nothing else. One unit
	// is about one lock that is acquired or released, some microseconds, so an entry takes at most some tens
	// of milliseconds. An entry full of plain commands stays below it: MaxEntryBytes limits it first.
	MaxEntryWork = 4_096
	// heavyWork is the minimum work of a heavy command. If the queue does not fit into one entry, all heavy
	// commands together get half of it.
	heavyWork = 8

	// maxBacklog bounds the queued commands of clients, in bytes, where each counts as at least minCost. This
	// bounds memory, and also the time that the queue is locked to divide an entry fairly, to a few
	// milliseconds.
	maxBacklog = 32 << 20
	minCost    = 1 << 10
	// shedBacklog is how much of a full backlog is freed in one step.
	shedBacklog = maxBacklog / 8
)

// sender is a session, or a connection for commands without one. The queue is shared fairly among senders.
type sender struct {
	session    uint64
	connection any
}

func (it *Item) sender() sender {
	if session := it.Command.GetSessionId(); session != 0 {
		return sender{session: session}
	}
	return sender{connection: it.connection}
}

// cost returns what a queued command counts towards maxBacklog.
func (it *Item) cost() int { return max(it.size, minCost) }

// makeRoom refuses the last commands of the senders with the largest parts of a full backlog, and appends to
// refusals. If that frees little, it is not repeated until an entry has been taken. Called with mu held.
func (p *Proposer) makeRoom(refusals []Refusal) []Refusal {
	if p.shed {
		return refusals
	}
	before := p.backlog
	costs := map[sender]int{}
	for i := range p.normal {
		costs[p.normal[i].sender()] += p.normal[i].cost()
	}
	most := fairShare(costs, maxBacklog-shedBacklog)
	clear(costs)
	kept := p.normal[:0]
	for _, it := range p.normal {
		from, cost := it.sender(), it.cost()
		if costs[from] > 0 && costs[from]+cost > most {
			costs[from] = most + 1 // also drop its later commands, so that those kept stay in order
			p.drop(&it)
			refusals = append(refusals, Refusal{it.Done, queueFull()})
			continue
		}
		costs[from] += cost
		kept = append(kept, it)
	}
	clear(p.normal[len(kept):])
	p.normal = kept
	p.shed = before-p.backlog < shedBacklog/2
	return refusals
}

// drop removes a client's queued command from the counters. Called with mu held.
func (p *Proposer) drop(it *Item) {
	p.backlog -= it.cost()
	p.bytes -= it.size
	p.work -= it.Work
	p.growth.Add(-it.growth)
}

// fairShare returns the largest share for which the total is not exceeded if each sender gets its own cost or
// the share, whichever is less.
func fairShare(costs map[sender]int, total int) int {
	sorted := make([]int, 0, len(costs))
	for _, cost := range costs {
		sorted = append(sorted, cost)
	}
	slices.Sort(sorted)
	for i, cost := range sorted {
		if share := total / (len(sorted) - i); cost > share {
			return share
		}
		total -= cost
	}
	return total
}

// WorkOf estimates the work of applying a command. locksOf returns the number of a session's locks, up to
// MaxEntryWork.
func WorkOf(cmd *wire.Command, locksOf func(session uint64) int) int {
	switch op := cmd.GetOp().(type) {
	case *wire.Command_Acquire:
		return max(1, len(op.Acquire.GetLocks()))
	case *wire.Command_OpenLease:
		return 1 + len(op.OpenLease.GetAcquire().GetLocks())
	case *wire.Command_CloseSession:
		return 1 + locksOf(cmd.GetSessionId())
	case *wire.Command_ExpireSession:
		return 1 + locksOf(op.ExpireSession.GetSessionId())
	}
	return 1
}

// shares divides a batch among the senders of a queue that does not fit into it.
type shares struct {
	// each is the work that one sender may add, heavy the work that all heavy commands together may still
	// add.
	each, heavy int
	senders     map[sender]*share
}

// share is one sender's part of a batch: the work of its commands in it. Once over is set, none of its later
// commands is taken, so that they stay in order.
type share struct {
	work int
	over bool
}

func newShares(queue []Item) *shares {
	s := &shares{heavy: MaxEntryWork / 2, senders: map[sender]*share{}}
	for i := range queue {
		if from := queue[i].sender(); s.senders[from] == nil {
			s.senders[from] = &share{}
		}
	}
	s.each = MaxEntryWork / max(1, len(s.senders))
	return s
}

// take reports whether an item goes into the batch, and counts it if so.
func (s *shares) take(b *Batch, it *Item) bool {
	of := s.senders[it.sender()]
	heavy := it.Work >= heavyWork
	if of.over || b.full(*it, MaxEntryWork) || of.work > 0 && of.work+it.Work > s.each || heavy && s.heavy <= 0 {
		of.over = true
		return false
	}
	of.work += it.Work
	if heavy {
		s.heavy -= it.Work
	}
	return true
}

// fillFairly is like fill, but if not everything fits, each sender adds no more than its share, and heavy
// commands no more than half of the batch. The rest stays in order.
func (b *Batch) fillFairly(queue []Item, fits bool) []Item {
	if fits {
		return b.fill(queue, MaxEntryWork)
	}
	s := newShares(queue)
	rest := queue[:0]
	for i := range queue {
		if s.take(b, &queue[i]) {
			b.add(queue[i])
		} else {
			rest = append(rest, queue[i])
		}
	}
	clear(queue[len(rest):])
	return rest
}
