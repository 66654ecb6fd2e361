package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxReportedHolders bounds the number of holders in the answer to an acquire.
const maxReportedHolders = 8

// acquire grants immediately, queues, or refuses. cached is nil unless the hold is to be cached.
func (m *Machine) acquire(s *session, seq uint64, op *wire.Acquire, cached *wire.AcquireCached) *wire.Result {
	var blocked *lock
	fresh := uint64(0)
	m.asked = m.asked[:0]
	for _, request := range op.Locks {
		l, ok := m.locks.get(request.Name)
		m.asked = append(m.asked, l)
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
		return &wire.Result{Status: wire.Status_NOT_ACQUIRED, Holders: m.holdersOf(blocked, maxReportedHolders)}
	}
	if refusal := m.noRoom(s, op, cached, fresh, blocked != nil); refusal != nil {
		return refusal
	}
	lastLock := m.state.lastLock
	c := m.newClaim(s, seq, op, cached)
	if blocked == nil {
		m.grant(s, c, false)
		return m.granted(c)
	}
	r := m.wait(s, c)
	if r.Status == wire.Status_DEADLOCK {
		m.state.lastLock = lastLock // the locks it created are gone again
	}
	return r
}

// known answers an acquire of an existing lock if the lock is of another kind, or if the owner already
// holds it or waits for it. It returns nil if the acquire may go on.
func (m *Machine) known(s *session, op *wire.Acquire, l *lock, request *wire.LockRequest) *wire.Result {
	if refusal := m.mismatch(s, l, request, op.Order == wire.Order_UNFAIR); refusal != nil {
		return refusal
	}
	at, ok := m.owners.get(ownerKey{s.id, op.Owner, l.id})
	if !ok {
		return nil
	}
	c, _ := m.claims.get(at.id)
	switch {
	case !c.held():
		return answer(wire.Status_ALREADY_QUEUED, fmt.Sprintf("the owner waits for %q since request %d", l.name, c.seq))
	case op.Reentrant && covers(c.wantOf(l.id).mode, wanted(request).mode):
		return m.again(c)
	}
	return answer(wire.Status_ALREADY_HELD, fmt.Sprintf("the owner holds %q since request %d", l.name, c.seq))
}

// granted returns the answer for a hold.
func (m *Machine) granted(c *claim) *wire.Result {
	r := m.results.next(m.left)
	r.Status, r.Revision, r.HoldId, r.Token, r.Count = wire.Status_GRANTED, c.grantedRevision(), c.id, c.token, c.count()
	return r
}

// noRoom refuses a claim that would exceed a limit. A try that fails anyway never reaches it.
func (m *Machine) noRoom(s *session, op *wire.Acquire, cached *wire.AcquireCached, fresh uint64, waits bool) *wire.Result {
	limits := m.state.settings
	if refusal := m.fullSession(s, len(op.Locks)); refusal != nil {
		return refusal
	}
	if fresh > 0 && uint64(m.locks.len())+fresh > limits.MaxLocks {
		return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_locks: %d locks exist", m.locks.len()))
	}
	for _, l := range m.asked {
		if waits && l != nil && uint64(l.waiters) >= limits.MaxWaitersPerLock {
			return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_waiters_per_lock: %d wait for %q", l.waiters, l.name))
		}
	}
	if refusal := m.claimsOverQuota(s, op.Locks, fresh); refusal != nil {
		return refusal
	}
	return m.short(s, acquireUnits(op, cached != nil)+outcomeUnits)
}

// claims counts a session's holds and waits, each once for every lock that it names.
func (s *session) claims() uint64 { return s.holds + s.waits + s.further }

// fullSession refuses to add so many lock names if the session would have too many.
func (m *Machine) fullSession(s *session, names int) *wire.Result {
	most := m.state.settings.MaxClaimsPerSession
	if s.claims()+uint64(names) <= most {
		return nil
	}
	return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_claims_per_session: the holds and waits of the session name %d locks, and this %d more, of %d", s.claims(), names, most))
}
