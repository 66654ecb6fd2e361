package groupcommit

import (
	"math"
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

// sender is a session, or a connection for commands without one, of an identity. The queue is shared fairly among
// identities, and the share of an identity among its senders.
type sender struct {
	identity   string
	session    uint64
	connection any
}

func (it *Item) sender() sender {
	if session := it.Command.GetSessionId(); session != 0 {
		return sender{identity: it.Identity, session: session}
	}
	return sender{identity: it.Identity, connection: it.connection}
}

// cost returns what a queued command counts towards maxBacklog.
func (it *Item) cost() int { return max(it.size, minCost) }

// makeRoom refuses the last commands of the identities and the senders with the largest parts of a full backlog, for a
// command of the identity next, and appends to refusals. If that frees little, it is not repeated until an entry has been taken. Called with mu held.
func (p *Proposer) makeRoom(refusals []Refusal, next string) []Refusal {
	if p.shed {
		return refusals
	}
	before := p.backlog
	shares := divide(p.normal, (*Item).cost, maxBacklog-shedBacklog, next)
	kept := p.normal[:0]
	for _, it := range p.normal {
		if !shares.of(&it).take(it.cost()) {
			p.drop(&it)
			refusals = append(refusals, Refusal{it.Done, queueFull()})
			continue
		}
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

// fairShare returns the largest share for which the total is not exceeded if each gets its own cost or the share,
// whichever is less. If all of them fit, there is no bound. It sorts the costs.
func fairShare(costs []int, total int) int {
	slices.Sort(costs)
	for i, cost := range costs {
		if share := total / (len(costs) - i); cost > share {
			return share
		}
		total -= cost
	}
	return math.MaxInt
}

// part is what an identity or a sender has of something that is divided. Once over is set, nothing more is taken, so
// that the commands of a sender stay in order.
type part struct {
	// of is the part of the identity that a sender's part belongs to; nil for that of an identity.
	of *part
	// cost is that of all commands in the queue, share what it may take, and taken what it has taken.
	cost, share, taken int
	over               bool
	// alone is set for an identity that shares with no other: only its senders share.
	alone bool
}

// division divides a total among the identities in a queue, and the share of each identity among its senders.
type division map[sender]*part

// divide divides a total by the costs of a queue's commands. The part of an identity that needs less than its share is
// left to the others, and likewise that of a sender. next is the identity that room is needed for.
func divide(queue []Item, cost func(*Item) int, total int, next string) division {
	d, identities := division{}, map[string]*part{next: {}}
	for i := range queue {
		it := &queue[i]
		identity := identities[it.Identity]
		if identity == nil {
			identity = &part{}
			identities[it.Identity] = identity
		}
		from := it.sender()
		if d[from] == nil {
			d[from] = &part{of: identity}
		}
		d[from].cost += cost(it)
		identity.cost += cost(it)
	}
	costs := make([]int, 0, len(d))
	for _, identity := range identities {
		costs = append(costs, identity.cost)
	}
	most := fairShare(costs, total)
	for _, identity := range identities {
		identity.share, identity.alone = min(total, most), len(identities) == 1
	}
	d.divideAgain()
	return d
}

// divideAgain divides the share of each identity among its senders.
func (d division) divideAgain() {
	costs := map[*part][]int{}
	for _, one := range d {
		costs[one.of] = append(costs[one.of], one.cost)
	}
	most := make(map[*part]int, len(costs))
	for identity, of := range costs {
		most[identity] = fairShare(of, identity.share)
	}
	for _, one := range d {
		one.share = most[one.of]
	}
}

func (d division) of(it *Item) *part { return d[it.sender()] }

// fits reports whether so much more is within the part of a sender. Each sender may take one command, whatever it
// costs, as long as its identity has something left, and so may each identity.
func (p *part) fits(cost int) bool {
	return !p.over && (p.taken == 0 || p.taken+cost <= p.share) && (p.of.alone || p.of.taken == 0 || p.of.taken+cost <= p.of.share)
}

// take counts a command unless it does not fit. Then nothing more of the sender fits.
func (p *part) take(cost int) bool {
	if !p.fits(cost) {
		p.over = true
		return false
	}
	p.taken += cost
	p.of.taken += cost
	return true
}

// WorkOf estimates the work of applying a command. locksOf returns the number of a session's locks, up to
// MaxEntryWork.
func WorkOf(cmd *wire.Command, locksOf func(session uint64) int) int {
	switch op := cmd.GetOp().(type) {
	case *wire.Command_Acquire:
		return max(1, len(op.Acquire.GetLocks()))
	case *wire.Command_OpenLease:
		return 1 + len(op.OpenLease.GetAcquire().GetLocks())
	case *wire.Command_ChangeKeys:
		return 2 * len(op.ChangeKeys.GetNames())
	case *wire.Command_RecordRemaining:
		return max(1, len(op.RecordRemaining.GetKeys())/8)
	case *wire.Command_CloseSession:
		return 1 + locksOf(cmd.GetSessionId())
	case *wire.Command_ExpireSession:
		return 1 + locksOf(op.ExpireSession.GetSessionId())
	}
	return 1
}

// shares divides a batch among the senders of a queue that does not fit into it.
type shares struct {
	// all is the division of the whole batch.
	all division
	// heavy is the work that all heavy commands together may still add.
	heavy int
}

func newShares(queue []Item) *shares {
	return &shares{all: divide(queue, (*Item).part, MaxEntryBytes, queue[0].Identity), heavy: MaxEntryWork / 2}
}

// part returns the part of an entry that a command takes, of MaxEntryBytes: by its size or by its work, whichever is
// the larger part. So commands whose parts add up to an entry fit into it.
func (it *Item) part() int { return max(it.size, it.Work*(MaxEntryBytes/MaxEntryWork)) }

// take reports whether an item goes into the batch, and counts it if so.
func (s *shares) take(b *Batch, it *Item) bool {
	of := s.all.of(it)
	heavy := it.Work >= heavyWork
	if b.full(*it, MaxEntryWork) || heavy && s.heavy <= 0 {
		of.over = true
		return false
	}
	if !of.take(it.part()) {
		return false
	}
	if heavy {
		s.heavy -= it.Work
	}
	return true
}

// fillFairly is like fill, but if not everything fits, each sender adds no more than its share, and heavy
// commands no more than half of the batch. The rest stays in order.
func (b *Batch) fillFairly(queue []Item, fits bool) []Item {
	if fits || len(queue) == 0 {
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
