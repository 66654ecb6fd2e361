package fsm

import (
	"cmp"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// leaseSeq is the sequence number of a leased session's only request.
const leaseSeq = 1

// leaseRequest is the counterpart of request for an acquire that opens its own session.
func (m *Machine) leaseRequest(cmd *wire.Command, op *wire.OpenLease) *wire.Result {
	digest := cmd.Digest()
	return m.echo(cmd, digest, m.openLease(op, digest))
}

// openLease opens a session for one claim. The secret also identifies the request: repeating it returns
// the latest outcome of the first request and, while that still waits, restarts the session's TTL.
func (m *Machine) openLease(op *wire.OpenLease, digest uint64) *wire.Result {
	if known, ok := m.nonces.get(string(op.GetSecretHash())); ok {
		return m.repeatLease(known.session, digest)
	}
	if m.state.suspended != 0 {
		return suspended()
	}
	if refusal := mayLock(m.callerGrants(), m.caller.GetIdentity(), op.GetAcquire()); refusal != nil {
		return refusal
	}
	events, last := len(m.events), m.state.lastSession
	s, refusal := m.newSession(m.openingOf(op))
	if refusal != nil {
		return refusal
	}
	op.Acquire.Owner = 0 // a leased session has only one claim
	result := m.acquire(s, leaseSeq, op.Acquire, nil)
	if result.Status != wire.Status_GRANTED && result.Status != wire.Status_QUEUED {
		// Nothing was acquired or queued, so undo opening the session.
		m.forgetSession(s)
		m.events, m.state.lastSession = m.events[:events], last
		return result
	}
	m.keep(s, m.outcomeOf(leaseSeq, digest, result))
	if s.key != nil && result.Status == wire.Status_GRANTED {
		m.startLease(s)
	}
	return leased(s, result)
}

// openingOf returns what a lease's session is opened with. Until its grant, a key has at least the TTL that sessions
// have by default, because its wait is renewed several times per TTL.
func (m *Machine) openingOf(op *wire.OpenLease) opening {
	it := opening{secretHash: op.GetSecretHash(), ttl: op.GetTtlMs(), client: op.GetClient(), leased: true}
	if len(op.GetOwnerValue()) > 0 {
		it.ttl = max(it.ttl, m.state.settings.DefaultTtlMs)
		it.key = &key{value: string(op.OwnerValue), grantedTTL: op.TtlMs}
	}
	return it
}

// startLease starts the TTL of a lease that has been granted.
func (m *Machine) startLease(s *session) {
	if s.key != nil {
		s.ttl, s.key = s.key.grantedTTL, &key{value: s.key.value}
	}
	m.prolong(s)
}

func (m *Machine) repeatLease(id, digest uint64) *wire.Result {
	s, _ := m.editSession(id)
	if refusal := m.othersSession(s); refusal != nil {
		return refusal
	}
	if !s.leased {
		return invalid("the secret was used for a session: a lease needs its own")
	}
	o, _ := s.outcome(leaseSeq)
	if o.digest != digest {
		return m.reused(s, o, "the secret")
	}
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
	m.emit(&wire.Event{Type: wire.Event_SESSION_EXTENDED, SessionId: s.id, Identity: s.identity, Generation: s.generation, TtlMs: s.ttl, Leased: true, ByValue: s.key != nil})
}

// leaseOf returns the leased session of a secret and its claim, or nil.
func (m *Machine) leaseOf(hash []byte, hold uint64) (*session, *claim) {
	known, ok := m.nonces.get(string(hash))
	if !ok {
		return nil, nil
	}
	s, _ := m.editSession(known.session)
	if !s.leased {
		return nil, nil
	}
	c, _ := m.claims.get(m.claimsOf(s.id)[0])
	if hold != 0 && hold != c.id {
		return nil, nil
	}
	return s, c
}

// extendLease restarts a leased hold's TTL, optionally with another length.
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
		s.ttl = op.TtlMs
	}
	m.prolong(s)
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
