package fsm

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxAgain bounds the acquires that a hold counts beyond its first.
const maxAgain = 1<<31 - 1

func notHeld() *wire.Result { return answer(wire.Status_NOT_HELD, "") }

// covers reports whether a hold in one mode satisfies a request for the other.
func covers(held, asked wire.Mode) bool {
	return held == asked || held == wire.Mode_EXCLUSIVE
}

// again counts one more acquire of a hold. The hold stays the same, so only the budgets limit it.
func (m *Machine) again(c *claim) *wire.Result {
	if c.count() > maxAgain {
		return answer(wire.Status_RESOURCE_EXHAUSTED, "the hold counts too many acquires")
	}
	s, _ := m.editSession(c.session)
	if refusal := m.short(s, extraUnits+2*outcomeUnits); refusal != nil {
		return refusal
	}
	c, _ = m.editClaim(c.id)
	before := c.units()
	c.vary().again++
	m.recharge(s, c, before)
	return m.granted(c)
}

// release ends a hold, or one of the acquires that it counts. Releasing a hold again that has ended is
// answered OK: for a retry, because its request is remembered; for a new request, as long as the outcome
// of the first release is remembered, that is until the client has acknowledged it.
func (m *Machine) release(s *session, op *wire.Release) *wire.Result {
	c := m.holdOf(s, op.GetHoldId(), op.GetToken())
	if c == nil {
		if m.released(s, op.GetHoldId(), op.GetToken()) {
			return &wire.Result{Status: wire.Status_OK, HoldId: op.HoldId, Token: op.Token}
		}
		return notHeld()
	}
	done := m.results.next(m.left)
	done.Status, done.HoldId, done.Token, done.Count = wire.Status_OK, c.id, op.GetToken(), c.count()-1
	if done.Count > 0 {
		c, _ = m.editClaim(c.id)
		before := c.units()
		c.vary().again--
		c.trim()
		m.recharge(s, c, before)
	} else {
		m.endHold(s, c, ending{what: wire.Event_RELEASED})
	}
	return done
}

// ending describes how a hold ends.
type ending struct {
	what wire.Event_Type
	// status is that of EXPIRED, reason that of FORCED.
	status wire.Status_Code
	reason string
	// noDelay skips the lock-delay.
	noDelay bool
	// upgrade is the status that a wait to become exclusive ends with; 0 means NOT_HELD.
	upgrade wire.Status_Code
}

// why returns the reason for the answer to an upgrade whose hold has ended.
func (e ending) why() string {
	switch e.what {
	case wire.Event_RELEASED:
		return "the hold was released"
	case wire.Event_FORCED:
		return "the hold was forced away: " + shortened(e.reason)
	}
	return "the hold's max_hold passed"
}

// endHold ends a hold. Unless the holder released it, its lock-delay may follow; otherwise the room it
// leaves is granted to waiters.
func (m *Machine) endHold(s *session, c *claim, how ending) {
	if c.upgrading() {
		c, _ = m.editClaim(c.id)
		m.abortUpgrade(s, c, how)
	}
	m.part(s, c)
	e := m.emitClaim(how.what, c)
	e.Status, e.Reason = how.status, how.reason
	if how.what != wire.Event_RELEASED && !how.noDelay && c.options().lockDelayMs > 0 {
		m.beginDelay(c)
	} else {
		m.remove(c)
	}
}

// holdOf returns the session's hold with that id and token, or nil.
func (m *Machine) holdOf(s *session, id, token uint64) *claim {
	if c := m.holdBy(id, token); c != nil && c.session == s.id {
		return c
	}
	return nil
}

// holdBy returns any session's hold with that id and token, or nil.
func (m *Machine) holdBy(id, token uint64) *claim {
	c, ok := m.claims.get(id)
	if !ok || !c.held() || !c.hasToken(token) {
		return nil
	}
	return c
}

// released reports whether the window contains the final release of a hold. No other request ends with
// OK, a hold and a token. The search is bounded by the size of the window, and only a release that found
// no hold needs it.
func (m *Machine) released(s *session, id, token uint64) bool {
	return token != 0 && slices.ContainsFunc(s.remembered(), func(o outcome) bool {
		return o.status == wire.Status_OK && o.holdID == id && o.token == token && o.count == 0
	})
}

// setValue replaces the value of a hold, which everybody may read.
func (m *Machine) setValue(s *session, op *wire.SetValue) *wire.Result {
	if m.holdOf(s, op.GetHoldId(), op.GetToken()) == nil {
		return notHeld()
	}
	c, _ := m.claims.get(op.HoldId)
	if refusal := notCached(c, "has no value"); refusal != nil {
		return refusal
	}
	if refusal := m.noRoomForValue(s, c, op.Value); refusal != nil {
		return refusal
	}
	c, _ = m.editClaim(op.HoldId)
	before := c.units()
	c.vary().value = op.Value
	c.trim()
	m.recharge(s, c, before)
	if wants := c.wants(); len(wants) == 1 {
		m.owners.put(c.ownerRowOf(wants[0])) // the ownerRow would keep the old value alive
	}
	m.emitClaim(wire.Event_VALUE_SET, c)
	return answer(wire.Status_OK, "")
}

// noRoomForValue refuses a value that exceeds a budget. A value smaller than the present one is refused
// only if not even its outcome fits.
func (m *Machine) noRoomForValue(s *session, c *claim, value []byte) *wire.Result {
	grows := textUnits(len(value)) + outcomeUnits
	if e := c.extra(); e == nil || !e.special() {
		grows += extraUnits
	}
	was := len(c.options().value)
	switch had := textUnits(was); {
	case grows <= had:
		return nil
	case m.windowFull(s):
		return m.fullWindow(s)
	case len(value) < was:
		return m.shortWithReserve(s, grows-had, 0)
	default:
		return m.short(s, grows-had)
	}
}
