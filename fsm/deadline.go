package fsm

import (
	"github.com/quorumlock/quorumlock/transport/wire"
)

// deadlineMs is how long a hold may last from the beginning of its own deadline: the
// grace of a revocation, or else its max_hold. 0 has no deadline.
func (e extra) deadlineMs() uint32 {
	if grace := e.revocation.GetGraceMs(); grace > 0 {
		return grace
	}
	return e.maxHoldMs
}

// beginDeadline begins a hold's own deadline anew and puts it into the event.
func (m *Machine) beginDeadline(c *claim, e *wire.Event) {
	own := c.vary()
	own.holdGeneration++
	e.MaxHoldMs, e.Generation = own.deadlineMs(), own.holdGeneration
}

// extend starts a hold's max_hold anew, or another one.
func (m *Machine) extend(s *session, op *wire.Extend) *wire.Result {
	if refusal := validMaxHold(op.GetMaxHoldMs()); refusal != nil {
		return refusal
	}
	c := m.holdOf(s, op.HoldId, op.Token)
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
	c, _ = m.editClaim(c.id)
	if op.MaxHoldMs > 0 {
		c.vary().maxHoldMs = op.MaxHoldMs
	}
	m.beginDeadline(c, m.emitClaim(wire.Event_EXTENDED, c))
	return answer(wire.Status_OK, "")
}

// expireHold ends one hold by its own deadline, unless that is not the current one.
func (m *Machine) expireHold(op *wire.ExpireHold) *wire.Result {
	c, ok := m.claims.get(op.GetHoldId())
	if !ok || !c.held() {
		return answer(wire.Status_NOT_FOUND, "no such hold")
	}
	own := c.options()
	if own.deadlineMs() == 0 {
		return answer(wire.Status_FAILED_PRECONDITION, "the hold has no deadline")
	}
	if refusal := m.outdated(op.Term, op.Generation, own.holdGeneration); refusal != nil {
		return refusal
	}
	how := ending{what: wire.Event_EXPIRED, status: wire.Status_TIMEOUT}
	if own.revocation.GetGraceMs() > 0 {
		how = ending{what: wire.Event_FORCED, reason: own.revocation.Reason}
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

// beginDelay leaves what a hold occupied closed, though it is nobody's any more.
func (m *Machine) beginDelay(c *claim) {
	c, _ = m.editClaim(c.id)
	own := c.vary()
	own.delayGeneration, own.delayed = 1, m.wall
	for _, w := range c.wants() {
		m.editLock(w.lock).vary().delays++
	}
	e := m.emitClaim(wire.Event_DELAYED, c)
	e.LockDelayMs, e.Generation = own.lockDelayMs, own.delayGeneration
}

// endDelay ends a lock-delay by time, unless its deadline is not the current one.
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

// HoldDeadline is what the deadlines need of a hold that may last only so long.
type HoldDeadline struct {
	HoldID, SessionID uint64
	// Generation is that of the deadline; an expiry must name it.
	Generation uint64
	// Ms is the grace of a revocation, or the max_hold.
	Ms uint32
}

// EachHoldDeadline calls fn, by hold id, for every hold that has a deadline of its
// own, until it returns false.
func (m *Machine) EachHoldDeadline(fn func(HoldDeadline) bool) {
	m.claims.each(0, func(c *claim) bool {
		if c.extra() == nil || c.extra().deadlineMs() == 0 || !c.held() {
			return true
		}
		return fn(HoldDeadline{c.id, c.session, c.extra().holdGeneration, c.extra().deadlineMs()})
	})
}

// Delay is what the deadlines need of a lock-delay.
type Delay struct {
	HoldID uint64
	// Generation is that of the deadline; its end must name it.
	Generation uint64
	Ms         uint32
}

// EachDelay calls fn for every lock-delay, by hold id, until it returns false.
func (m *Machine) EachDelay(fn func(Delay) bool) {
	m.claims.each(0, func(c *claim) bool {
		if c.phase() != delayed {
			return true
		}
		return fn(Delay{c.id, c.extra().delayGeneration, c.extra().lockDelayMs})
	})
}
