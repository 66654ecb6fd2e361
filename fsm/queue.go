package fsm

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// grantable says whether the claim at the head of the lock's queue, or a new one if
// nobody waits, may have it.
func grantable(l *lock) bool {
	return len(l.holders) == 0
}

// ensureLock returns the lock for changing; it begins to exist if it did not.
func (m *Machine) ensureLock(name string) *lock {
	if l, ok := m.editLock(name); ok {
		return l
	}
	m.state.lastLock++
	l := &lock{id: m.state.lastLock, name: name, touched: m.state.revision}
	m.locks.put(name, l)
	return l
}

// newClaim makes a claim that neither holds nor waits yet.
func (m *Machine) newClaim(s *session, seq uint64, op *wire.Acquire, l *lock) *claim {
	c := &claim{
		id:          m.state.revision,
		session:     s.id,
		owner:       op.Owner,
		seq:         seq,
		wants:       []want{{name: l.name, lock: l.id, mode: wire.Mode_EXCLUSIVE}},
		value:       op.Value,
		waitMs:      op.WaitMs,
		waitForever: op.WaitForever,
		generation:  1,
		queued:      m.wall,
		order:       m.state.revision,
		touched:     m.state.revision,
	}
	m.claims.put(c.id, c)
	for _, w := range c.wants {
		m.owners.put(ownerKey{c.session, c.owner, w.lock}, c.id)
	}
	return c
}

// enqueue puts a claim behind all that wait for the lock.
func (m *Machine) enqueue(s *session, c *claim, l *lock) {
	m.queue.put(placeKey{l.id, c.order}, c.id)
	l.waiters++
	s.waits++
	e := m.emitClaim(wire.Event_QUEUED, c)
	e.Generation, e.WaitMs, e.WaitForever = c.generation, c.waitMs, c.waitForever
}

// grant makes a claim a hold. This is the only place where tokens are minted.
func (m *Machine) grant(s *session, c *claim, l *lock, waited bool) {
	if m.state.token >= maxToken {
		panic("the token counter is exhausted")
	}
	m.state.token++
	m.state.holds++
	s.holds++
	c.token = m.state.token
	c.grantedRevision = m.state.revision
	c.granted = m.wall
	l.holders = append(slices.Clip(l.holders), c.id)
	m.emitClaim(wire.Event_GRANTED, c).Waited = waited
}

// settle brings a lock to rest after a claim has left it: whoever may hold it now is
// granted, and a lock that nobody wants is gone.
func (m *Machine) settle(name string) {
	l, ok := m.editLock(name)
	if !ok {
		return
	}
	for l.waiters > 0 && grantable(l) {
		m.grantHead(l)
	}
	if l.waiters == 0 && len(l.holders) == 0 {
		m.locks.delete(name)
	}
}

// grantHead takes the next claim out of the queue and grants it.
func (m *Machine) grantHead(l *lock) {
	place, id, _ := m.queue.seek(placeKey{lock: l.id})
	m.queue.delete(place)
	l.waiters--
	c, _ := m.editClaim(id)
	s, _ := m.editSession(c.session)
	s.waits--
	m.grant(s, c, l, true)
	m.conclude(s, c, wire.Status_GRANTED)
}

// leave takes a claim out of every table. The caller settles its locks.
func (m *Machine) leave(s *session, c *claim) {
	for _, w := range c.wants {
		l, _ := m.editLock(w.name)
		if c.held() {
			l.holders = without(l.holders, c.id)
		} else {
			m.queue.delete(placeKey{l.id, c.order})
			l.waiters--
		}
		m.owners.delete(ownerKey{c.session, c.owner, w.lock})
	}
	m.claims.delete(c.id)
	if c.held() {
		s.holds--
		m.state.holds--
	} else {
		s.waits--
	}
}

// without returns a new slice: holders are shared between versions.
func without(holders []uint64, id uint64) []uint64 {
	if len(holders) == 1 && holders[0] == id {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(holders), func(h uint64) bool { return h == id })
}

// position is a waiting claim's place in the queue of its first lock, 1 is next.
func (m *Machine) position(c *claim) uint64 {
	lock := c.wants[0].lock
	return uint64(m.queue.rank(placeKey{lock, c.order})-m.queue.rank(placeKey{lock, 0})) + 1
}

// emitClaim reports something that happened to a claim.
func (m *Machine) emitClaim(what wire.Event_Type, c *claim) *wire.Event {
	e := &wire.Event{
		Type:      what,
		Lock:      c.wants[0].name,
		SessionId: c.session,
		Owner:     c.owner,
		Seq:       c.seq,
		HoldId:    c.id,
		Token:     c.token,
	}
	m.emit(e)
	return e
}

func (m *Machine) emitCancelled(c *claim, why wire.Status_Code) {
	m.emitClaim(wire.Event_CANCELLED, c).Status = why
}
