package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxLineageBytes bounds the name of a lineage.
	maxLineageBytes = 64
	// MaxAhead is how far a given floor or a backup's token may be ahead of the token counter and the
	// clock: a year, in tokens. Without this bound, a few such floors would use up all tokens.
	MaxAhead = 366 * 24 * 3600 << 32
	// epoch is the Unix time from which tokens count, 2024-01-01, and maxClock the last second that they can
	// count, both in milliseconds.
	epoch    = 1704067200 * 1000
	maxClock = epoch + maxTokenFloor>>32*1000
)

// ClockToken returns the token for a clock in milliseconds since 1970: the seconds since 2024, with their
// fraction, times 2^32.
func ClockToken(unixMs uint64) uint64 {
	ms := max(epoch, min(unixMs, maxClock)) - epoch
	return ms/1000<<32 + ms%1000<<32/1000
}

// Lineage returns the name of the history that revisions belong to. Restoring a backup begins another one.
func (m *Machine) Lineage() string { return m.state.lineage }

// restoreBackup begins a new lineage with the part of a backup that a restore keeps. Revisions continue,
// so the revisions of one lineage never occur in the other.
func (m *Machine) restoreBackup(op *wire.RestoreBackup) *wire.Result {
	if refusal := m.CheckRestore(op); refusal != nil {
		return refusal
	}
	action := m.restoreAction(op)
	m.endAll()
	m.state.settings, _ = completeSettings(op.Settings)
	m.state.token = m.RestoredToken(op)
	m.raiseSessionFloor()
	m.state.lineage, m.state.backup = op.Lineage, nil
	m.importAudit(op)
	m.importAccess(op)
	m.record(&wire.AuditRecord{Action: action, Operator: op.Operator, Reason: op.Reason, Ticket: op.Ticket, Backup: op.Backup})
	return &wire.Result{Status: wire.Status_OK, Token: m.state.token}
}

// restoreAction returns the action for the audit log. A cluster that was recovered from another one begins with the
// restore of that.
func (m *Machine) restoreAction(op *wire.RestoreBackup) wire.AuditRecord_Action {
	if !m.used() && wire.RecoveredFrom(m.state.clusterID, op.Backup.GetClusterId()) {
		return wire.AuditRecord_RECOVER
	}
	return wire.AuditRecord_RESTORE
}

// CheckRestore returns the refusal of a restore that cannot be applied to the present state, or nil. It
// changes nothing.
func (m *Machine) CheckRestore(op *wire.RestoreBackup) *wire.Result {
	if refusal := validBackup(op); refusal != nil {
		return refusal
	}
	if refusal := m.validFloors(op); refusal != nil {
		return refusal
	}
	id := m.state.clusterID
	switch {
	case op.ClusterId != "" && op.ClusterId != id:
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("this is cluster %q, not %q", id, op.ClusterId))
	case op.ClusterId == "" && m.used():
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("cluster %q is not empty: it was used before, and now has %d sessions and %d locks. "+
			"A restore ends all of them. To restore it all the same, name it: cluster_id %q, or qlock snapshot restore --replace %s", id, m.sessions.len(), m.locks.len(), id, id))
	}
	return nil
}

// used reports whether anything but changes of members or leader was ever done in the cluster.
func (m *Machine) used() bool {
	return m.state.lastSession > m.state.sessionFloor || m.state.firstAct > 0 || m.locks.len() > 0
}

func validBackup(op *wire.RestoreBackup) *wire.Result {
	if op.GetLineage() == "" || len(op.Lineage) > maxLineageBytes {
		return invalid("lineage must have 1 to %d bytes", maxLineageBytes)
	}
	if _, err := completeSettings(op.Settings); err != nil {
		return answer(wire.Status_INVALID_ARGUMENT, err.Error())
	}
	if refusal := validReason(op); refusal != nil {
		return refusal
	}
	return cmp.Or(validText("cluster_id", op.ClusterId, maxMemberText), validText("lineage", op.Lineage, maxLineageBytes),
		validBackupName(op.Backup), validImport(op.Audit), validAccess(op.Policy, op.Tokens))
}

// validImport refuses audit records that cannot come from a backup.
func validImport(records []*wire.AuditRecord) *wire.Result {
	if len(records) > maxRestoredAudit {
		return invalid("%d audit records, at most %d can be restored", len(records), maxRestoredAudit)
	}
	last := uint64(0)
	for _, act := range records {
		if refusal := validAudit(act); refusal != nil {
			return refusal
		}
		switch {
		case act.Id <= last:
			return invalid("audit record %d is out of order", act.Id)
		case act.WallUnixMs < 0 || act.WallUnixMs > maxWallMs:
			return invalid("audit record %d has the time %d", act.Id, act.WallUnixMs)
		}
		last = act.Id
	}
	return nil
}

// validFloors bounds how far a restore may raise the token counter.
func (m *Machine) validFloors(op *wire.RestoreBackup) *wire.Result {
	if op.ClockUnixMs > maxClock {
		return invalid("clock_unix_ms is %d: at most %d is allowed", op.ClockUnixMs, uint64(maxClock))
	}
	ahead := max(m.state.token, ClockToken(op.ClockUnixMs)) + MaxAhead
	switch {
	case op.TokenFloor > ahead:
		return invalid("token_floor is %d: at most %d is allowed, a year above the token counter and the clock", op.TokenFloor, ahead)
	case op.Backup.GetToken() > ahead:
		return invalid("the backup's token is %d: at most %d can be restored here, a year above the token counter and the clock; check the clocks, or bootstrap the cluster with a higher --token-floor", op.Backup.GetToken(), ahead)
	case m.RestoredToken(op) > maxTokenFloor:
		return invalid("the backup's token %d leaves no room above it", op.Backup.GetToken())
	}
	return nil
}

// RestoredToken returns a token above all that this cluster, or a cluster that continued from the backup,
// can have granted in the meantime. The clock ensures that, as it does at bootstrap. A counter that is
// ahead of the clock stays ahead of it, so each second of the clock also moves the floor another 2^20
// above the backup's token. Otherwise clusters into which one backup is restored, one after the other,
// would grant the same tokens. 2^20 is enough, since no cluster grants a million tokens in a second.
func (m *Machine) RestoredToken(op *wire.RestoreBackup) uint64 {
	return max(m.state.token, ClockToken(op.ClockUnixMs), op.TokenFloor, op.Backup.GetToken()+1<<32+op.ClockUnixMs/1000<<20)
}

// RestoreFloor returns the token floor to restore a backup with, in a cluster whose token counter has that value. It
// moves by another 2^24 with each second of the clock, because a grant of a cached hold issues up to 16,384 tokens:
// that is enough for a thousand such grants in each second. Leaders propose it. RestoredToken stays as it is, because
// nodes of feature level 1 compute it as well.
func RestoreFloor(op *wire.RestoreBackup, counter uint64) uint64 {
	needed := op.GetBackup().GetToken() + 1<<32 + op.GetClockUnixMs()/1000<<20 + ClockToken(op.GetClockUnixMs())>>8
	return max(op.GetTokenFloor(), min(needed, max(counter, ClockToken(op.GetClockUnixMs()))+MaxAhead))
}

// endAll expires all sessions, without lock-delays for their holds, and ends the lock-delays in progress.
func (m *Machine) endAll() {
	first := len(m.events)
	var sessions []uint64
	m.sessions.each(0, func(s *session) bool {
		sessions = append(sessions, s.id)
		return true
	})
	for _, id := range sessions {
		s, _ := m.editSession(id)
		m.endSession(s, wire.Event_SESSION_EXPIRED, ending{what: wire.Event_EXPIRED, status: wire.Status_SESSION_LOST, noDelay: true})
	}
	var delays []*claim
	m.claims.each(0, func(c *claim) bool {
		delays = append(delays, c)
		return true
	})
	for c := range slices.Values(delays) {
		m.open(c)
	}
	for _, e := range m.events[first:] {
		e.Restored = e.Type == wire.Event_SESSION_EXPIRED || e.Type == wire.Event_EXPIRED || e.Type == wire.Event_CANCELLED
	}
}

// LastBackup returns the latest scheduled backup of this lineage, or nil. It is shared and must not be changed.
func (m *Machine) LastBackup() *wire.SavedBackup { return m.state.backup }

// recordBackup records a backup that the leader has made. A restore in the meantime makes it one of another lineage.
func (m *Machine) recordBackup(b *wire.SavedBackup) *wire.Result {
	if b.GetLineage() != m.state.lineage || b.GetRevision() > m.state.revision {
		return answer(wire.Status_FAILED_PRECONDITION, fmt.Sprintf("the backup is of revision %d of lineage %q, the cluster at %d of %q", b.GetRevision(), b.GetLineage(), m.state.revision, m.state.lineage))
	}
	m.state.backup = b
	return answer(wire.Status_OK, "")
}

func validSavedBackup(b *wire.SavedBackup) *wire.Result {
	if b.GetUnixMs() < 0 || b.GetUnixMs() > maxWallMs {
		return invalid("the backup has the time %d", b.GetUnixMs())
	}
	if b.GetName() == "" || b.GetNodeId() == "" {
		return invalid("the backup has no name or no node")
	}
	return cmp.Or(validText("the backup's name", b.Name, maxMemberText), validText("node_id", b.NodeId, maxMemberText), validText("lineage", b.Lineage, maxLineageBytes))
}
