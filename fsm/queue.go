package fsm

import (
	"github.com/quorumlock/quorumlock/transport/wire"
)

// beginLock creates a lock.
func (m *Machine) beginLock(request *wire.LockRequest, unfair bool) *lock {
	m.state.lastLock++
	l := &lock{
		lockKey:    lockKey{m.state.lastLock, request.Name},
		contention: noContention,
		unfair:     unfair,
	}
	if request.Limit > 0 {
		l.vary().limit = uint32(request.Limit)
	}
	m.locks.put(l)
	return l
}

// newClaim creates a claim for the requested locks. It neither holds nor waits yet.
func (m *Machine) newClaim(s *session, seq uint64, op *wire.Acquire, cached *wire.AcquireCached) *claim {
	c := &claim{
		id:          m.state.revision,
		session:     s.id,
		owner:       op.Owner,
		seq:         seq,
		since:       m.wall,
		waitMs:      op.WaitMs,
		waitForever: op.WaitForever,
	}
	m.made(c)
	if special(op) || cached != nil {
		*c.vary() = extraOf(op, cached)
	}
	wants := c.wants()
	for i, request := range op.Locks {
		if m.asked[i] == nil {
			m.asked[i] = m.beginLock(request, op.Order == wire.Order_UNFAIR)
		} else {
			m.asked[i] = m.locks.edit(m.asked[i])
		}
		wants[i] = wanted(request)
		wants[i].lock = m.asked[i]
		m.owners.put(c.ownerRowOf(wants[i]))
	}
	m.claims.put(c)
	m.charge(s, c.units())
	m.countNames(s, wants, true)
	s.further += uint64(len(wants)) - 1
	return c
}

// special reports whether the claim of an acquire needs options.
func special(op *wire.Acquire) bool {
	return len(op.Locks) > 1 || len(op.Value) > 0 || op.MaxHoldMs|op.LockDelayMs != 0 || op.Notify || op.AllowDeadlock
}

func extraOf(op *wire.Acquire, cached *wire.AcquireCached) extra {
	e := extra{
		tokens:        cached.GetTokens(),
		idleMs:        cached.GetIdleMs(),
		value:         op.Value,
		maxHoldMs:     op.MaxHoldMs,
		lockDelayMs:   op.LockDelayMs,
		notify:        op.Notify,
		allowDeadlock: op.AllowDeadlock,
	}
	if len(op.Locks) > 1 {
		e.wants = make([]want, len(op.Locks))
	}
	return e
}

// enqueue appends a claim to the queues of its locks.
func (m *Machine) enqueue(s *session, c *claim) {
	for _, w := range c.wants() {
		l := m.editLock(w.lock)
		m.queue.put(place{w.lock.id, c.id})
		l.vary().waiters++
	}
	s.waits++
	m.state.waits++
}

// dequeue removes a waiting claim from its queues.
func (m *Machine) dequeue(s *session, c *claim) {
	for _, w := range c.wants() {
		l := m.editLock(w.lock)
		m.queue.delete(place{w.lock.id, c.id})
		l.vary().waiters--
	}
	s.waits--
	m.state.waits--
}

// markChanged records that a claim's locks may have room for other claims now. grantChanged grants it at the end
// of the command.
func (m *Machine) markChanged(c *claim) {
	for _, w := range c.wants() {
		m.changed = append(m.changed, w.lock)
	}
}

// grantChanged grants every lock that the command has affected. Granting a claim for several locks changes the
// heads of its other queues, so the list may grow meanwhile. Each grant removes a claim from the queues,
// so the loop ends.
func (m *Machine) grantChanged() {
	for i := 0; i < len(m.changed); i++ {
		m.grantWaiters(m.changed[i])
	}
	m.changed = emptied(m.changed)
}

// grantWaiters grants the lock to every claim that may have it now. It deletes a lock that is neither
// occupied nor awaited.
func (m *Machine) grantWaiters(l *lock) {
	l = m.live(l)
	if l != nil && m.state.suspended == 0 {
		l = m.handOver(l)
	}
	switch {
	case l == nil:
	case !l.occupied() && !l.awaited():
		m.locks.delete(l.name)
	case l.abandoned():
		m.locks.edit(l).contention = noContention
	}
}

// handOver grants what there is room for, in the order of the queue. It returns the current
// version of the lock.
func (m *Machine) handOver(l *lock) *lock {
	if l.upgrader != 0 && l.used == 1 {
		if !m.withdrawn(l.upgrader) {
			m.finishUpgrade(l)
		}
		l = m.live(l)
	}
	for c := m.next(l); c != nil; c = m.next(l) {
		if !m.withdrawn(c.id) {
			m.grantWaiting(c)
		}
		if l = m.live(l); l == nil {
			return nil
		}
	}
	return l
}

// withdrawn cancels a wait whose turn has come if its identity has lost the right to one of its locks. It reports
// whether it did.
func (m *Machine) withdrawn(id uint64) bool {
	if m.Access().rights == nil {
		return false
	}
	c, _ := m.claims.get(id)
	s, _ := m.editSession(c.session)
	if m.mayKeep(s, c) == nil {
		return false
	}
	m.endWait(s, c, wire.Status_PERMISSION_DENIED)
	return true
}

// next returns the claim to be granted now because of this lock, or nil.
func (m *Machine) next(l *lock) *claim {
	if l.waiters == 0 || l.upgrader != 0 || l.exclusive {
		return nil
	}
	c := m.head(l)
	for _, w := range c.wants() {
		if w.lock.id == l.id && !l.fits(w) || w.lock.id != l.id && !m.ready(c, w) {
			return nil
		}
	}
	return c
}

// head returns the claim whose turn it is. For an unfair lock it is drawn.
func (m *Machine) head(l *lock) *claim {
	first, _ := m.queue.seek(place{lock: l.id})
	if l.unfair {
		first = m.queue.at(m.queue.rank(place{lock: l.id}) + m.draw(l))
	}
	c, _ := m.claims.get(first.claim)
	return c
}

// ready reports whether one of a claim's locks allows the grant: the claim is at the head of its queue
// and the lock has room.
func (m *Machine) ready(c *claim, w want) bool {
	l := m.live(w.lock)
	first, _ := m.queue.seek(place{lock: l.id})
	return first.claim == c.id && l.upgrader == 0 && l.fits(w)
}

// grantWaiting takes a claim out of its queues and grants it.
func (m *Machine) grantWaiting(c *claim) {
	c, _ = m.editClaim(c.id)
	s, _ := m.editSession(c.session)
	m.dequeue(s, c)
	if len(c.wants()) > 1 {
		m.markChanged(c)
	}
	granted := m.grant(s, c, true)
	granted.Digest = m.conclude(s, c, c.seq, wire.Status_GRANTED, "").digest
}

// grant turns a claim into a hold and returns the event that reports it.
func (m *Machine) grant(s *session, c *claim, waited bool) *wire.Event {
	m.issueToken(c)
	m.state.holds++
	s.holds++
	c.since = m.wall
	for _, w := range c.wants() {
		l := m.editLock(w.lock)
		m.addOccupant(l, c)
		l.occupy(w)
	}
	e := m.emitClaim(wire.Event_GRANTED, c)
	e.Waited, e.ByValue = waited, s.key != nil
	e.Tokens = c.cached()
	if c.bounded() {
		m.beginMaxHold(c, e)
	}
	m.listen(c)
	return e
}

// issueToken assigns the next token to a claim, and those after it to a cached hold. This is the only place where
// tokens are issued.
func (m *Machine) issueToken(c *claim) {
	if m.state.token > maxToken-c.tokens() {
		panic("the token counter is exhausted")
	}
	if m.state.revision != c.id {
		c.recordLateGrant(m.state.revision)
	}
	c.token = m.state.token + 1
	m.state.token += c.tokens()
}

// part detaches a claim from its owner and its session. What a hold occupies stays occupied.
func (m *Machine) part(s *session, c *claim) {
	for _, w := range c.wants() {
		m.owners.delete(ownerKey{c.session, c.owner, w.lock.id})
	}
	s.bytes -= c.units()
	m.editAccount(s.identity).used.Bytes -= c.units()
	m.countNames(s, c.wants(), false)
	s.further -= uint64(len(c.wants())) - 1
	if !c.held() {
		m.dequeue(s, c)
		return
	}
	if c.recalled() {
		s.recalls--
	}
	s.holds--
	m.state.holds--
}

// remove deletes a claim that was detached, so that its locks can be granted to others.
func (m *Machine) remove(c *claim) {
	if c.token != 0 {
		for _, w := range c.wants() {
			l := m.editLock(w.lock)
			m.removeOccupant(l, c)
			l.vacate(w)
			if c.phase() == delayed {
				l.vary().delays--
			}
		}
	}
	m.claims.delete(c.id)
	m.state.bytes -= c.units() + c.revocationUnits()
	m.markChanged(c)
}

// position returns a waiting claim's place in the queue of its first lock; 1 is next. A claim that waits
// to upgrade is ahead of the queue.
func (m *Machine) position(c *claim) uint64 {
	if c.phase() != waiting {
		return 1
	}
	return m.placeIn(c, c.wants()[0].lock)
}

// placeIn returns a waiting claim's place in the queue of one of its locks; 1 is next.
func (m *Machine) placeIn(c *claim, l *lock) uint64 {
	before := m.queue.rank(place{l.id, c.id}) - m.queue.rank(place{l.id, 0})
	return m.live(l).ahead() + uint64(before) + 1
}

// emitClaim emits an event about a claim.
func (m *Machine) emitClaim(what wire.Event_Type, c *claim) *wire.Event {
	wants := c.wants()
	e := m.happened.next(m.left)
	*e = wire.Event{
		Type:      what,
		Lock:      wants[0].lock.name,
		SessionId: c.session,
		Owner:     c.owner,
		Seq:       c.seq,
		HoldId:    c.id,
		Token:     c.token,
		Locks:     names(wants),
		Mode:      wants[0].mode,
		Permits:   uint64(wants[0].permits),
	}
	m.emit(e)
	return e
}

// names returns the names of several locks; nil for one.
func names(wants []want) []string {
	if len(wants) == 1 {
		return nil
	}
	all := make([]string, len(wants))
	for i, w := range wants {
		all[i] = w.lock.name
	}
	return all
}

func (m *Machine) emitCancelled(c *claim, why wire.Status_Code) *wire.Event {
	e := m.emitClaim(wire.Event_CANCELLED, c)
	e.Status = why
	return e
}
