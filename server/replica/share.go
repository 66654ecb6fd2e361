package replica

import (
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
	// maxLooked bounds the queued commands that are looked at to find those of others: the
	// queue is locked meanwhile.
	maxLooked = 4 * maxEntryWork
)

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

// shares divides a batch among the sessions of a queue that does not fit into it.
type shares struct {
	// each is what one session may add, heavy what all heavy commands may add together.
	each, heavy int
	// taken is the work of each session in the batch. A session whose turn is over has
	// none of its later commands taken: they stay in order.
	taken map[uint64]int
	over  map[uint64]bool
}

func newShares(queue []item) *shares {
	s := &shares{heavy: maxEntryWork / 2, taken: map[uint64]int{}, over: map[uint64]bool{}}
	for _, it := range queue {
		s.taken[it.cmd.GetSessionId()] = 0
	}
	s.each = maxEntryWork / max(1, len(s.taken))
	return s
}

// admits reports whether it is still the turn of the item's session.
func (s *shares) admits(it item) bool {
	session := it.cmd.GetSessionId()
	taken := s.taken[session]
	switch {
	case s.over[session]:
		return false
	case taken > 0 && taken+it.work > s.each, it.work >= heavyWork && s.heavy <= 0:
		s.over[session] = true
		return false
	}
	s.taken[session] += it.work
	if it.work >= heavyWork {
		s.heavy -= it.work
	}
	return true
}

// fillFairly is fill, but if not everything fits, each session adds no more than its share,
// and commands for many locks no more than half. The rest stays in order.
func (b *batch) fillFairly(queue []item, fits bool) []item {
	if fits {
		return b.fill(queue, maxEntryWork)
	}
	looked := queue[:min(len(queue), maxLooked)]
	s := newShares(looked)
	rest := queue[:0]
	for _, it := range looked {
		if b.full(it, maxEntryWork) || !s.admits(it) {
			s.over[it.cmd.GetSessionId()] = true
			rest = append(rest, it)
			continue
		}
		b.add(it)
	}
	rest = append(rest, queue[len(looked):]...)
	clear(queue[len(rest):])
	return rest
}
