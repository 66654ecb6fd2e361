package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxAudit bounds the audit records; the oldest go first.
	maxAudit = 256
	// maxReasonBytes bounds what an operator says.
	maxReasonBytes = 256
)

// validReason refuses an operator's texts that are too long.
func validReason(reason, operator string) *wire.Result {
	if len(reason) > maxReasonBytes || len(operator) > maxReasonBytes {
		return answer(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("reason and operator have at most %d bytes each", maxReasonBytes))
	}
	return nil
}

// validAudit refuses a record that no operator's act can have left.
func validAudit(record *wire.AuditRecord) *wire.Result {
	if len(record.GetLock()) > MaxNameBytes {
		return answer(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("audit record %d names a lock of %d bytes", record.Id, len(record.Lock)))
	}
	return validReason(record.GetReason(), record.GetOperator())
}
