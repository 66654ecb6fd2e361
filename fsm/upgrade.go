package fsm

import (
	"cmp"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// upgrade makes a shared hold exclusive, immediately or ahead of all waiters.
func (m *Machine) upgrade(s *session, seq uint64, op *wire.Upgrade) *wire.Result {
	c := m.holdOf(s, op.GetHoldId(), op.GetToken())
	if c == nil {
		return answer(wire.Status_NOT_HELD, "the hold has ended, or has another token")
	}
	if refusal := oneMode(c); refusal != nil {
		return refusal
	}
	if c.one[0].mode == wire.Mode_EXCLUSIVE {
		return m.granted(c)
	}
	l := m.editLock(c.one[0].lock)
	switch {
	case l.upgrader == c.id:
		return answer(wire.Status_ALREADY_QUEUED, "the hold waits for its upgrade already, under another request")
	case l.upgrader != 0:
		return answer(wire.Status_UPGRADE_CONFLICT, "another holder waits to upgrade: both would wait for ever, so release and acquire it exclusively")
	case l.used == 1:
		if refusal := m.short(s, 2*outcomeUnits); refusal != nil {
			return refusal
		}
		c, _ = m.editClaim(c.id)
		m.becomeExclusive(s, c, l, seq)
		return m.granted(c)
	case op.WaitMs == 0 && !op.WaitForever:
		return &wire.Result{Status: wire.Status_NOT_ACQUIRED, Holders: m.holdersOf(l, maxReportedHolders)}
	}
	if refusal := cmp.Or(m.fullSession(s, 1), m.claimsOverQuota(s, []*wire.LockRequest{{Name: l.name}}, 0)); refusal != nil {
		return refusal
	}
	if refusal := m.short(s, extraUnits+upgradeUnits+outcomeUnits); refusal != nil {
		return refusal
	}
	c, _ = m.editClaim(c.id)
	return m.waitToUpgrade(s, c, l, seq, op)
}

// oneMode refuses to change the mode of several locks or of permits.
func oneMode(c *claim) *wire.Result {
	if wants := c.wants(); len(wants) > 1 || wants[0].mode == wire.Mode_PERMITS {
		return invalid("only a hold of one lock with modes can change its mode")
	}
	return nil
}

// waitToUpgrade lets a hold wait until it is the only one. Until then it stays shared under its token,
// and nothing else is granted the lock.
func (m *Machine) waitToUpgrade(s *session, c *claim, l *lock, seq uint64, op *wire.Upgrade) *wire.Result {
	u := &upgrade{seq: seq, waitMs: op.WaitMs, waitForever: op.WaitForever, allowDeadlock: op.AllowDeadlock, queued: m.wall}
	before := c.units()
	c.vary().upgrade = u
	m.recharge(s, c, before)
	l.vary().upgrader = c.id
	m.upgrades.put(place{l.id, c.id})
	s.waits++
	m.state.waits++
	m.countNames(s, c.one[:], true)
	if !op.AllowDeadlock {
		if cycle := m.closesCycle(s, c); cycle != nil {
			m.forgetUpgrade(s, c, l)
			return deadlock(cycle)
		}
	}
	c.vary().upgrades++
	e := m.emitUpgrade(wire.Event_QUEUED, c, seq)
	e.Generation, e.WaitMs, e.WaitForever = c.generation(), u.waitMs, u.waitForever
	m.notifyHolders(c)
	return m.queued(c, 1)
}

func (m *Machine) forgetUpgrade(s *session, c *claim, l *lock) {
	before := c.units()
	c.vary().upgrade = nil
	c.trim()
	m.recharge(s, c, before)
	l.vary().upgrader = 0
	m.upgrades.delete(place{l.id, c.id})
	s.waits--
	m.state.waits--
	m.countNames(s, c.one[:], false)
}

// endUpgrade ends a hold's wait to become exclusive without a grant. The hold stays shared, and the lock
// is settled for the claims behind it.
func (m *Machine) endUpgrade(s *session, c *claim, status wire.Status_Code, why string) outcome {
	seq := c.extra().upgrade.seq
	l := m.editLock(c.one[0].lock)
	m.forgetUpgrade(s, c, l)
	m.markChanged(c)
	e := m.emitUpgrade(wire.Event_CANCELLED, c, seq)
	o := m.conclude(s, c, seq, status, why)
	e.Status, e.Reason, e.Digest = status, why, o.digest
	return o
}

// abortUpgrade ends the wait to become exclusive of a hold that is ending.
func (m *Machine) abortUpgrade(s *session, c *claim, how ending) {
	if how.upgrade != wire.Status_UNSPECIFIED {
		m.endUpgrade(s, c, how.upgrade, "")
		return
	}
	m.endUpgrade(s, c, wire.Status_NOT_HELD, how.why())
}

// finishUpgrade grants an upgrade that a hold has waited for.
func (m *Machine) finishUpgrade(l *lock) {
	c, _ := m.editClaim(l.upgrader)
	s, _ := m.editSession(c.session)
	l = m.editLock(l)
	seq := c.extra().upgrade.seq
	m.forgetUpgrade(s, c, l)
	e := m.becomeExclusive(s, c, l, seq)
	e.Waited, e.Digest = true, m.conclude(s, c, seq, wire.Status_GRANTED, "").digest
}

// becomeExclusive makes the only holder of a lock exclusive under a new token, and returns the event that
// reports it. The hold's own deadline continues.
func (m *Machine) becomeExclusive(s *session, c *claim, l *lock, seq uint64) *wire.Event {
	w := &c.one[0]
	m.removeOccupant(l, c)
	l.vacate(*w)
	before := c.units()
	w.mode = wire.Mode_EXCLUSIVE
	m.recharge(s, c, before)
	m.issueToken(c)
	m.addOccupant(l, c)
	l.occupy(*w)
	return m.emitUpgrade(wire.Event_GRANTED, c, seq)
}

// downgrade makes an exclusive hold shared, under the same token.
func (m *Machine) downgrade(s *session, op *wire.Downgrade) *wire.Result {
	c := m.holdOf(s, op.GetHoldId(), op.GetToken())
	if c == nil {
		return notHeld()
	}
	if refusal := cmp.Or(oneMode(c), notCached(c, "cannot be downgraded")); refusal != nil {
		return refusal
	}
	if c.one[0].mode == wire.Mode_SHARED {
		return answer(wire.Status_OK, "")
	}
	c, _ = m.editClaim(c.id)
	l := m.editLock(c.one[0].lock)
	l.vacate(c.one[0])
	before := c.units()
	c.one[0].mode = wire.Mode_SHARED
	m.recharge(s, c, before)
	l.occupy(c.one[0])
	m.markChanged(c)
	m.emitClaim(wire.Event_DOWNGRADED, c)
	return answer(wire.Status_OK, "")
}

// emitUpgrade emits an event about an upgrade, which has a sequence number of its own.
func (m *Machine) emitUpgrade(what wire.Event_Type, c *claim, seq uint64) *wire.Event {
	e := m.emitClaim(what, c)
	e.Seq, e.Upgrade = seq, true
	return e
}
