package fsm

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAuditIsBounded: the oldest record goes when there are too many; ids go on.
func TestAuditIsBounded(t *testing.T) {
	m := bootstrapped(t)
	for i := range maxAudit + 10 {
		id := openSession(t, m, "a")
		hold := acquireNow(t, m, id, 1, "lock")
		r := applyOne(t, m, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{
			HoldId: hold.HoldId, Token: hold.Token, Reason: "stuck", Operator: "op",
		}}}).Results[0]
		if r.Status != wire.Status_OK {
			t.Fatalf("force: %v", r)
		}
		applyOne(t, m, &wire.Command{SessionId: id, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
		if err := m.Check(); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
	}
	first, _ := m.audit.seek(0)
	if m.audit.len() != maxAudit || first.Id != 11 || m.state.lastAudit != maxAudit+10 {
		t.Errorf("%d records from %d to %d", m.audit.len(), first.Id, m.state.lastAudit)
	}
	if first.Action != wire.AuditRecord_FORCE_RELEASE || first.Lock != "lock" || first.Operator != "op" || first.Reason != "stuck" ||
		first.ClientName != "a" || first.Revision == 0 || first.WallUnixMs != 5 || first.HoldId == 0 || first.Token == 0 || first.SessionId == 0 {
		t.Errorf("record %v", first)
	}
	restored(t, snapshotOf(t, m))
}

func TestOperatorsTextsAreBounded(t *testing.T) {
	m := bootstrapped(t)
	long := strings.Repeat("x", maxReasonBytes+1)
	for _, cmd := range []*wire.Command{
		{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{Reason: long}}},
		{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{Reason: "r", Operator: long}}},
		{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{}}},
		{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{Reason: long}}},
		{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{GraceMs: 1<<31 + 1}}},
		{Op: &wire.Command_SkipDelay{SkipDelay: &wire.SkipDelay{Operator: long}}},
		{Op: &wire.Command_Resize{Resize: &wire.Resize{Limit: 1, Reason: long}}},
		{Op: &wire.Command_Resize{Resize: &wire.Resize{Limit: maxLimit + 1}}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", Reason: long}}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: long}}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", TokenFloor: maxTokenFloor + 1}}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", Settings: &wire.Settings{MinTtlMs: 1 << 30}}}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", Audit: make([]*wire.AuditRecord, maxAudit+1)}}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", Audit: []*wire.AuditRecord{{Id: 3}, {Id: 5}}}}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", Audit: []*wire.AuditRecord{{Id: 3, ClientName: long}}}}},
		{Op: &wire.Command_ForceRelease{}}, {Op: &wire.Command_Revoke{}}, {Op: &wire.Command_Resize{}}, {Op: &wire.Command_RestoreBackup{}},
	} {
		if r := applyOne(t, m, cmd).Results[0]; r.Status != wire.Status_INVALID_ARGUMENT && r.Status != wire.Status_NOT_HELD {
			t.Errorf("%v: %v", cmd, r)
		}
		if m.audit.len() != 0 {
			t.Fatalf("%v was recorded", cmd)
		}
	}
}

// TestRestoredBackup: the token counter is raised, audit records go on with their own
// numbers, settings and lineage are the given ones.
func TestRestoredBackup(t *testing.T) {
	m := bootstrapped(t)
	records := make([]*wire.AuditRecord, maxAudit)
	for i := range records {
		records[i] = &wire.AuditRecord{Id: uint64(i) + 40, Action: wire.AuditRecord_RESIZE, Operator: "before", Revision: 1 << 50}
	}
	before := m.Revision()
	r := applyOne(t, m, &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{
		TokenFloor: 1 << 40, Lineage: "second", Settings: &wire.Settings{MaxLocks: 7}, Audit: records, Operator: "op", Reason: "disaster",
	}}}).Results[0]
	if r.Status != wire.Status_OK || m.Token() != 1<<40 || m.Lineage() != "second" || m.Settings().MaxLocks != 7 || m.Settings().MaxSessions == 0 || m.Revision() != before+1 {
		t.Fatalf("%v, token %d, lineage %q, %v", r, m.Token(), m.Lineage(), m.Settings())
	}
	last, _ := m.audit.get(m.state.lastAudit)
	if oldest, _ := m.audit.seek(0); oldest.GetId() != 41 || last.GetId() != 296 || last.Action != wire.AuditRecord_RESTORE || last.Reason != "disaster" {
		t.Errorf("audit from %v to %v", oldest, last)
	}
	if m = restored(t, snapshotOf(t, m)); m.Lineage() != "second" {
		t.Errorf("lineage %q after a snapshot", m.Lineage())
	}
	if acquireNow(t, m, openSession(t, m, "s"), 1, "a").Token != 1<<40+1 {
		t.Error("a token of the backup came again")
	}
}
