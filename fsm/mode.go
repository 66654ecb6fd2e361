package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// wanted returns what a request wants of a lock.
func wanted(request *wire.LockRequest) want {
	w := want{mode: request.Mode}
	switch {
	case request.Limit > 0:
		w.mode, w.permits = wire.Mode_PERMITS, uint32(max(1, request.Permits))
	case w.mode == wire.Mode_MODE_UNSPECIFIED:
		w.mode = wire.Mode_EXCLUSIVE
	}
	return w
}

// weight returns what the want adds to the used count of its lock.
func (w want) weight() uint64 {
	switch w.mode {
	case wire.Mode_SHARED:
		return 1
	case wire.Mode_PERMITS:
		return uint64(w.permits)
	}
	return 0
}

// fits reports whether a want is compatible with everything that occupies the lock.
func (l *lock) fits(w want) bool {
	switch w.mode {
	case wire.Mode_PERMITS:
		return uint64(l.used)+w.weight() <= uint64(l.limit)
	case wire.Mode_SHARED:
		return !l.exclusive
	}
	return !l.occupied()
}

// free reports whether a new request may have the lock immediately. New requests never overtake waiters.
func (l *lock) free(w want) bool { return !l.awaited() && l.fits(w) }

func (l *lock) occupy(w want) {
	l.exclusive = l.exclusive || w.mode == wire.Mode_EXCLUSIVE
	if weight := w.weight(); weight > 0 {
		l.vary().used += uint32(weight)
	}
}

func (l *lock) vacate(w want) {
	l.exclusive = l.exclusive && w.mode != wire.Mode_EXCLUSIVE
	if weight := w.weight(); weight > 0 {
		l.vary().used -= uint32(weight)
	}
}

// order returns the lock's order as requests name it.
func (l *lock) order() wire.Order {
	if l.unfair {
		return wire.Order_UNFAIR
	}
	return wire.Order_FIFO
}

// mismatch refuses a session's request that expects a lock of another kind. The text has the limit of a semaphore
// only if the identity of the session may read the lock.
func (m *Machine) mismatch(s *session, l *lock, request *wire.LockRequest, unfair bool) *wire.Result {
	switch {
	case uint64(l.limit) != request.Limit && l.limit == 0:
		return answer(wire.Status_MISMATCH, fmt.Sprintf("%q is in use as a lock with modes: leave limit and permits out", l.name))
	case uint64(l.limit) != request.Limit && !m.grantsOf(s).OnLock(l.name, wire.Verb_READ):
		return answer(wire.Status_MISMATCH, fmt.Sprintf("%q is in use as a semaphore of another limit", l.name))
	case uint64(l.limit) != request.Limit:
		return answer(wire.Status_MISMATCH, fmt.Sprintf("%q is in use as a semaphore of limit %d", l.name, l.limit))
	case l.unfair != unfair:
		return answer(wire.Status_MISMATCH, fmt.Sprintf("%q is in use in the order %v", l.name, l.order()))
	}
	return nil
}

// requestOf returns a want as requests express it. The lock must exist.
func (m *Machine) requestOf(w want) *wire.LockRequest {
	l := m.live(w.lock)
	return &wire.LockRequest{Name: w.lock.name, Mode: w.mode, Permits: uint64(w.permits), Limit: uint64(l.limit)}
}
