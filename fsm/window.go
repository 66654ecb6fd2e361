package fsm

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// request runs a command of a session exactly once. Its acknowledgements count even
// if it is refused, since they are about other requests.
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

// once runs a request unless it was run before.
func (m *Machine) once(s *session, cmd *wire.Command, digest uint64) *wire.Result {
	if known := m.recall(s, cmd, digest); known != nil {
		return known
	}
	if refusal := m.fullWindow(s); refusal != nil && !givesUp(cmd) {
		return refusal
	}
	m.outOfBudget = false
	if refusal := m.noGrants(cmd); refusal != nil {
		return refusal
	}
	m.earnSearch(s)
	before := budgets{s.units(), m.Units()}
	result := m.perform(s, cmd)
	if m.outOfBudget {
		return result
	}
	return m.rememberWithin(s, cmd, result, digest, before)
}

// budgets are what a session and the state take of them.
type budgets struct{ session, state uint64 }

// rememberWithin remembers the result of a request if the budgets allow it. A result that
// leaves the session no larger than before is always remembered: a request that gave
// something up, which paid for that. What is refused for want of room changed nothing.
// Those that only ever give up are answered all the same; the others can be asked for again.
func (m *Machine) rememberWithin(s *session, cmd *wire.Command, result *wire.Result, digest uint64, before budgets) *wire.Result {
	o := m.outcomeOf(cmd.Seq, digest, result)
	if s.units()+o.units() > before.session || m.Units()+o.units() > before.state {
		refusal := m.fullWindow(s)
		if refusal == nil {
			refusal = m.shortBeside(s, o.units(), 0)
		}
		if refusal != nil && givesUp(cmd) {
			return result
		}
		if refusal != nil {
			return refusal
		}
	}
	m.keep(s, o)
	return result
}

// givesUp says that a request is never refused for want of room: it can only make the state
// smaller.
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

// fullWindow refuses a request whose outcome has no place in the window.
func (m *Machine) fullWindow(s *session) *wire.Result {
	if !m.windowFull(s) {
		return nil
	}
	m.outOfBudget = true
	return exhausted("max_window: %d outcomes are not acknowledged", s.window.final)
}

// echo has the answer to an acquire or an upgrade name what it answers, so that nobody can
// take it for the answer to another request.
func (m *Machine) echo(cmd *wire.Command, digest uint64, r *wire.Result) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		r.Digest, r.Name = digest, firstName(op.Acquire)
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

// nameOf returns the first lock of a session's claim, or nothing if it is over.
func (m *Machine) nameOf(session, id uint64) string {
	if c, ok := m.claims.get(id); ok && c.session == session {
		return c.wants()[0].lock.name
	}
	return ""
}

func (m *Machine) perform(s *session, cmd *wire.Command) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Acquire:
		return m.acquire(s, cmd.Seq, op.Acquire)
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

// recall answers a request without executing it: a retry gets its latest outcome, another
// request under the number of an earlier one is refused, and a late duplicate is stale. Nil
// lets it run.
func (m *Machine) recall(s *session, cmd *wire.Command, digest uint64) *wire.Result {
	seq := cmd.Seq
	if o, ok := s.outcome(seq); ok {
		if o.digest != digest {
			return m.reused(s, o, fmt.Sprintf("sequence number %d", seq))
		}
		return m.present(o)
	}
	if seq < s.ackedBelow {
		return answer(wire.Status_STALE, fmt.Sprintf("every request below %d was acknowledged", s.ackedBelow))
	}
	return nil
}

// reused refuses a request whose key, a sequence number or a secret, was that of another
// one: what that came to is no answer to this.
func (m *Machine) reused(s *session, o outcome, key string) *wire.Result {
	about := ""
	if name := m.nameOf(s.id, o.holdID); name != "" {
		about = fmt.Sprintf(" (about lock %q)", name)
	}
	return invalid("%s was used for another request%s: only a retry of the same request may use it again", key, about)
}

// resultOf is the outcome as it is stored.
func resultOf(o outcome) *wire.Result {
	r := &wire.Result{Status: o.status, Revision: o.revision, HoldId: o.holdID, Token: o.token, Count: o.count}
	if o.refusal != nil {
		r.Message, r.Cycle = o.refusal.message, o.refusal.cycle
	}
	return r
}

// present is the outcome as an answer. Of a wait it tells the place that it has now.
func (m *Machine) present(o outcome) *wire.Result {
	r := resultOf(o)
	if c, ok := m.claims.get(o.holdID); ok && !o.final() {
		r.Position = m.position(c)
		r.Holders = m.inTheWay(c)
	}
	return r
}

// outcomeOf is what the result of a request is remembered as.
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

// keep remembers an outcome, in the place of an older one of that request.
func (m *Machine) keep(s *session, o outcome) {
	w := m.editWindow(s)
	m.state.bytes -= w.bytes
	m.outcomes.put(w, o)
	m.state.bytes += w.bytes
}

// conclude replaces the outcome of a request that waited: of a claim's acquire or of
// its upgrade.
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

// acknowledge forgets what the client says that it has. The mark speaks for requests
// that were answered at once, of which there are none below the old one; those that
// waited are acknowledged one by one.
func (m *Machine) acknowledge(s *session, below uint64, acked []uint64) {
	m.state.bytes -= s.units()
	defer func() { m.state.bytes += s.units() }()
	if below > s.ackedBelow {
		if len(s.remembered()) > 0 {
			m.outcomes.deleteSettled(m.editWindow(s), s.ackedBelow, below)
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

// forgets reports whether these acknowledgements are about outcomes that are remembered.
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

// acknowledgeOnly is a command that carries nothing but acknowledgements.
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
