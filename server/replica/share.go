package replica

import (
	"slices"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxEntryWork bounds what applying one entry costs every node, during which it applies
	// nothing else. One unit is about one lock that is asked for or given up: some
	// microseconds, so an entry takes some tens of milliseconds at most. As many plain
	// commands as fit into maxEntryBytes stay below it.
	maxEntryWork = 4_096
	// heavyWork is what a command costs at least that shares half of an entry with its like,
	// where not everything queued fits into one.
	heavyWork = 8

	// maxBacklog bounds the clients' commands that are queued, in bytes, each counted as
	// minCost at least. So memory stays bounded, and an entry is shared fairly in a few
	// milliseconds, for which the queue is locked.
	maxBacklog = 32 << 20
	minCost    = 1 << 10
	// shedBacklog is how much of a full backlog is made free at once.
	shedBacklog = maxBacklog / 8
)

// sender is a session, or a connection whose commands have none. Senders share the queue.
type sender struct {
	session    uint64
	connection any
}

func (it *item) sender() sender {
	if session := it.cmd.GetSessionId(); session != 0 {
		return sender{session: session}
	}
	return sender{connection: it.connection}
}

// cost is what a queued command counts for.
func (it *item) cost() int { return max(it.size, minCost) }

// makeRoom refuses the last commands of the senders that have most of a full backlog, and
// adds the refusals. Where that makes little room, it is not tried again until an entry was
// taken. Called with mu.
func (p *proposer) makeRoom(refusals []refusal) []refusal {
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
			costs[from] = most + 1 // none of its later ones, which are to stay in order
			p.drop(&it)
			refusals = append(refusals, refusal{it.done, queueFull()})
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

// drop forgets a queued command of a client. Called with mu.
func (p *proposer) drop(it *item) {
	p.backlog -= it.cost()
	p.bytes -= it.size
	p.work -= it.work
	p.growth.Add(-it.growth)
}

// fairShare returns the largest share such that all together, each with its own or with
// the share if that is less, come to no more than total.
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

// workOf estimates what applying a command costs. locksOf reports how many locks a session
// has, up to maxEntryWork.
func workOf(cmd *wire.Command, locksOf func(session uint64) int) int {
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

// locksOf counts the locks of a session for workOf.
func (r *Replica) locksOf(session uint64) (n int) {
	r.machine.View(func(m *fsm.Machine) { n = m.LocksOf(session, maxEntryWork) })
	return n
}

// full reports whether an item does not fit into the batch. An empty batch takes any.
func (b *batch) full(it item, work int) bool {
	return len(b.items) > 0 && (b.size+it.size > maxEntryBytes || b.work+it.work > work)
}

func (b *batch) add(it item) {
	b.size += it.size
	b.work += it.work
	b.growth += it.growth
	b.items = append(b.items, it)
}

// fill moves items from the front of the queue into the batch, up to so much work in all,
// and returns the rest of the queue.
func (b *batch) fill(queue []item, work int) []item {
	n := 0
	for n < len(queue) && !b.full(queue[n], work) {
		b.add(queue[n])
		n++
	}
	if n == len(queue) {
		return reusable(queue)
	}
	clear(queue[:n])
	return queue[n:]
}

// shares divides a batch among the senders of a queue that does not fit into it.
type shares struct {
	// each is what one sender may add, heavy what all heavy commands may add together.
	each, heavy int
	senders     map[sender]*share
}

// share is what one sender has of a batch: the work of its commands in it. Once its turn is
// over, none of its later commands is taken: they stay in order.
type share struct {
	work int
	over bool
}

func newShares(queue []item) *shares {
	s := &shares{heavy: maxEntryWork / 2, senders: map[sender]*share{}}
	for i := range queue {
		if from := queue[i].sender(); s.senders[from] == nil {
			s.senders[from] = &share{}
		}
	}
	s.each = maxEntryWork / max(1, len(s.senders))
	return s
}

// take reports whether an item belongs into the batch, and counts it if so.
func (s *shares) take(b *batch, it *item) bool {
	of := s.senders[it.sender()]
	heavy := it.work >= heavyWork
	if of.over || b.full(*it, maxEntryWork) || of.work > 0 && of.work+it.work > s.each || heavy && s.heavy <= 0 {
		of.over = true
		return false
	}
	of.work += it.work
	if heavy {
		s.heavy -= it.work
	}
	return true
}

// fillFairly is fill, but if not everything fits, each sender adds no more than its share,
// and commands for many locks no more than half. The rest stays in order.
func (b *batch) fillFairly(queue []item, fits bool) []item {
	if fits {
		return b.fill(queue, maxEntryWork)
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
