package fsm

import (
	"github.com/quorumlock/quorumlock/transport/wire"
)

// wait queues a claim, unless that would close a cycle of owners that wait for each other.
func (m *Machine) wait(s *session, c *claim) *wire.Result {
	m.enqueue(s, c)
	if !c.options().allowDeadlock {
		if cycle := m.closesCycle(s, c); cycle != nil {
			m.part(s, c)
			m.remove(c)
			return deadlock(cycle)
		}
	}
	e := m.emitClaim(wire.Event_QUEUED, c)
	e.Generation, e.WaitMs, e.WaitForever = c.generation(), c.waitMs, c.waitForever
	m.notifyHolders(c)
	l := m.live(c.wants()[0].lock)
	return m.queued(c, l.ahead()+uint64(l.waiters))
}

// queued returns the answer for a wait at that position.
func (m *Machine) queued(c *claim, position uint64) *wire.Result {
	r := m.results.next(m.left)
	r.Status, r.HoldId, r.Position, r.Holders = wire.Status_QUEUED, c.id, position, m.inTheWay(c)
	return r
}

// inTheWay returns the holders of the first of a waiting claim's locks that is occupied.
func (m *Machine) inTheWay(c *claim) []*wire.HolderInfo {
	for _, w := range c.wants() {
		if l := m.live(w.lock); l.occupied() {
			return m.holdersOf(l, maxReportedHolders)
		}
	}
	return nil
}

// deadlock returns the refusal of a wait that would close a cycle. The caller has undone the request.
func deadlock(cycle []*wire.DeadlockStep) *wire.Result {
	return &wire.Result{Status: wire.Status_DEADLOCK, Message: DescribeCycle(cycle), Cycle: cycle}
}

// cancel ends the wait of an earlier request, unless it was granted first.
func (m *Machine) cancel(s *session, op *wire.Cancel) *wire.Result {
	o, ok := s.outcome(op.GetAcquireSeq())
	if ok && o.final() {
		return m.present(o)
	}
	if ok {
		c, _ := m.claims.get(o.holdID)
		return m.endWait(s, c, wire.Status_CANCELLED)
	}
	return answer(wire.Status_NOT_FOUND, "no such request is remembered")
}

// timeoutWait ends a wait whose deadline has passed, unless it was granted first or the deadline is outdated.
func (m *Machine) timeoutWait(op *wire.TimeoutWait) *wire.Result {
	c, ok := m.claims.get(op.GetWaitId())
	if !ok || c.phase() == delayed {
		return answer(wire.Status_NOT_FOUND, "no such wait")
	}
	if refusal := m.outdated(op.Term, op.Generation, c.generation()); refusal != nil {
		return refusal
	}
	forever := c.waitForever
	switch {
	case c.upgrading():
		forever = c.extra().upgrade.waitForever
	case c.held():
		return m.granted(c)
	}
	if forever {
		return answer(wire.Status_FAILED_PRECONDITION, "the request waits without bound")
	}
	s, _ := m.editSession(c.session)
	return m.endWait(s, c, wire.Status_TIMEOUT)
}

// endWait ends a wait without a grant: that for a lock, or that for an upgrade, which leaves the shared
// hold as it is.
func (m *Machine) endWait(s *session, c *claim, status wire.Status_Code) *wire.Result {
	if c.upgrading() {
		c, _ = m.editClaim(c.id)
		return m.present(m.endUpgrade(s, c, status, ""))
	}
	m.part(s, c)
	m.remove(c)
	o := m.conclude(s, c, c.seq, status, "")
	m.emitCancelled(c, status).Digest = o.digest
	m.closeLease(s)
	return m.present(o)
}
