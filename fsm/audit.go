package fsm

import (
	"cmp"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxAudit bounds the audit records; the oldest go first.
	maxAudit = 256
	// maxReasonBytes bounds each text of an operator, and the client's name beside it.
	maxReasonBytes = 256
)

// validReason refuses an operator's texts that are too long or that nobody could read.
func validReason(reason, operator string) *wire.Result {
	return cmp.Or(validText("the reason", reason, maxReasonBytes), validText("the operator", operator, maxReasonBytes))
}

// validAudit refuses a record that no operator's act can have left.
func validAudit(record *wire.AuditRecord) *wire.Result {
	return cmp.Or(
		validText("the lock of an audit record", record.GetLock(), wire.MaxNameBytes),
		validText("the client's name in an audit record", record.GetClientName(), maxReasonBytes),
		validReason(record.GetReason(), record.GetOperator()),
	)
}

// record keeps what an operator did.
func (m *Machine) record(act *wire.AuditRecord) {
	m.state.lastAudit++
	act.Id, act.Revision, act.WallUnixMs = m.state.lastAudit, m.state.revision, m.wall
	m.audit.put(act)
	if m.audit.len() > maxAudit {
		oldest, _ := m.audit.seek(0)
		m.audit.delete(oldest.Id)
	}
}

// recordAbout is record for what was done to a claim.
func (m *Machine) recordAbout(c *claim, act *wire.AuditRecord) {
	act.Lock, act.HoldId, act.Token, act.SessionId = c.wants()[0].lock.name, c.id, c.token, c.session
	if s, ok := m.sessions.get(c.session); ok {
		act.ClientName = shortened(s.client.GetName())
	}
	m.record(act)
}

// shortened cuts a text of a client to what a record has room for.
func shortened(text string) string {
	if len(text) <= maxReasonBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxReasonBytes], "")
}
