package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxHoldersTold bounds the holders in an answer to an acquire.
const maxHoldersTold = 8

// acquire grants at once, queues, or refuses.
func (m *Machine) acquire(s *session, seq uint64, op *wire.Acquire) *wire.Result {
	if refusal := m.validAcquire(op); refusal != nil {
		return refusal
	}
	name := op.Locks[0].Name
	l, exists := m.locks.get(name)
	if exists {
		if refusal := m.refuseSecond(s, op.Owner, l); refusal != nil {
			return refusal
		}
	}
	free := !exists || grantable(l)
	if !free && op.WaitMs == 0 && !op.WaitForever {
		return &wire.Result{Status: wire.Status_NOT_ACQUIRED, Holders: m.holdersOf(l, maxHoldersTold)}
	}
	if refusal := m.noRoom(s, l, free); refusal != nil {
		return refusal
	}
	l = m.ensureLock(name)
	c := m.newClaim(s, seq, op, l)
	if free {
		m.grant(s, c, l, false)
		return &wire.Result{Status: wire.Status_GRANTED, HoldId: c.id, Token: c.token}
	}
	m.enqueue(s, c, l)
	return &wire.Result{Status: wire.Status_QUEUED, HoldId: c.id, Position: l.waiters, Holders: m.holdersOf(l, maxHoldersTold)}
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
// come here.
func (m *Machine) noRoom(s *session, l *lock, free bool) *wire.Result {
	limits := m.state.settings
	switch {
	case s.holds+s.waits >= limits.MaxClaimsPerSession:
		return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_claims_per_session: the session has %d holds and %d waits", s.holds, s.waits))
	case l == nil && uint64(m.locks.len()) >= limits.MaxLocks:
		return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_locks: %d locks exist", m.locks.len()))
	case !free && l.waiters >= limits.MaxWaitersPerLock:
		return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_waiters_per_lock: %d wait for it", l.waiters))
	}
	return nil
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
	m.leave(s, c)
	m.emitClaim(wire.Event_RELEASED, c)
	for _, w := range c.wants {
		m.settle(w.name)
	}
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
		return m.resultOf(s.id, o)
	}
	if ok {
		c, _ := m.claims.get(o.holdID)
		return m.endWait(s, c, wire.Status_CANCELLED)
	}
	if c := m.holdOfRequest(s.id, op.GetAcquireSeq()); c != nil {
		return &wire.Result{Status: wire.Status_GRANTED, Revision: c.grantedRevision, HoldId: c.id, Token: c.token}
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
		return &wire.Result{Status: wire.Status_GRANTED, Revision: c.grantedRevision, HoldId: c.id, Token: c.token}
	}
	if c.waitForever {
		return answer(wire.Status_FAILED_PRECONDITION, "the request waits without bound")
	}
	s, _ := m.editSession(c.session)
	return m.endWait(s, c, wire.Status_TIMEOUT)
}

// endWait ends a wait without a grant. Others behind it may be next now.
func (m *Machine) endWait(s *session, c *claim, status wire.Status_Code) *wire.Result {
	m.leave(s, c)
	o := m.conclude(s, c, status)
	m.emitCancelled(c, status)
	for _, w := range c.wants {
		m.settle(w.name)
	}
	return m.resultOf(s.id, o)
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
	c.value = op.Value
	return answer(wire.Status_OK, "")
}
