package fsm

import (
	"cmp"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxLineageBytes bounds the name of a history of revisions.
const maxLineageBytes = 64

// Lineage returns the name of the history that revisions belong to; a restored backup
// begins another one.
func (m *Machine) Lineage() string { return m.state.lineage }

// restoreBackup begins a new history in an empty cluster from what outlives a backup.
// Revisions go on, so that those of one history never come again in the other.
func (m *Machine) restoreBackup(op *wire.RestoreBackup) *wire.Result {
	if m.sessions.len() > 0 || m.locks.len() > 0 {
		return answer(wire.Status_FAILED_PRECONDITION, "a backup is restored only where no session is open and no lock exists")
	}
	settings, _ := completeSettings(op.GetSettings()) // validBackup has looked at them
	m.state.settings = settings
	m.state.token = max(m.state.token, op.TokenFloor)
	m.state.lineage = op.Lineage
	m.replaceAudit(op.Audit)
	m.record(&wire.AuditRecord{Action: wire.AuditRecord_RESTORE, Operator: op.Operator, Reason: op.Reason})
	return answer(wire.Status_OK, "")
}

func validBackup(op *wire.RestoreBackup) *wire.Result {
	if op.GetLineage() == "" {
		return invalid("lineage is empty")
	}
	if op.GetTokenFloor() > maxTokenFloor {
		return invalid("token_floor is above %d", uint64(maxTokenFloor))
	}
	if _, err := completeSettings(op.GetSettings()); err != nil {
		return invalid("%v", err)
	}
	if len(op.GetAudit()) > maxAudit {
		return invalid("%d audit records, at most %d are kept", len(op.Audit), maxAudit)
	}
	for i, act := range op.GetAudit() {
		if refusal := validAudit(act); refusal != nil {
			return refusal
		}
		if act.GetId() != op.Audit[0].GetId()+uint64(i) || act.GetId() == 0 || act.Id > 1<<62 {
			return invalid("audit record %d is out of order", act.GetId())
		}
	}
	return cmp.Or(validText("lineage", op.GetLineage(), maxLineageBytes), validReason(op.GetReason(), op.GetOperator()))
}

// replaceAudit takes the audit records of another history over.
func (m *Machine) replaceAudit(records []*wire.AuditRecord) {
	for m.audit.len() > 0 {
		oldest, _ := m.audit.seek(0)
		m.audit.delete(oldest.Id)
	}
	m.state.lastAudit = 0
	for _, act := range records {
		m.audit.put(act)
		m.state.lastAudit = act.Id
	}
}
