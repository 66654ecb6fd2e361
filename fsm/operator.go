package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// forceRelease ends a hold for an operator if both its id and its token match.
func (m *Machine) forceRelease(op *wire.ForceRelease) *wire.Result {
	c := m.holdBy(op.GetHoldId(), op.GetToken())
	if c == nil {
		return notHeld()
	}
	if refusal := m.mayOperate(c); refusal != nil {
		return refusal
	}
	m.recordAbout(c, &wire.AuditRecord{Action: wire.AuditRecord_FORCE_RELEASE, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket})
	m.takeHold(c, ending{what: wire.Event_FORCED, reason: op.Reason})
	return answer(wire.Status_OK, "")
}

// revoke asks the holder to give a hold back. A grace period keeps running whatever later revocations
// say, unless they set another one. It never extends the hold: the max_hold keeps running beside it.
func (m *Machine) revoke(op *wire.Revoke) *wire.Result {
	c := m.holdBy(op.GetHoldId(), op.GetToken())
	if c == nil {
		return notHeld()
	}
	if refusal := m.mayOperate(c); refusal != nil {
		return refusal
	}
	if c.revocationUnits() == 0 {
		if refusal := m.stateExhausted(revocationUnits, 0); refusal != nil {
			return refusal
		}
		m.state.bytes += revocationUnits
	}
	c, _ = m.editClaim(c.id)
	grace := op.GraceMs
	if grace == 0 {
		grace = c.options().revocation.GetGraceMs()
	}
	c.vary().revocation = &wire.Revocation{Reason: op.Reason, GraceMs: grace, RevokedUnixMs: m.wall}
	e := m.emitClaim(wire.Event_REVOKED, c)
	e.Reason = op.Reason
	if op.GraceMs > 0 {
		m.beginGrace(c, e)
	}
	m.recordAbout(c, &wire.AuditRecord{Action: wire.AuditRecord_REVOKE, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket})
	return answer(wire.Status_OK, "")
}

// skipDelay ends lock-delays of a lock early. Other locks that they close stay closed.
func (m *Machine) skipDelay(op *wire.SkipDelay) *wire.Result {
	if refusal := m.mayOperateLock(op.GetName()); refusal != nil {
		return refusal
	}
	delays := m.delaysOf(op.GetName(), op.GetHoldId())
	if len(delays) == 0 {
		return answer(wire.Status_NOT_FOUND, "no such lock-delay")
	}
	act := &wire.AuditRecord{Action: wire.AuditRecord_SKIP_DELAY, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket, Lock: op.Name}
	if c := delays[0]; op.HoldId != 0 {
		act.HoldId, act.Token, act.SessionId = c.id, c.token, c.session
	}
	m.record(act)
	l, _ := m.locks.get(op.Name)
	for _, c := range delays {
		m.openOne(c, l)
	}
	return answer(wire.Status_OK, "")
}

// delaysOf returns the lock-delays that keep a lock closed, by token: all of them, or that of one hold.
func (m *Machine) delaysOf(name string, hold uint64) (delays []*claim) {
	l, ok := m.locks.get(name)
	if !ok {
		return nil
	}
	m.eachOccupant(l, func(c *claim) bool {
		if c.phase() == delayed && (hold == 0 || hold == c.id) {
			delays = append(delays, c)
		}
		return true
	})
	return delays
}

// resize changes the limit of a semaphore in use. Holds stay; after shrinking, nothing is granted until
// enough permits have been released.
func (m *Machine) resize(op *wire.Resize) *wire.Result {
	if refusal := m.mayOperateLock(op.GetName()); refusal != nil {
		return refusal
	}
	l, ok := m.locks.get(op.GetName())
	if !ok || l.limit == 0 {
		return answer(wire.Status_NOT_FOUND, "no such semaphore is in use")
	}
	if c := m.waitsForMore(l, op.Limit); c != nil {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("wait %d is for %d permits: it would never end", c.id, c.wantOf(l.id).permits))
	}
	l = m.locks.edit(l)
	l.vary().limit = uint32(op.Limit)
	m.emit(&wire.Event{Type: wire.Event_RESIZED, Lock: l.name, Limit: op.Limit})
	m.record(&wire.AuditRecord{Action: wire.AuditRecord_RESIZE, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket, Lock: l.name, Limit: op.Limit})
	m.changed = append(m.changed, l)
	return answer(wire.Status_OK, "")
}

// forceClose ends a session, or those of an identity, for an operator, with all their holds and waits.
func (m *Machine) forceClose(op *wire.ForceClose) *wire.Result {
	if op.GetIdentity() != "" {
		return m.forceCloseAll(op)
	}
	s, ok := m.editSession(op.GetSessionId())
	if !ok {
		return noSession()
	}
	if refusal := m.mayEnd(s); refusal != nil {
		return refusal
	}
	m.record(&wire.AuditRecord{Action: wire.AuditRecord_FORCE_CLOSE, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket, SessionId: s.id, ClientName: shortened(s.client.GetName())})
	m.endSession(s, wire.Event_SESSION_CLOSED, ending{what: wire.Event_FORCED, reason: op.Reason})
	return answer(wire.Status_OK, "")
}

// forceCloseAll ends the sessions of an identity.
func (m *Machine) forceCloseAll(op *wire.ForceClose) *wire.Result {
	if !m.callerGrants().OnAllLocks(wire.Verb_OPERATE) {
		return answer(wire.Status_PERMISSION_DENIED, fmt.Sprintf("the policy gives %q no role with operate on all locks", m.caller.GetIdentity()))
	}
	m.record(&wire.AuditRecord{Action: wire.AuditRecord_FORCE_CLOSE, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket, Identity: op.Identity})
	m.closeSessionsOf(map[string]bool{op.Identity: true}, op.Reason)
	return answer(wire.Status_OK, "")
}

func noSession() *wire.Result { return answer(wire.Status_NOT_FOUND, "no such session") }

// waitsForMore returns the first claim in a queue that wants more permits than limit, or nil.
func (m *Machine) waitsForMore(l *lock, limit uint64) (found *claim) {
	m.queue.each(place{lock: l.id}, func(at place) bool {
		if at.lock != l.id {
			return false
		}
		if c, _ := m.claims.get(at.claim); c.wantOf(l.id).weight() > limit {
			found = c
		}
		return found == nil
	})
	return found
}
