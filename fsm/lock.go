package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxHoldersTold bounds the holders in an answer to an acquire.
	maxHoldersTold = 8
	// maxLocks bounds the locks of one acquire, maxLimit the permits of a semaphore.
	maxLocks = 64
	maxLimit = 1 << 31
	// Bounds of what an acquire says of its hold, in milliseconds.
	minMaxHoldMs   = 100
	maxMaxHoldMs   = 1 << 31
	maxLockDelayMs = 60_000
)

// acquire grants at once, queues, or refuses.
func (m *Machine) acquire(s *session, seq uint64, op *wire.Acquire) *wire.Result {
	if refusal := m.validAcquire(op); refusal != nil {
		return refusal
	}
	var blocked *lock
	fresh := uint64(0)
	for _, request := range op.Locks {
		l, ok := m.locks.get(request.Name)
		if !ok {
			fresh++
			continue
		}
		if known := m.known(s, op, l, request); known != nil {
			return known
		}
		if blocked == nil && !l.free(wanted(request)) {
			blocked = l
		}
	}
	if blocked != nil && op.WaitMs == 0 && !op.WaitForever {
		return &wire.Result{Status: wire.Status_NOT_ACQUIRED, Holders: m.holdersOf(blocked, maxHoldersTold)}
	}
	if refusal := m.noRoom(s, op, fresh, blocked != nil); refusal != nil {
		return refusal
	}
	c := m.newClaim(s, seq, op)
	if blocked == nil {
		m.grant(s, c, false)
		return granted(c)
	}
	return m.wait(s, c, op.AllowDeadlock)
}

// known answers an acquire of a lock that exists: one of another kind, or one that
// the owner holds or waits for already. Nil lets it go on.
func (m *Machine) known(s *session, op *wire.Acquire, l *lock, request *wire.LockRequest) *wire.Result {
	if refusal := l.mismatch(request, op.Order == wire.Order_UNFAIR); refusal != nil {
		return refusal
	}
	return m.refuseSecond(s, op.Owner, l)
}

// granted is the answer of a hold.
func granted(c *claim) *wire.Result {
	return &wire.Result{Status: wire.Status_GRANTED, Revision: c.grantedRevision, HoldId: c.id, Token: c.token, Count: c.count()}
}

// wait begins a claim's wait, unless that would close a cycle of owners that wait for
// each other.
func (m *Machine) wait(s *session, c *claim, allowDeadlock bool) *wire.Result {
	m.enqueue(s, c)
	if !allowDeadlock {
		if cycle := m.closesCycle(c); cycle != nil {
			m.part(s, c)
			m.remove(c)
			return deadlock(cycle)
		}
	}
	e := m.emitClaim(wire.Event_QUEUED, c)
	e.Generation, e.WaitMs, e.WaitForever = c.generation, c.waitMs, c.waitForever
	return m.queued(c)
}

// queued is the answer of a wait.
func (m *Machine) queued(c *claim) *wire.Result {
	return &wire.Result{Status: wire.Status_QUEUED, HoldId: c.id, Position: m.position(c), Holders: m.inTheWay(c)}
}

// inTheWay tells who holds the first of a waiting claim's locks that is not open.
func (m *Machine) inTheWay(c *claim) []*wire.HolderInfo {
	for _, w := range c.wants() {
		if l, _ := m.locks.get(w.name); l.occupied() {
			return m.holdersOf(l, maxHoldersTold)
		}
	}
	return nil
}

// deadlock refuses to wait. Nothing of the request is left behind.
func deadlock(cycle []*wire.DeadlockStep) *wire.Result {
	return &wire.Result{Status: wire.Status_DEADLOCK, Message: describeCycle(cycle), Cycle: cycle}
}

func (m *Machine) validAcquire(op *wire.Acquire) *wire.Result {
	if len(op.GetLocks()) != 1 {
		return answer(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("an acquire takes one lock, not %d", len(op.GetLocks())))
	}
	if err := ValidName(op.Locks[0].GetName()); err != nil {
		return answer(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	switch op.Locks[0].Mode {
	case wire.Mode_MODE_UNSPECIFIED, wire.Mode_EXCLUSIVE:
	default:
		return answer(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("mode %d is not known at this level", op.Locks[0].Mode))
	}
	return m.validValue(op.Value)
}

func validMaxHold(ms uint32) *wire.Result {
	if ms != 0 && (ms < minMaxHoldMs || ms > maxMaxHoldMs) {
		return answer(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("max_hold_ms is %d: 0 or %d to %d is allowed", ms, minMaxHoldMs, uint32(maxMaxHoldMs)))
	}
	return nil
}

func (m *Machine) validValue(value []byte) *wire.Result {
	if limit := m.state.settings.MaxValueBytes; len(value) > int(limit) {
		return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_value_bytes: the value has %d bytes, at most %d are allowed", len(value), limit))
	}
	return nil
}

// refuseSecond refuses an owner that holds the lock or waits for it already.
func (m *Machine) refuseSecond(s *session, owner uint64, l *lock) *wire.Result {
	id, ok := m.owners.get(ownerKey{s.id, owner, l.id})
	if !ok {
		return nil
	}
	c, _ := m.claims.get(id)
	if c.held() {
		return answer(wire.Status_ALREADY_HELD, fmt.Sprintf("the owner holds it since request %d", c.seq))
	}
	return answer(wire.Status_ALREADY_QUEUED, fmt.Sprintf("the owner waits for it since request %d", c.seq))
}

// noRoom refuses a claim that would exceed a limit. A try that fails anyway does not
// come here. A claim counts once, however many locks it is for.
func (m *Machine) noRoom(s *session, op *wire.Acquire, fresh uint64, waits bool) *wire.Result {
	limits := m.state.settings
	if refusal := m.fullSession(s); refusal != nil {
		return refusal
	}
	if fresh > 0 && uint64(m.locks.len())+fresh > limits.MaxLocks {
		return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_locks: %d locks exist", m.locks.len()))
	}
	for _, request := range op.Locks {
		if l, ok := m.locks.get(request.Name); waits && ok && uint64(l.waiters) >= limits.MaxWaitersPerLock {
			return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_waiters_per_lock: %d wait for %q", l.waiters, l.name))
		}
	}
	return nil
}

func (m *Machine) fullSession(s *session) *wire.Result {
	if s.holds+s.waits < m.state.settings.MaxClaimsPerSession {
		return nil
	}
	return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_claims_per_session: the session has %d holds and %d waits", s.holds, s.waits))
}

// release ends a hold. A repeated release answers OK again: a retry because its
// request is remembered, a new request as long as the first one's outcome is, that
// is until the client has acknowledged it.
func (m *Machine) release(s *session, op *wire.Release) *wire.Result {
	c := m.holdOf(s, op.GetHoldId(), op.GetToken())
	if c == nil {
		if m.released(s, op.GetHoldId(), op.GetToken()) {
			return &wire.Result{Status: wire.Status_OK, HoldId: op.HoldId, Token: op.Token}
		}
		return answer(wire.Status_NOT_HELD, "")
	}
	m.part(s, c)
	m.remove(c)
	m.emitClaim(wire.Event_RELEASED, c)
	return &wire.Result{Status: wire.Status_OK, HoldId: c.id, Token: c.token}
}

// holdOf returns the session's hold of that id and token, or nil.
func (m *Machine) holdOf(s *session, id, token uint64) *claim {
	c, ok := m.claims.get(id)
	if !ok || c.session != s.id || !c.held() || c.token != token {
		return nil
	}
	return c
}

// released looks through the window for the release of a hold. It is bounded by the
// window's size, and only a release that found no hold comes here.
func (m *Machine) released(s *session, id, token uint64) (found bool) {
	m.outcomes.each(requestKey{s.id, 0}, func(key requestKey, o *outcome) bool {
		if key.session != s.id {
			return false
		}
		found = token != 0 && o.status == wire.Status_OK && o.holdID == id && o.token == token
		return !found
	})
	return found
}

// cancel ends the wait of an earlier request, unless the grant came first.
func (m *Machine) cancel(s *session, op *wire.Cancel) *wire.Result {
	o, ok := m.outcomes.get(requestKey{s.id, op.GetAcquireSeq()})
	if ok && o.final() {
		return m.present(o)
	}
	if ok {
		c, _ := m.claims.get(o.holdID)
		return m.endWait(s, c, wire.Status_CANCELLED)
	}
	if c := m.holdOfRequest(s.id, op.GetAcquireSeq()); c != nil {
		return granted(c)
	}
	return answer(wire.Status_NOT_FOUND, "no such request is remembered")
}

// timeoutWait ends a wait by time, unless the grant came first or the deadline is
// not the current one.
func (m *Machine) timeoutWait(op *wire.TimeoutWait) *wire.Result {
	c, ok := m.claims.get(op.GetWaitId())
	if !ok {
		return answer(wire.Status_NOT_FOUND, "no such wait")
	}
	if refusal := m.outdated(op.Term, op.Generation, c.generation); refusal != nil {
		return refusal
	}
	if c.held() {
		return granted(c)
	}
	if c.waitForever {
		return answer(wire.Status_FAILED_PRECONDITION, "the request waits without bound")
	}
	s, _ := m.editSession(c.session)
	return m.endWait(s, c, wire.Status_TIMEOUT)
}

// endWait ends a wait without a grant. Others behind it may be next now.
func (m *Machine) endWait(s *session, c *claim, status wire.Status_Code) *wire.Result {
	m.part(s, c)
	m.remove(c)
	o := m.conclude(s, c, c.seq, status)
	m.emitCancelled(c, status)
	return m.present(o)
}

// setValue replaces what everybody may read of a hold.
func (m *Machine) setValue(s *session, op *wire.SetValue) *wire.Result {
	if refusal := m.validValue(op.GetValue()); refusal != nil {
		return refusal
	}
	if m.holdOf(s, op.GetHoldId(), op.GetToken()) == nil {
		return answer(wire.Status_NOT_HELD, "")
	}
	c, _ := m.editClaim(op.HoldId)
	c.vary().value = op.Value
	return answer(wire.Status_OK, "")
}
