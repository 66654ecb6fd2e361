package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// GrantsSuspended returns the revision at which granting was suspended, or 0 if it is not suspended.
func (m *Machine) GrantsSuspended() uint64 { return m.state.suspended }

// suspendGrants stops all granting, because the nodes differ in their states and none of them is known to
// be right. Everything else continues.
func (m *Machine) suspendGrants() *wire.Result {
	if m.state.suspended == 0 {
		m.state.suspended = m.state.revision
	}
	return answer(wire.Status_OK, "")
}

// resumeGrants resumes granting and settles all locks with waiters. The command names the suspension, so
// a decision about an older one is void.
func (m *Machine) resumeGrants(op *wire.ResumeGrants) *wire.Result {
	if m.state.suspended == 0 || op.GetRevision() != m.state.suspended {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("granting is not suspended since revision %d", op.GetRevision()))
	}
	m.state.suspended = 0
	m.locks.each("", func(l *lock) bool {
		if l.awaited() {
			m.changed = append(m.changed, l)
		}
		return true
	})
	return answer(wire.Status_OK, "")
}

// noGrants refuses a request for a grant while granting is suspended. The refusal is not remembered, so
// the request can be retried.
func (m *Machine) noGrants(cmd *wire.Command) *wire.Result {
	if m.state.suspended == 0 {
		return nil
	}
	switch cmd.Op.(type) {
	case *wire.Command_Acquire, *wire.Command_AcquireCached, *wire.Command_Upgrade:
		return suspended()
	}
	return nil
}

func suspended() *wire.Result {
	return answer(wire.Status_UNAVAILABLE, "nothing is granted now: the nodes differ in their state and no majority agrees; qlock status shows more")
}
