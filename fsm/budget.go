package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// The size of the state is counted in units that are defined here and not measured, so that every node
// counts the same. They are chosen so that a unit is at least one byte of a node's memory: see
// TestUnitsBoundMemory. They are documented in docs/SEMANTICS.md.
const (
	// fixedUnits cover members, audit records and everything else whose number is bounded.
	fixedUnits = 4 << 20
	// sessionUnits cover a session with its secret, its address and an empty window.
	sessionUnits = 2048
	labelUnits   = 128
	// claimUnits cover a claim with the outcome of the request that ends it; nameUnits are added
	// for each lock.
	claimUnits = 320
	nameUnits  = 320
	// extraUnits cover the options of a claim: see extra.
	extraUnits = 384
	// upgradeUnits cover a wait for an upgrade, with the message at its end.
	upgradeUnits = 704
	// revocationUnits cover what an operator adds to a hold. They are not charged to a session.
	revocationUnits = 1280
	outcomeUnits    = 160
	refusalUnits    = 64
	// endedUnits cover the message to a wait for an upgrade whose hold has ended.
	endedUnits = 448
	stepUnits  = 128

	// shrinkUnits of each session are reserved for the outcomes of requests that free less than
	// their outcome uses.
	shrinkUnits = 32 * outcomeUnits
	// operatorUnits of the state are reserved for operators.
	operatorUnits = 256 << 10

	maxStateUnits = 1 << 50
)

// Lower bounds of the budgets. Below them, some valid requests would fail even in an empty cluster.
const (
	MinSessionBytes = 256 << 10
	MinStateBytes   = 5 << 20
)

// textUnits returns the units of a text or a value of n bytes. They allow for the allocator's rounding.
func textUnits(n int) uint64 {
	if n == 0 {
		return 0
	}
	return uint64(n + n/4 + 16)
}

// clientUnits returns the units of a client info without its address.
func clientUnits(client *wire.ClientInfo) uint64 {
	n := textUnits(len(client.GetName())) + textUnits(len(client.GetHostName())) + textUnits(len(client.GetBootId()))
	for _, label := range client.GetLabels() {
		n += labelUnits + textUnits(len(label.GetKey())) + textUnits(len(label.GetValue()))
	}
	return n
}

// unitsAlone returns the units of a session without its claims and outcomes.
func (s *session) unitsAlone() uint64 {
	n := sessionUnits + clientUnits(s.client) + textUnits(len(s.identity))
	if s.key != nil {
		n += textUnits(len(s.key.value))
	}
	return n
}

// units returns all units of a session.
func (s *session) units() uint64 {
	if s.window == nil {
		return s.bytes
	}
	return s.bytes + s.window.bytes
}

// units returns the units of a claim that are charged to its session. They depend only on what a snapshot
// contains of it.
func (c *claim) units() uint64 {
	wants := c.wants()
	n := uint64(claimUnits)
	for _, w := range wants {
		n += nameUnits + textUnits(len(w.lock.name))
	}
	if len(wants) == 1 && wants[0].mode == wire.Mode_EXCLUSIVE {
		n += outcomeUnits // for the outcome of a downgrade
	}
	if e := c.extra(); e != nil && e.special() {
		n += extraUnits + textUnits(len(e.value)) + uint64(e.again)*outcomeUnits
		if e.upgrade != nil {
			n += upgradeUnits
		}
	}
	return n
}

// special reports whether the claim has options, apart from a revocation.
func (e *extra) special() bool {
	return len(e.wants) > 0 || len(e.value) > 0 || e.again > 0 || e.maxHoldMs|e.lockDelayMs != 0 ||
		e.notify || e.allowDeadlock || e.tokens > 0 || e.upgrade != nil || e.upgrades > 0
}

// revocationUnits returns the units of a claim that are not charged to a session.
func (c *claim) revocationUnits() uint64 {
	if c.options().revocation == nil {
		return 0
	}
	return revocationUnits
}

// acquireUnits returns the units of the claim that an acquire may create.
func acquireUnits(op *wire.Acquire, cached bool) uint64 {
	n := uint64(claimUnits)
	for _, request := range op.GetLocks() {
		n += nameUnits + textUnits(len(request.GetName()))
	}
	if len(op.GetLocks()) == 1 && wanted(op.Locks[0]).mode == wire.Mode_EXCLUSIVE {
		n += outcomeUnits
	}
	if special(op) || cached {
		n += extraUnits + textUnits(len(op.GetValue()))
	}
	return n
}

// units returns the units of an outcome.
func (o outcome) units() uint64 {
	n := uint64(outcomeUnits)
	switch {
	case o.refusal == nil:
		return n
	case o.status == wire.Status_NOT_HELD:
		return n + endedUnits
	}
	n += refusalUnits + textUnits(len(o.refusal.message))
	for _, step := range o.refusal.cycle {
		n += stepUnits + textUnits(len(step.GetClientName())) + textUnits(len(step.GetLock()))
	}
	return n
}

// charge adds units to a session, and with it to the state.
func (m *Machine) charge(s *session, units uint64) {
	s.bytes += units
	m.state.bytes += units
	m.editAccount(s.identity).used.Bytes += units
}

// recharge updates the units of a session whose claim had so many units before it was changed.
func (m *Machine) recharge(s *session, c *claim, before uint64) {
	m.charge(s, c.units()-before) // may wrap around, and the addition wraps back
}

// short refuses a change that would add so many units if the session, its identity or the state would exceed its
// budget. The refusal is not remembered, so the request can be retried.
func (m *Machine) short(s *session, units uint64) *wire.Result {
	if refusal := m.shortWithReserve(s, units, shrinkUnits); refusal != nil {
		return refusal
	}
	return m.bytesOverQuota(s, units)
}

// shortWithReserve is short with the given number of the session's units kept free.
func (m *Machine) shortWithReserve(s *session, units, free uint64) *wire.Result {
	refusal := m.sessionExhausted(s, units, free)
	if refusal == nil {
		refusal = m.stateExhausted(units, operatorUnits)
	}
	m.outOfBudget = refusal != nil
	return refusal
}

func (m *Machine) sessionExhausted(s *session, units, free uint64) *wire.Result {
	if used, most := s.units(), m.state.settings.MaxSessionBytes; used+units+free > most {
		return exhausted("max_session_bytes: the session takes %d of %d units, %d of them kept free, and this would take %d more: acknowledge outcomes or release locks", used, most, free, units)
	}
	return nil
}

func (m *Machine) stateExhausted(units, free uint64) *wire.Result {
	if used, most := m.Units(), m.state.settings.MaxStateBytes; used+units+free > most {
		return exhausted("max_state_bytes: the state takes %d of %d units, %d of them kept free, and this would take %d more", used, most, free, units)
	}
	return nil
}

func exhausted(format string, args ...any) *wire.Result {
	return answer(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf(format, args...))
}

// Exhausted returns the refusal of a command that would exceed the budget of the state, of its session or of its
// identity, or nil. ahead is the number of units that earlier commands, which are not applied yet, may add to the
// state. A retry is never refused, because it is answered with its first outcome, nor is a request that
// acknowledges outcomes, because that makes room.
func (m *Machine) Exhausted(cmd *wire.Command, ahead uint64) *wire.Result {
	growth := GrowthUnits(cmd)
	if growth == 0 || m.state.settings == nil {
		return nil
	}
	s, exempt := m.growing(cmd)
	if exempt {
		return nil
	}
	perSession := growth
	if op := cmd.GetChangeKeys(); op != nil {
		perSession = mostKeyUnits(cmd.Caller.GetIdentity(), op)
	}
	if refusal := m.sessionExhausted(s, perSession, shrinkUnits); refusal != nil {
		return refusal
	}
	if refusal := m.stateExhausted(ahead+growth, operatorUnits); refusal != nil {
		return refusal
	}
	return m.quotaExhausted(cmd, s, growth)
}

// growing returns the session that a command makes larger, an empty one if the command opens a session.
// It reports as exempt a command that needs no room.
func (m *Machine) growing(cmd *wire.Command) (s *session, exempt bool) {
	switch op := cmd.Op.(type) {
	case *wire.Command_OpenSession:
		_, exempt = m.nonces.get(string(op.OpenSession.GetSecretHash()))
		return &session{}, exempt
	case *wire.Command_OpenLease:
		_, exempt = m.nonces.get(string(op.OpenLease.GetSecretHash()))
		return &session{}, exempt
	case *wire.Command_ChangeKeys:
		return &session{}, m.answeredKeys(op.ChangeKeys) || m.onlyExtends(op.ChangeKeys)
	}
	s, ok := m.sessions.get(cmd.SessionId)
	if !ok || s.leased || cmd.Seq < s.ackedBelow || s.forgets(cmd.AckedBelow, cmd.Acked) {
		return s, true
	}
	_, exempt = s.outcome(cmd.Seq)
	return s, exempt
}

// Units returns the units of the state, which max_state_bytes bounds.
func (m *Machine) Units() uint64 { return fixedUnits + m.state.bytes }

// SessionUnits returns the units of a session, which max_session_bytes bounds; 0 if there is no such session.
func (m *Machine) SessionUnits(id uint64) uint64 {
	s, ok := m.sessions.get(id)
	if !ok {
		return 0
	}
	return s.units()
}

// GrowthUnits returns an upper bound of the units that a command can add to the state; 0 for commands
// that budgets never refuse.
func GrowthUnits(cmd *wire.Command) uint64 {
	switch op := cmd.Op.(type) {
	case *wire.Command_OpenSession:
		return sessionUnits + clientUnits(op.OpenSession.GetClient()) + textUnits(len(cmd.Caller.GetIdentity()))
	case *wire.Command_OpenLease:
		return sessionUnits + clientUnits(op.OpenLease.GetClient()) + textUnits(len(cmd.Caller.GetIdentity())) + acquireUnits(op.OpenLease.GetAcquire(), false) + outcomeUnits + textUnits(len(op.OpenLease.GetOwnerValue()))
	case *wire.Command_ChangeKeys:
		return keyUnits(cmd.Caller.GetIdentity(), op.ChangeKeys)
	case *wire.Command_Acquire:
		return acquireUnits(op.Acquire, false) + outcomeUnits
	case *wire.Command_AcquireCached:
		return acquireUnits(op.AcquireCached.GetAcquire(), true) + outcomeUnits
	case *wire.Command_Upgrade:
		return extraUnits + upgradeUnits + 2*outcomeUnits
	case *wire.Command_Extend:
		return extraUnits + outcomeUnits
	}
	return 0
}
