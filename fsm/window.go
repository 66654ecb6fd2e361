package fsm

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// request executes a session's command exactly once. Its acknowledgements take effect even if it is
// refused, since they are about other requests.
func (m *Machine) request(cmd *wire.Command) *wire.Result {
	s, ok := m.editSession(cmd.SessionId)
	if !ok {
		return m.SessionLost(cmd.SessionId)
	}
	if refusal := noRequest(s); refusal != nil {
		return refusal
	}
	m.acknowledge(s, cmd.AckedBelow, cmd.Acked)
	digest := cmd.Digest()
	return m.echo(cmd, digest, m.once(s, cmd, digest))
}

// once executes a request unless it was executed before. Only the retry of a request gets an answer before its right is
// checked, which may have been withdrawn since it was executed. Anything else under its sequence number is checked first.
func (m *Machine) once(s *session, cmd *wire.Command, digest uint64) *wire.Result {
	known, used := s.outcome(cmd.Seq)
	if used && known.digest == digest {
		return m.present(known)
	}
	if refusal := m.forbidden(s, cmd); refusal != nil {
		return refusal
	}
	if used {
		return m.reused(s, known, fmt.Sprintf("sequence number %d", cmd.Seq))
	}
	if cmd.Seq < s.ackedBelow {
		return answer(wire.Status_STALE, fmt.Sprintf("every request below %d was acknowledged", s.ackedBelow))
	}
	if refusal := m.fullWindow(s); refusal != nil && !givesUp(cmd) {
		return refusal
	}
	m.outOfBudget = false
	if refusal := m.noGrants(cmd); refusal != nil {
		return refusal
	}
	m.addAllowance(s)
	before := budgets{s.units(), m.Units()}
	result := m.perform(s, cmd)
	if m.outOfBudget {
		return result
	}
	return m.rememberWithin(s, cmd, result, digest, before)
}

// budgets are the units that a session and the whole state use.
type budgets struct{ session, state uint64 }

// rememberWithin remembers the result of a request if the budgets allow it. A result that leaves the
// session and the state no larger than before is always remembered: the request made room for it by
// giving something up. If a result does not fit, its request has changed nothing, since requests that
// take room reserve it for their outcome as well. Such a request is still answered if givesUp; otherwise
// it is refused and can be retried.
func (m *Machine) rememberWithin(s *session, cmd *wire.Command, result *wire.Result, digest uint64, before budgets) *wire.Result {
	o := m.outcomeOf(cmd.Seq, digest, result)
	if s.units()+o.units() > before.session || m.Units()+o.units() > before.state {
		refusal := m.fullWindow(s)
		if refusal == nil {
			refusal = m.shortWithReserve(s, o.units(), 0)
		}
		if refusal != nil && givesUp(cmd) {
			return result
		}
		if refusal == nil && !givesUp(cmd) {
			refusal = m.bytesOverQuota(s, o.units())
		}
		if refusal != nil {
			return refusal
		}
	}
	m.keep(s, o)
	return result
}

// givesUp reports whether a command is of a kind that makes the state smaller. A full window or an
// exhausted budget does not refuse such a command; only setValue itself refuses a value that does not
// fit.
func givesUp(cmd *wire.Command) bool {
	switch cmd.Op.(type) {
	case *wire.Command_Release, *wire.Command_Cancel, *wire.Command_Downgrade, *wire.Command_SetValue:
		return true
	}
	return false
}

func (m *Machine) windowFull(s *session) bool {
	return s.window != nil && s.window.final >= m.state.settings.MaxWindow
}

// fullWindow refuses a request whose outcome has no room in the window.
func (m *Machine) fullWindow(s *session) *wire.Result {
	if !m.windowFull(s) {
		return nil
	}
	m.outOfBudget = true
	return exhausted("max_window: %d outcomes are not acknowledged", s.window.final)
}

// echo adds to the answer to an acquire or an upgrade which request it answers, so that it cannot be
// mistaken for the answer to another one.
func (m *Machine) echo(cmd *wire.Command, digest uint64, r *wire.Result) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		r.Digest, r.Name = digest, firstName(op.Acquire)
	case *wire.Command_AcquireCached:
		r.Digest, r.Name = digest, firstName(op.AcquireCached.GetAcquire())
	case *wire.Command_OpenLease:
		r.Digest, r.Name = digest, firstName(op.OpenLease.GetAcquire())
	case *wire.Command_Upgrade:
		r.Digest, r.Name = digest, m.nameOf(cmd.SessionId, op.Upgrade.GetHoldId())
	}
	return r
}

func firstName(op *wire.Acquire) string {
	if len(op.GetLocks()) == 0 {
		return ""
	}
	return op.Locks[0].GetName()
}

// nameOf returns the first lock of a session's claim, or "" if the claim has ended.
func (m *Machine) nameOf(session, id uint64) string {
	if c, ok := m.claims.get(id); ok && c.session == session {
		return c.wants()[0].lock.name
	}
	return ""
}

func (m *Machine) perform(s *session, cmd *wire.Command) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		return m.acquire(s, cmd.Seq, op.Acquire, nil)
	case *wire.Command_AcquireCached:
		return m.acquireCached(s, cmd.Seq, op.AcquireCached)
	case *wire.Command_Release:
		return m.release(s, op.Release)
	case *wire.Command_Cancel:
		return m.cancel(s, op.Cancel)
	case *wire.Command_SetValue:
		return m.setValue(s, op.SetValue)
	case *wire.Command_Upgrade:
		return m.upgrade(s, cmd.Seq, op.Upgrade)
	case *wire.Command_Downgrade:
		return m.downgrade(s, op.Downgrade)
	case *wire.Command_Extend:
		return m.extend(s, op.Extend)
	}
	panic(fmt.Sprintf("%T is no request", cmd.Op))
}

// reused refuses a request whose key, a sequence number or a secret, was used for another request: that
// one's outcome does not answer this one.
func (m *Machine) reused(s *session, o outcome, key string) *wire.Result {
	about := ""
	if name := m.nameOf(s.id, o.holdID); name != "" {
		about = fmt.Sprintf(" (about lock %q)", name)
	}
	return invalid("%s was used for another request%s: only a retry of the same request may use it again", key, about)
}

// resultOf returns an outcome as it is stored.
func resultOf(o outcome) *wire.Result {
	r := &wire.Result{Status: o.status, Revision: o.revision, HoldId: o.holdID, Token: o.token, Count: o.count}
	if o.refusal != nil {
		r.Message, r.Cycle = o.refusal.message, o.refusal.cycle
	}
	return r
}

// present returns an outcome as an answer. For a wait, it adds the present position and holders.
func (m *Machine) present(o outcome) *wire.Result {
	r := resultOf(o)
	if c, ok := m.claims.get(o.holdID); ok && !o.final() {
		r.Position = m.position(c)
		r.Holders = m.inTheWay(c)
	}
	return r
}

// outcomeOf returns the outcome to remember for the result of a request.
func (m *Machine) outcomeOf(seq, digest uint64, r *wire.Result) outcome {
	o := outcome{
		seq:      seq,
		digest:   digest,
		status:   r.Status,
		refusal:  refusalOf(r.Message, r.Cycle),
		revision: r.Revision,
		holdID:   r.HoldId,
		token:    r.Token,
		count:    r.Count,
		waited:   r.Status == wire.Status_QUEUED,
	}
	if o.revision == 0 {
		o.revision = m.state.revision
	}
	return o
}

// keep remembers an outcome. It replaces an older one of the same request.
func (m *Machine) keep(s *session, o outcome) {
	w := m.editWindow(s)
	before := w.bytes
	m.outcomes.put(w, o)
	m.state.bytes += w.bytes - before
	m.editAccount(s.identity).used.Bytes += w.bytes - before
}

// conclude replaces the outcome of a request that waited: a claim's acquire, or its upgrade.
func (m *Machine) conclude(s *session, c *claim, seq uint64, status wire.Status_Code, message string) outcome {
	asked, _ := s.outcome(seq)
	o := outcome{
		seq: seq, digest: asked.digest, status: status, refusal: refusalOf(message, nil),
		revision: m.state.revision, holdID: c.id, waited: true,
	}
	if status == wire.Status_GRANTED {
		o.token, o.count = c.token, c.count()
	}
	m.keep(s, o)
	return o
}

// acknowledge forgets the outcomes that the client has acknowledged. The mark acknowledges all requests
// below it that were answered immediately; none of those is left below the old mark. Requests that waited
// are acknowledged one by one.
func (m *Machine) acknowledge(s *session, below uint64, acked []uint64) {
	before := s.units()
	defer func() {
		if freed := before - s.units(); freed > 0 {
			m.state.bytes -= freed
			m.editAccount(s.identity).used.Bytes -= freed
		}
	}()
	if below > s.ackedBelow {
		if len(s.remembered()) > 0 {
			m.outcomes.deleteImmediate(m.editWindow(s), s.ackedBelow, below)
		}
		s.ackedBelow = below
	}
	for _, seq := range acked {
		o, ok := s.outcome(seq)
		if !ok || !o.waited || !o.final() {
			continue
		}
		if seq < s.ackedBelow {
			m.outcomes.delete(m.editWindow(s), seq)
			continue
		}
		// Forgetting it above the mark would let a duplicate be executed again. From
		// now on the mark takes it along.
		o.waited = false
		m.outcomes.put(m.editWindow(s), o)
	}
}

// forgets reports whether these acknowledgements would free remembered outcomes.
func (s *session) forgets(below uint64, acked []uint64) bool {
	for _, o := range s.remembered() {
		if !o.waited && o.seq < below {
			return true
		}
	}
	return slices.ContainsFunc(acked, func(seq uint64) bool {
		o, ok := s.outcome(seq)
		return ok && o.waited && o.final()
	})
}

// acknowledgeOnly executes a command that contains nothing but acknowledgements.
func (m *Machine) acknowledgeOnly(cmd *wire.Command) *wire.Result {
	s, ok := m.editSession(cmd.SessionId)
	if !ok {
		return m.SessionLost(cmd.SessionId)
	}
	if refusal := noRequest(s); refusal != nil {
		return refusal
	}
	m.acknowledge(s, cmd.AckedBelow, cmd.Acked)
	return answer(wire.Status_OK, "")
}
