package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// listen tells a new hold that had asked for it whether others wait already. If not,
// its locks remember that somebody listens.
func (m *Machine) listen(c *claim) {
	if c.extra() == nil || !c.extra().notify {
		return
	}
	for _, w := range c.wants() {
		if l := m.live(w.lock); l.awaited() {
			m.tell(c)
			return
		}
	}
	for _, w := range c.wants() {
		l := m.editLock(w.lock)
		l.listening = true
	}
}

// tellHolders tells those who hold what a claim waits for, had asked for it and were
// not told yet. A hold is told once, so that this looks at the holders at most once
// for each that asked, however many come to wait.
func (m *Machine) tellHolders(waiter *claim) {
	for _, w := range waiter.wants() {
		if l := m.live(w.lock); l.listening {
			l = m.locks.edit(l)
			l.listening = m.tellAll(l, waiter)
		}
	}
}

// tellAll returns whether one that listens is left: the waiter itself, for who waits
// to upgrade is no news to itself.
func (m *Machine) tellAll(l *lock, waiter *claim) (left bool) {
	m.eachSeated(l, func(c *claim) bool {
		switch {
		case !c.listens():
		case c.id == waiter.id:
			left = true
		default:
			c, _ = m.editClaim(c.id)
			m.tell(c)
		}
		return true
	})
	return left
}

// listens says that a hold is to be told of the next who waits.
func (c *claim) listens() bool {
	return c.held() && c.extra() != nil && c.extra().notify && !c.extra().wanted
}

func (m *Machine) tell(c *claim) {
	c.vary().wanted = true
	m.emitClaim(wire.Event_WANTED, c)
}
