package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// listen notifies a new hold that has asked for it if others wait already. If none do, its locks remember
// that a holder listens.
func (m *Machine) listen(c *claim) {
	if c.extra() == nil || !c.extra().asksNotice() {
		return
	}
	for _, w := range c.wants() {
		if l := m.live(w.lock); l.awaited() {
			m.notify(c)
			return
		}
	}
	for _, w := range c.wants() {
		l := m.editLock(w.lock)
		l.listening = true
	}
}

// notifyHolders notifies the holders of the locks that a claim waits for, if they have asked for it and
// were not notified yet. A hold is notified once, so the holders are searched at most once for each hold
// that asked, however many claims come to wait.
func (m *Machine) notifyHolders(waiter *claim) {
	for _, w := range waiter.wants() {
		if l := m.live(w.lock); l.listening {
			l = m.locks.edit(l)
			l.listening = m.notifyAll(l, waiter)
		}
	}
}

// notifyAll reports whether a listening hold is left. That can only be the waiter itself, because a hold
// that waits to upgrade is not notified of its own wait.
func (m *Machine) notifyAll(l *lock, waiter *claim) (left bool) {
	m.eachOccupant(l, func(c *claim) bool {
		switch {
		case !c.listens():
		case c.id == waiter.id:
			left = true
		default:
			c, _ = m.editClaim(c.id)
			m.notify(c)
		}
		return true
	})
	return left
}

// listens reports whether the hold must be notified of the next waiter.
func (c *claim) listens() bool {
	return c.held() && c.extra() != nil && c.extra().asksNotice() && !c.extra().wanted
}

// asksNotice reports whether the holder is notified of the first waiter.
func (e *extra) asksNotice() bool { return e.notify || e.tokens > 0 }

// notify notifies a holder that others wait. The max_hold of a cached hold begins with that: see bounded.
func (m *Machine) notify(c *claim) {
	c.vary().wanted = true
	e := m.emitClaim(wire.Event_WANTED, c)
	if !c.isCached() {
		return
	}
	s, _ := m.editSession(c.session)
	s.recalls++
	if own := c.extra(); own.maxHoldMs > 0 && own.holdGeneration == 0 {
		m.beginMaxHold(c, e)
	}
}
