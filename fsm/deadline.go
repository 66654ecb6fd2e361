package fsm

import (
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A hold has up to two deadlines, each with its own generation: that of its max_hold and that of a
// revocation's grace. Whichever passes first ends the hold.

// beginMaxHold restarts the deadline of a hold's max_hold and adds it to the event.
func (m *Machine) beginMaxHold(c *claim, e *wire.Event) {
	own := c.vary()
	own.holdGeneration++
	e.MaxHoldMs, e.Generation = own.maxHoldMs, own.holdGeneration
}

// bounded reports whether the deadline of a hold's max_hold runs. That of a cached hold begins when its session is
// notified that others wait, because its session counts max_hold for each of the local holders, or when the session
// extends it.
func (c *claim) bounded() bool {
	e := c.extra()
	return e != nil && e.maxHoldMs > 0 && (e.tokens == 0 || e.wanted || e.holdGeneration > 0)
}

// beginGrace restarts the deadline of a revocation's grace and adds it to the event.
func (m *Machine) beginGrace(c *claim, e *wire.Event) {
	own := c.vary()
	own.graceGeneration++
	e.MaxHoldMs, e.Generation = own.revocation.GraceMs, own.graceGeneration
}

// extend restarts a hold's max_hold, optionally with another length.
func (m *Machine) extend(s *session, op *wire.Extend) *wire.Result {
	c := m.holdOf(s, op.GetHoldId(), op.GetToken())
	if c == nil {
		return notHeld()
	}
	own := c.options()
	switch {
	case own.revocation.GetGraceMs() > 0:
		return answer(wire.Status_FAILED_PRECONDITION, "an operator has revoked the hold: its grace cannot be extended")
	case own.maxHoldMs == 0 && op.MaxHoldMs == 0:
		return answer(wire.Status_FAILED_PRECONDITION, "the hold has no max_hold: give one")
	}
	if refusal := m.short(s, extraUnits+outcomeUnits); refusal != nil {
		return refusal
	}
	c, _ = m.editClaim(c.id)
	before := c.units()
	if op.MaxHoldMs > 0 {
		c.vary().maxHoldMs = op.MaxHoldMs
	}
	m.recharge(s, c, before)
	m.beginMaxHold(c, m.emitClaim(wire.Event_EXTENDED, c))
	return answer(wire.Status_OK, "")
}

// expireHold ends a hold whose deadline has passed, unless the deadline is outdated.
func (m *Machine) expireHold(op *wire.ExpireHold) *wire.Result {
	c, ok := m.claims.get(op.GetHoldId())
	if !ok || !c.held() {
		return answer(wire.Status_NOT_FOUND, "no such hold")
	}
	own := c.options()
	generation, how := own.holdGeneration, ending{what: wire.Event_EXPIRED, status: wire.Status_TIMEOUT}
	if op.Grace {
		generation, how = own.graceGeneration, ending{what: wire.Event_FORCED, reason: own.revocation.GetReason()}
	}
	if generation == 0 {
		return answer(wire.Status_FAILED_PRECONDITION, "the hold has no such deadline")
	}
	if refusal := m.outdated(op.Term, op.Generation, generation); refusal != nil {
		return refusal
	}
	m.takeHold(c, how)
	return answer(wire.Status_OK, "")
}

// takeHold ends a hold against its holder's will. A lease ends with its hold.
func (m *Machine) takeHold(c *claim, how ending) {
	s, _ := m.editSession(c.session)
	m.endHold(s, c, how)
	m.closeLease(s)
}

// beginDelay keeps closed what a hold occupied, although nobody holds it any more.
func (m *Machine) beginDelay(c *claim) {
	c, _ = m.editClaim(c.id)
	before := c.units()
	own := c.vary()
	own.delayGeneration, own.delayed = 1, m.wall
	own.again = 0 // only a hold counts acquires
	m.state.bytes -= before - c.units()
	for _, w := range c.wants() {
		m.editLock(w.lock).vary().delays++
	}
	e := m.emitClaim(wire.Event_DELAYED, c)
	e.LockDelayMs, e.Generation = own.lockDelayMs, own.delayGeneration
}

// endDelay ends a lock-delay whose deadline has passed, unless the deadline is outdated.
func (m *Machine) endDelay(op *wire.EndDelay) *wire.Result {
	c, ok := m.claims.get(op.GetHoldId())
	if !ok || c.phase() != delayed {
		return answer(wire.Status_NOT_FOUND, "no such lock-delay")
	}
	if refusal := m.outdated(op.Term, op.Generation, c.extra().delayGeneration); refusal != nil {
		return refusal
	}
	m.open(c)
	return answer(wire.Status_OK, "")
}

// open ends a lock-delay.
func (m *Machine) open(c *claim) {
	m.remove(c)
	m.emitClaim(wire.Event_DELAY_ENDED, c)
}

// openOne ends a lock-delay for one of its locks. For the others it continues until its deadline.
func (m *Machine) openOne(c *claim, l *lock) {
	if len(c.wants()) == 1 {
		m.open(c)
		return
	}
	e := m.emitClaim(wire.Event_DELAY_ENDED, c)
	opened := c.wantOf(l.id)
	e.Lock, e.Locks, e.Mode, e.Permits, e.Partial = l.name, nil, opened.mode, uint64(opened.permits), true
	l = m.editLock(l)
	m.removeOccupant(l, c)
	l.vacate(opened)
	l.vary().delays--
	m.changed = append(m.changed, l)
	c, _ = m.editClaim(c.id)
	before := c.units()
	c.drop(l.id)
	m.state.bytes -= before - c.units()
}

// HoldDeadline is a deadline of a hold, for the leader's timers.
type HoldDeadline struct {
	HoldID, SessionID uint64
	// Generation is the generation of the deadline; an expiry must name it.
	Generation uint64
	// Ms is the length of the max_hold or, with Grace, of the revocation's grace, in milliseconds.
	Ms    uint32
	Grace bool
}

// EachHoldDeadline calls fn for every deadline of the holds, in the order of their ids, until fn returns
// false. The max_hold of a hold comes before the grace of its revocation.
func (m *Machine) EachHoldDeadline(fn func(HoldDeadline) bool) {
	m.claims.each(0, func(c *claim) bool {
		e := c.extra()
		if e == nil || !c.held() {
			return true
		}
		if e.holdGeneration > 0 && !fn(HoldDeadline{c.id, c.session, e.holdGeneration, e.maxHoldMs, false}) {
			return false
		}
		return e.graceGeneration == 0 || fn(HoldDeadline{c.id, c.session, e.graceGeneration, e.revocation.GetGraceMs(), true})
	})
}

// Delay is a lock-delay, for the leader's timers.
type Delay struct {
	HoldID uint64
	// Generation is the generation of the deadline; the command that ends the delay must name it.
	Generation uint64
	Ms         uint32
}

// EachDelay calls fn for every lock-delay, in the order of the hold ids, until fn returns false.
func (m *Machine) EachDelay(fn func(Delay) bool) {
	m.claims.each(0, func(c *claim) bool {
		if c.phase() != delayed {
			return true
		}
		return fn(Delay{c.id, c.extra().delayGeneration, c.extra().lockDelayMs})
	})
}
