package fsm

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ListContended returns the locks with the prefix that are waited for and that the grants allow to read, the most
// contended first. Locks that are equally contended are sorted by name. The time is proportional to the number of
// waits, whatever the number of locks, and the memory to the limit, so call it on a Fork.
func (m *Machine) ListContended(req *wire.ListContendedRequest, g *rights.Grants) *wire.ListContendedResponse {
	reply := &wire.ListContendedResponse{Revision: m.state.revision}
	top := newLowest(pageSize(req.GetLimit(), defaultPage, maxPage), compareContention)
	m.eachAwaited(func(l *lock) {
		if strings.HasPrefix(l.name, req.GetPrefix()) && g.OnLock(l.name, wire.Verb_READ) {
			reply.Contended++
			top.add(contended{l, m.contentionRank(l, req.GetOrder())})
		}
	})
	size := 0
	for _, one := range top.sorted() {
		if size > maxReplyBytes {
			break
		}
		info := m.contendedLock(one.lock)
		size += proto.Size(info)
		reply.Locks = append(reply.Locks, info)
	}
	return reply
}

// eachAwaited calls fn for every lock that anything waits for, once.
func (m *Machine) eachAwaited(fn func(*lock)) {
	awaited := func(at place) *lock {
		c, _ := m.claims.get(at.claim)
		return m.live(c.wantOf(at.lock).lock)
	}
	for at, ok := m.queue.seek(place{}); ok; at, ok = m.queue.seek(place{lock: at.lock + 1}) {
		fn(awaited(at))
	}
	m.upgrades.each(place{}, func(at place) bool {
		if l := awaited(at); l.waiters == 0 {
			fn(l)
		}
		return true
	})
}

// Contention returns the length of the longest queue, and when the oldest wait began, in Unix milliseconds; zeros if
// nothing waits. The time is proportional to the number of locks that are waited for, so call it on a Fork.
func (m *Machine) Contention() (longest uint64, oldest int64) {
	if m.state.waits == 0 {
		return 0, 0
	}
	oldest = math.MaxInt64
	m.eachAwaited(func(l *lock) {
		longest = max(longest, uint64(l.waiters)+l.ahead())
		oldest = min(oldest, m.awaitedSince(l))
	})
	return longest, oldest
}

// contended is a lock that is waited for. Locks with a lower rank are more contended.
type contended struct {
	lock *lock
	rank int64
}

func compareContention(a, b contended) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.lock.name, b.lock.name))
}

func (m *Machine) contentionRank(l *lock, order wire.ListContendedRequest_Order) int64 {
	if order == wire.ListContendedRequest_OLDEST_WAIT {
		return m.awaitedSince(l)
	}
	return -int64(l.waiters) - int64(l.ahead())
}

// awaitedSince returns when the oldest wait for a lock began.
func (m *Machine) awaitedSince(l *lock) int64 {
	since := int64(math.MaxInt64)
	if l.waiters > 0 {
		first, _ := m.queue.seek(place{lock: l.id})
		c, _ := m.claims.get(first.claim)
		since = c.queued()
	}
	if l.upgrader != 0 {
		c, _ := m.claims.get(l.upgrader)
		since = min(since, c.extra().upgrade.queued)
	}
	return since
}

// oldestWait returns the wait for a lock that began first: the head of the queue, or the hold that waits to become
// exclusive.
func (m *Machine) oldestWait(l *lock) *wire.WaiterInfo {
	first := m.waitersOf(l, 1+int(l.ahead()), maxReplyBytes)
	return slices.MinFunc(first, func(a, b *wire.WaiterInfo) int { return cmp.Compare(a.QueuedUnixMs, b.QueuedUnixMs) })
}

func (m *Machine) contendedLock(l *lock) *wire.ContendedLock {
	info := &wire.ContendedLock{
		Name:        l.name,
		QueueLength: uint64(l.waiters) + l.ahead(),
		HolderCount: uint64(m.holds(l)),
		Oldest:      m.oldestWait(l),
	}
	if holders := m.holdersWithin(l, 1, holdersListBytes); len(holders) > 0 {
		info.Holder = holders[0]
	}
	return info
}
