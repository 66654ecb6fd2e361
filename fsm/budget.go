package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// What the state takes is counted in units that are defined here and not measured, so that
// every node counts alike. They are chosen so that a unit is no less than a byte of a
// node's memory: see TestUnitsBoundMemory. docs/SEMANTICS.md has them, too.
const (
	// fixedUnits are for members, audit records and whatever else is bounded by its number.
	fixedUnits = 4 << 20
	// sessionUnits are a session with its secret, its address and an empty window.
	sessionUnits = 2048
	labelUnits   = 128
	// claimUnits are a claim with the outcome of the request that ends it. nameUnits are
	// for each of its locks.
	claimUnits = 320
	nameUnits  = 320
	// extraUnits are for a claim that is more than plain: see extra.
	extraUnits = 384
	// upgradeUnits are a wait for an upgrade, with what its end may say.
	upgradeUnits = 704
	// revocationUnits are what an operator adds to a hold. No session pays for them.
	revocationUnits = 1280
	outcomeUnits    = 160
	refusalUnits    = 64
	// endedUnits are what a wait for an upgrade is told whose hold has ended.
	endedUnits = 448
	stepUnits  = 128

	// shrinkUnits of a session are for the outcomes of requests that make it smaller by less
	// than their outcome takes.
	shrinkUnits = 32 * outcomeUnits
	// operatorUnits of the state are for operators.
	operatorUnits = 256 << 10

	maxStateUnits = 1 << 50
)

// Lower bounds of the budgets: with less, not every sound request could be executed even in
// an empty cluster.
const (
	MinSessionBytes = 256 << 10
	MinStateBytes   = 5 << 20
)

// textUnits are those of a text or a value of n bytes: the allocator rounds up.
func textUnits(n int) uint64 {
	if n == 0 {
		return 0
	}
	return uint64(n + n/4 + 16)
}

// clientUnits are those of what a client says of itself, without its address.
func clientUnits(client *wire.ClientInfo) uint64 {
	n := textUnits(len(client.GetName())) + textUnits(len(client.GetHostName())) + textUnits(len(client.GetBootId()))
	for _, label := range client.GetLabels() {
		n += labelUnits + textUnits(len(label.GetKey())) + textUnits(len(label.GetValue()))
	}
	return n
}

// units are those of a session without claims and outcomes.
func (s *session) unitsAlone() uint64 { return sessionUnits + clientUnits(s.client) }

// units are all that a session has.
func (s *session) units() uint64 {
	if s.window == nil {
		return s.bytes
	}
	return s.bytes + s.window.bytes
}

// units are those of a claim that its session pays for. They follow from what a snapshot has
// of it.
func (c *claim) units() uint64 {
	wants := c.wants()
	n := uint64(claimUnits)
	for _, w := range wants {
		n += nameUnits + textUnits(len(w.lock.name))
	}
	if len(wants) == 1 && wants[0].mode == wire.Mode_EXCLUSIVE {
		n += outcomeUnits // of a downgrade
	}
	if e := c.extra(); e != nil && e.special() {
		n += extraUnits + textUnits(len(e.value)) + uint64(e.again)*outcomeUnits
		if e.upgrade != nil {
			n += upgradeUnits
		}
	}
	return n
}

// special says that a claim is more than plain, but for a revocation.
func (e *extra) special() bool {
	return len(e.wants) > 0 || len(e.value) > 0 || e.again > 0 || e.maxHoldMs|e.lockDelayMs != 0 ||
		e.notify || e.allowDeadlock || e.upgrade != nil || e.upgrades > 0
}

// revocationUnits are those that nobody's session pays for.
func (c *claim) revocationUnits() uint64 {
	if c.options().revocation == nil {
		return 0
	}
	return revocationUnits
}

// acquireUnits are those of the claim that an acquire makes, if it makes one.
func acquireUnits(op *wire.Acquire) uint64 {
	n := uint64(claimUnits)
	for _, request := range op.GetLocks() {
		n += nameUnits + textUnits(len(request.GetName()))
	}
	if len(op.GetLocks()) == 1 && wanted(op.Locks[0]).mode == wire.Mode_EXCLUSIVE {
		n += outcomeUnits
	}
	if special(op) {
		n += extraUnits + textUnits(len(op.GetValue()))
	}
	return n
}

// units are those of an outcome.
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

// charge has a session, and with it the state, grow.
func (m *Machine) charge(s *session, units uint64) {
	s.bytes += units
	m.state.bytes += units
}

// recharge follows a claim that had so many units before it was changed.
func (m *Machine) recharge(s *session, c *claim, before uint64) {
	m.charge(s, c.units()-before) // may wrap round, and does so back again
}

// short refuses what would make a session larger by so many units than it, or the state,
// may become. The refusal is not remembered: it can be asked for again.
func (m *Machine) short(s *session, units uint64) *wire.Result {
	return m.shortBeside(s, units, shrinkUnits)
}

// shortBeside is short with so many units of the session kept free.
func (m *Machine) shortBeside(s *session, units, free uint64) *wire.Result {
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

// Exhausted returns how a command is refused because it would exceed the budget of the state
// or of its session, or nil if neither is exceeded. ahead are the units that commands before
// it, which are not applied yet, may add to the state. A retry is never refused, because it is
// answered with what its first attempt came to, nor is a request that acknowledges outcomes,
// because that makes room.
func (m *Machine) Exhausted(cmd *wire.Command, ahead uint64) *wire.Result {
	growth := GrowthUnits(cmd)
	if growth == 0 || m.state.settings == nil {
		return nil
	}
	s, settled := m.growing(cmd)
	if settled {
		return nil
	}
	if refusal := m.sessionExhausted(s, growth, shrinkUnits); refusal != nil {
		return refusal
	}
	return m.stateExhausted(ahead+growth, operatorUnits)
}

// growing returns the session that a command makes larger, an empty one if it opens one. It
// reports whether the command is settled without any room for it.
func (m *Machine) growing(cmd *wire.Command) (s *session, settled bool) {
	switch op := cmd.Op.(type) {
	case *wire.Command_OpenSession:
		_, settled = m.nonces.get(string(op.OpenSession.GetSecretHash()))
		return &session{}, settled
	case *wire.Command_OpenLease:
		_, settled = m.nonces.get(string(op.OpenLease.GetSecretHash()))
		return &session{}, settled
	}
	s, ok := m.sessions.get(cmd.SessionId)
	if !ok || s.leased || cmd.Seq < s.ackedBelow || s.forgets(cmd.AckedBelow, cmd.Acked) {
		return s, true
	}
	_, settled = s.outcome(cmd.Seq)
	return s, settled
}

// Units returns what the state takes of its budget, max_state_bytes.
func (m *Machine) Units() uint64 { return fixedUnits + m.state.bytes }

// SessionUnits returns what a session takes of its budget, max_session_bytes.
func (m *Machine) SessionUnits(id uint64) uint64 {
	s, ok := m.sessions.get(id)
	if !ok {
		return 0
	}
	return s.units()
}

// GrowthUnits returns by how many units a command can make the state larger at most; 0 for
// those that budgets never refuse.
func GrowthUnits(cmd *wire.Command) uint64 {
	switch op := cmd.Op.(type) {
	case *wire.Command_OpenSession:
		return sessionUnits + clientUnits(op.OpenSession.GetClient())
	case *wire.Command_OpenLease:
		return sessionUnits + clientUnits(op.OpenLease.GetClient()) + acquireUnits(op.OpenLease.GetAcquire()) + outcomeUnits
	case *wire.Command_Acquire:
		return acquireUnits(op.Acquire) + outcomeUnits
	case *wire.Command_Upgrade:
		return extraUnits + upgradeUnits + 2*outcomeUnits
	case *wire.Command_Extend:
		return extraUnits + outcomeUnits
	}
	return 0
}
