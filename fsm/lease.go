package fsm

import (
	"cmp"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// leaseSeq is the sequence number of a leased session's only request.
const leaseSeq = 1

// LeaseWaitTTL is the TTL of a lease that waits, and that has waited until its grant is confirmed, in milliseconds. A
// caller that is gone keeps others waiting for so long, and a caller that has to find the next leader has so long for it.
const LeaseWaitTTL = 5_000

// leaseRequest is the counterpart of request for an acquire that opens its own session.
func (m *Machine) leaseRequest(cmd *wire.Command, op *wire.OpenLease) *wire.Result {
	digest := cmd.Digest()
	return m.echo(cmd, digest, m.openLease(op, digest))
}

// openLease opens a session for one claim. The secret also identifies the request: repeating it returns
// the latest outcome of the first request and, while that still waits, restarts the TTL of the wait.
func (m *Machine) openLease(op *wire.OpenLease, digest uint64) *wire.Result {
	used := m.bySecret(op.GetSecretHash())
	if used.leasedBy(m.caller.GetIdentity(), digest) {
		return m.repeatLease(m.sessions.edit(used))
	}
	if refusal := mayLock(m.callerGrants(), m.caller.GetIdentity(), op.GetAcquire()); refusal != nil {
		return refusal
	}
	if used != nil {
		return m.reusedSecret(used)
	}
	if m.state.suspended != 0 {
		return suspended()
	}
	events, last := len(m.events), m.state.lastSession
	s, refusal := m.newSession(openingOf(op))
	if refusal != nil {
		return refusal
	}
	op.Acquire.Owner = 0 // a leased session has only one claim
	result := m.acquire(s, leaseSeq, op.Acquire, nil)
	switch result.Status {
	case wire.Status_GRANTED:
	case wire.Status_QUEUED:
		s.unconfirmed = true
		m.events[events].TtlMs = s.lifetime() // it was opened only now
	default:
		// Nothing was acquired or queued, so undo opening the session.
		m.forgetSession(s)
		m.events, m.state.lastSession = m.events[:events], last
		return result
	}
	m.keep(s, m.outcomeOf(leaseSeq, digest, result))
	return leased(s, result)
}

// openingOf returns what a lease's session is opened with.
func openingOf(op *wire.OpenLease) opening {
	it := opening{secretHash: op.GetSecretHash(), ttl: op.GetTtlMs(), client: op.GetClient(), leased: true}
	if len(op.GetOwnerValue()) > 0 {
		it.key = &key{value: string(op.OwnerValue)}
	}
	return it
}

// confirmLease starts the TTL of a lease that was granted after a wait: a node still has its caller. The result is what
// that caller is answered.
func (m *Machine) confirmLease(op *wire.ConfirmLease) *wire.Result {
	s, c := m.leaseOf(op.GetSecretHash(), op.GetHoldId())
	if s == nil || !c.held() || op.HoldId == 0 {
		return notHeld()
	}
	if refusal := m.othersSession(s); refusal != nil {
		return refusal
	}
	if s.unconfirmed {
		if refusal := m.mayKeep(s, c); refusal != nil {
			return refusal
		}
		m.confirm(s)
	}
	o, _ := s.outcome(leaseSeq)
	r := m.present(o)
	r.Digest, r.Name = o.digest, c.wants()[0].lock.name
	return leased(s, r)
}

// lifetime returns the TTL of a session's present deadline.
func (s *session) lifetime() uint32 {
	if s.unconfirmed {
		return LeaseWaitTTL
	}
	return s.ttl
}

// confirm restarts the TTL of a lease, which is no longer that of a wait.
func (m *Machine) confirm(s *session) {
	s.unconfirmed = false
	m.prolong(s)
}

// leasedBy reports whether an acquire with this digest, and with the secret of s, is a retry: it has opened s. nil stands
// for no session.
func (s *session) leasedBy(identity string, digest uint64) bool {
	if s == nil || !s.leased || s.identity != identity {
		return false
	}
	o, _ := s.outcome(leaseSeq)
	return o.digest == digest
}

func (m *Machine) repeatLease(s *session) *wire.Result {
	o, _ := s.outcome(leaseSeq)
	if !o.final() {
		m.prolong(s)
	}
	return leased(s, m.present(o))
}

// leased adds the session to the answer to a lease request.
func leased(s *session, r *wire.Result) *wire.Result {
	r.SessionId = s.id
	return r
}

func validLease(settings *wire.Settings, op *wire.OpenLease) *wire.Result {
	if len(op.GetOwnerValue()) > 0 {
		return validKeyLease(settings, op)
	}
	return cmp.Or(
		validSession(settings, op.GetSecretHash(), op.GetTtlMs(), settings.GetMaxLeaseTtlMs(), op.GetClient()),
		validAcquire(op.GetAcquire()),
		validClientSize(settings, op.GetClient()),
		validValue(settings, op.GetAcquire().GetValue()),
	)
}

// validKeyLease checks an acquire of a key that waits.
func validKeyLease(settings *wire.Settings, op *wire.OpenLease) *wire.Result {
	acquire := op.GetAcquire()
	if len(acquire.GetLocks()) != 1 || special(acquire) || acquire.Reentrant || acquire.Order == wire.Order_UNFAIR || wanted(acquire.Locks[0]).mode != wire.Mode_EXCLUSIVE {
		return invalid("a key is an exclusive lock without options")
	}
	return cmp.Or(
		validKeyTTL(settings, op.GetTtlMs()),
		validSession(settings, op.GetSecretHash(), 0, settings.GetMaxTtlMs(), op.GetClient()),
		validAcquire(acquire), validValue(settings, op.GetOwnerValue()), validClientSize(settings, op.GetClient()),
	)
}

// noRequest refuses requests that only the client of an ordinary session may make.
func noRequest(s *session) *wire.Result {
	if s.leased {
		return invalid("the session belongs to a lease: extend or release that")
	}
	return nil
}

// prolong restarts a leased session's TTL.
func (m *Machine) prolong(s *session) {
	s.generation++
	if s.key != nil && s.key.remaining != 0 {
		now := *s.key
		now.remaining = 0
		s.key = &now
	}
	m.emit(&wire.Event{Type: wire.Event_SESSION_EXTENDED, SessionId: s.id, Identity: s.identity, Generation: s.generation, TtlMs: s.lifetime(), Leased: true, ByValue: s.key != nil})
}

// leaseOf returns the leased session of a secret and its claim, or nil.
func (m *Machine) leaseOf(hash []byte, hold uint64) (*session, *claim) {
	s := m.bySecret(hash)
	if s == nil || !s.leased {
		return nil, nil
	}
	s = m.sessions.edit(s)
	c, _ := m.claims.get(m.claimsOf(s.id)[0])
	if hold != 0 && hold != c.id {
		return nil, nil
	}
	return s, c
}

// extendLease restarts a leased hold's TTL, optionally with another length. Only its caller can, so it confirms the grant.
func (m *Machine) extendLease(op *wire.ExtendLease) *wire.Result {
	s, c := m.leaseOf(op.GetSecretHash(), op.GetHoldId())
	if s == nil || !c.held() || op.HoldId == 0 {
		return notHeld()
	}
	if refusal := cmp.Or(m.othersSession(s), m.mayKeep(s, c)); refusal != nil {
		return refusal
	}
	if op.TtlMs != 0 {
		if refusal := m.validExtension(s, op.TtlMs); refusal != nil {
			return refusal
		}
	}
	s.ttl = cmp.Or(op.TtlMs, s.ttl)
	m.confirm(s)
	return leased(s, answer(wire.Status_OK, ""))
}

// validExtension refuses a TTL that a key may not have. Validate has checked that of other leases.
func (m *Machine) validExtension(s *session, ttl uint32) *wire.Result {
	if s.key == nil {
		return nil
	}
	return validKeyTTL(m.state.settings, ttl)
}

// releaseLease releases a leased hold, or cancels its wait, and closes its session.
func (m *Machine) releaseLease(op *wire.ReleaseLease) *wire.Result {
	s, c := m.leaseOf(op.GetSecretHash(), op.GetHoldId())
	if s == nil {
		return notHeld()
	}
	if refusal := m.othersSession(s); refusal != nil {
		return refusal
	}
	if c.held() {
		m.endHold(s, c, ending{what: wire.Event_RELEASED})
		m.closeLease(s)
	} else {
		m.endWait(s, c, wire.Status_CANCELLED)
	}
	return leased(s, answer(wire.Status_OK, ""))
}

// closeLease ends a leased session after its claim has ended.
func (m *Machine) closeLease(s *session) {
	if s.leased {
		m.dropSession(s, wire.Event_SESSION_CLOSED)
	}
}
