package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAuditIsBounded checks that the oldest record is dropped when there are too many, and that ids
// keep increasing.
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

// TestNobodyDisplacesAnothersAudit has one identity flood the audit log and checks that it displaces its own records
// only, whatever operator its requests claim, and that the dropped one is always the oldest of whoever has the most.
func TestNobodyDisplacesAnothersAudit(t *testing.T) {
	m := bootstrapped(t)
	act := func(identity string) {
		applyOne(t, m, &wire.Command{Caller: &wire.Caller{Identity: identity, Credential: "token 1", Address: "h:1"},
			Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Member: "n4", Reason: "r", Operator: fmt.Sprint("claims ", m.state.lastAudit)}}})
	}
	idsOf := func(identity string) (ids []uint64) {
		m.audit.each(0, func(r *wire.AuditRecord) bool {
			if r.GetCaller().GetIdentity() == identity {
				ids = append(ids, r.Id)
			}
			return true
		})
		return ids
	}
	for range 3 {
		act("ann")
	}
	for range 2 * maxAudit {
		act("flood")
	}
	if got := idsOf("ann"); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("ann has the records %v after a flood of another identity", got)
	}
	if got := idsOf("flood"); len(got) != maxAudit-3 || got[len(got)-1] != m.state.lastAudit || got[0] != m.state.lastAudit-maxAudit+4 {
		t.Errorf("the flood left %d of its own records, from %d", len(got), got[0])
	}
	for range maxAudit {
		act("bob")
	}
	// Both have the same number now. The record that goes is the oldest of either.
	if bob, flood := len(idsOf("bob")), len(idsOf("flood")); bob < flood || bob > flood+1 || bob+flood != maxAudit-3 {
		t.Errorf("bob has %d records, the flood has %d", bob, flood)
	}
	restored(t, snapshotOf(t, m))
}

// TestAuditRecordsNameTheVerifiedCaller checks that the caller of a record is that of the command, not the operator
// that the request claims, and that each record comes with its event.
func TestAuditRecordsNameTheVerifiedCaller(t *testing.T) {
	m := bootstrapped(t)
	caller := &wire.Caller{Identity: "ann", Credential: "certificate 7", Address: "10.0.0.1:99"}
	applied := applyOne(t, m, &wire.Command{Caller: caller, Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{
		Action: wire.AuditRecord_REMOVE_MEMBER, Member: "n4", Reason: "r", Operator: "root"}}})
	if len(applied.Events) != 1 || applied.Events[0].Type != wire.Event_AUDITED || applied.Events[0].Revision != m.Revision() {
		t.Fatalf("events %v", applied.Events)
	}
	r := applied.Events[0].Audit
	if !proto.Equal(r.Caller, caller) || r.Operator != "root" || r.Revision != m.Revision() {
		t.Errorf("record %v", r)
	}
	if kept := m.AuditAfter(0); len(kept) != 1 || !proto.Equal(kept[0], r) || len(m.AuditAfter(r.Id)) != 0 {
		t.Errorf("kept %v, event %v", kept, r)
	}
}

// TestRestoreKeepsRareIdentities restores a backup that one identity has flooded.
func TestRestoreKeepsRareIdentities(t *testing.T) {
	m := bootstrapped(t)
	var records []*wire.AuditRecord
	for i := range uint64(700) {
		r := &wire.AuditRecord{Id: i + 1, Action: wire.AuditRecord_RESIZE, Reason: "r", Caller: &wire.Caller{Identity: "flood"}}
		if i < 2 {
			r.Caller.Identity = "ann"
		}
		records = append(records, r)
	}
	applied := applyOne(t, m, &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{
		Lineage: "l", Reason: "r", Audit: RestorableAudit(records), Backup: &wire.Backup{ClusterId: "lost"}}}})
	if applied.Results[0].Status != wire.Status_OK {
		t.Fatal(applied.Results[0])
	}
	kept := m.AuditAfter(0)
	if len(kept) != maxImported+1 || kept[0].Caller.Identity != "ann" || kept[1].Caller.Identity != "ann" || kept[2].Caller.Identity != "flood" || kept[0].Imported.Id != 1 {
		t.Errorf("%d records, from %v", len(kept), kept[0])
	}
}

func TestOperatorsTextsAreBounded(t *testing.T) {
	m := bootstrapped(t)
	long := strings.Repeat("x", wire.MaxReasonBytes+1)
	name := strings.Repeat("x", wire.MaxOperatorBytes+1)
	with := func(cmds ...*wire.RestoreBackup) (all []*wire.Command) {
		for _, op := range cmds {
			op.Reason = cmp.Or(op.Reason, "r")
			op.Lineage = cmp.Or(op.Lineage, "l")
			all = append(all, &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: op}})
		}
		return all
	}
	act := func(id uint64) *wire.AuditRecord { return &wire.AuditRecord{Id: id, Action: wire.AuditRecord_RESIZE} }
	commands := with(
		&wire.RestoreBackup{Reason: long}, &wire.RestoreBackup{Reason: " "}, &wire.RestoreBackup{Operator: name}, &wire.RestoreBackup{Lineage: long},
		&wire.RestoreBackup{TokenFloor: maxTokenFloor + 1}, &wire.RestoreBackup{ClockUnixMs: maxClock + 1},
		&wire.RestoreBackup{Settings: &wire.Settings{MinTtlMs: 1 << 30}},
		&wire.RestoreBackup{Backup: &wire.Backup{Sha256: []byte{1}}}, &wire.RestoreBackup{Backup: &wire.Backup{ClusterId: long}},
		&wire.RestoreBackup{Audit: make([]*wire.AuditRecord, maxRestoredAudit+1)},
		&wire.RestoreBackup{Audit: []*wire.AuditRecord{act(5), act(5)}}, &wire.RestoreBackup{Audit: []*wire.AuditRecord{act(0)}},
		&wire.RestoreBackup{Audit: []*wire.AuditRecord{{Id: 3, Action: wire.AuditRecord_RESIZE, ClientName: name}}},
		&wire.RestoreBackup{Audit: []*wire.AuditRecord{{Id: 3, Action: 99}}},
		&wire.RestoreBackup{Audit: []*wire.AuditRecord{{Id: 3, Action: wire.AuditRecord_RESIZE, Reason: "a\nb"}}},
		&wire.RestoreBackup{Audit: []*wire.AuditRecord{{Id: 3, Action: wire.AuditRecord_RESIZE, Lock: "/"}}},
		&wire.RestoreBackup{Audit: []*wire.AuditRecord{{Id: 3, Action: wire.AuditRecord_RESIZE, WallUnixMs: 1 << 62}}},
	)
	for _, cmd := range append(commands, []*wire.Command{
		{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{GraceMs: 1<<31 + 1, Reason: "r"}}},
		{Op: &wire.Command_Resize{Resize: &wire.Resize{Limit: maxLimit + 1, Reason: "r"}}},
		{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_RESTORE, Reason: "r"}}},
		{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Reason: "r", Member: long}}},
		{Op: &wire.Command_ForceRelease{}}, {Op: &wire.Command_Revoke{}}, {Op: &wire.Command_Resize{}}, {Op: &wire.Command_RestoreBackup{}},
		{Op: &wire.Command_SkipDelay{}}, {Op: &wire.Command_ForceClose{}}, {Op: &wire.Command_RecordAct{}},
	}...) {
		if r := applyOne(t, m, cmd).Results[0]; r.Status != wire.Status_INVALID_ARGUMENT {
			t.Errorf("%v: %v", cmd, r)
		}
		if m.audit.len() != 0 {
			t.Fatalf("%v was recorded", cmd)
		}
	}
}

// TestEveryActNeedsAReason checks that reasons are refused that are blank, too long or contain
// control characters.
func TestEveryActNeedsAReason(t *testing.T) {
	m := bootstrapped(t)
	for _, texts := range [][2]string{
		{"", "op"}, {" \t", "op"}, {"two\nlines", "op"}, {"bell\a", "op"}, {strings.Repeat("x", wire.MaxReasonBytes+1), "op"},
		{"r", "o\x1bp"}, {"r", strings.Repeat("x", wire.MaxOperatorBytes+1)},
	} {
		reason, operator := texts[0], texts[1]
		for _, cmd := range []*wire.Command{
			{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{Reason: reason, Operator: operator}}},
			{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{Reason: reason, Operator: operator}}},
			{Op: &wire.Command_SkipDelay{SkipDelay: &wire.SkipDelay{Name: "a", Reason: reason, Operator: operator}}},
			{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "a", Limit: 1, Reason: reason, Operator: operator}}},
			{Op: &wire.Command_ForceClose{ForceClose: &wire.ForceClose{SessionId: 1, Reason: reason, Operator: operator}}},
			{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{Lineage: "l", Reason: reason, Operator: operator}}},
			{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Reason: reason, Operator: operator}}},
		} {
			if r := applyOne(t, m, cmd).Results[0]; r.Status != wire.Status_INVALID_ARGUMENT || r.Message == "" {
				t.Errorf("%v: %v", cmd, r)
			}
		}
	}
}

// TestRestoredBackup checks that a restore raises the token counter, sets the given settings and lineage,
// marks the audit records of the backup, and displaces none of the cluster's own.
func TestRestoredBackup(t *testing.T) {
	m := bootstrapped(t)
	for range maxAudit {
		applyOne(t, m, &wire.Command{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{
			Action: wire.AuditRecord_ADD_MEMBER, Member: "n4", Reason: "mine", Operator: "op"}}})
	}
	records := make([]*wire.AuditRecord, maxRestoredAudit)
	for i := range records {
		records[i] = &wire.AuditRecord{Id: uint64(i) + 40, Action: wire.AuditRecord_RESIZE, Operator: "before", Revision: 1 << 50}
	}
	records[maxRestoredAudit-1].Imported = &wire.AuditImport{ClusterId: "older", Id: 3, RestoreId: 9}
	before := m.Revision()
	r := applyOne(t, m, &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{
		TokenFloor: 1 << 40, Lineage: "second", Settings: &wire.Settings{MaxLocks: 77}, Audit: records, Operator: "op", Reason: "disaster",
		Backup: &wire.Backup{ClusterId: "lost", Revision: 8, Token: 9, Sha256: make([]byte, 32)},
	}}}).Results[0]
	if r.Status != wire.Status_OK || r.Token != 1<<40 || m.Token() != 1<<40 || m.Lineage() != "second" || m.Settings().MaxLocks != 77 || m.Settings().MaxSessions == 0 || m.Revision() != before+1 {
		t.Fatalf("%v, token %d, lineage %q, %v", r, m.Token(), m.Lineage(), m.Settings())
	}
	all := m.ListAudit(&wire.ListAuditRequest{PageSize: 1_000}).Records
	if len(all) != maxAudit+maxImported || all[0].Action != wire.AuditRecord_RESTORE || all[0].Reason != "disaster" || all[0].Backup.GetClusterId() != "lost" || all[0].Backup.GetToken() != 9 {
		t.Fatalf("%d records, the newest %v", len(all), all[0])
	}
	if got := all[1].Imported; got.GetClusterId() != "older" || got.GetId() != 3 || got.GetRestoreId() != all[0].Id {
		t.Errorf("imported twice: %v", all[1])
	}
	if got := all[2].Imported; got.GetClusterId() != "lost" || got.GetId() != 40+maxRestoredAudit-2 || got.GetRestoreId() != all[0].Id {
		t.Errorf("imported: %v", all[2])
	}
	own := slices.DeleteFunc(slices.Clone(all), func(r *wire.AuditRecord) bool { return r.Imported != nil })
	if len(own) != maxAudit || own[1].Reason != "mine" || own[maxAudit-1].Id != 2 {
		t.Errorf("%d own records, down to %v", len(own), own[len(own)-1])
	}
	ids := map[uint64]bool{}
	for _, r := range all {
		if ids[r.Id] {
			t.Errorf("two records have id %d", r.Id)
		}
		ids[r.Id] = true
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if m = restored(t, snapshotOf(t, m)); m.Lineage() != "second" || m.used() != true {
		t.Errorf("lineage %q after a snapshot", m.Lineage())
	}
	if acquireNow(t, m, openSession(t, m, "s"), 1, "a").Token != 1<<40+1 {
		t.Error("a token of the backup came again")
	}
}

// TestRestorableAudit checks that the newest records that fit are chosen, by id.
func TestRestorableAudit(t *testing.T) {
	var records []*wire.AuditRecord
	for i := range 700 {
		records = append(records, &wire.AuditRecord{Id: 700 - uint64(i), Reason: strings.Repeat("r", 10)})
	}
	if got := RestorableAudit(records); len(got) != maxRestoredAudit || got[0].Id != 700-maxRestoredAudit+1 || got[len(got)-1].Id != 700 {
		t.Errorf("%d records, from %v", len(got), got[0])
	}
	for _, r := range records {
		r.Reason = strings.Repeat("r", 1024)
	}
	got := RestorableAudit(records)
	if size := proto.Size(&wire.RestoreBackup{Audit: got}); size > maxRestoredBytes || size < maxRestoredBytes-2000 || got[len(got)-1].Id != 700 {
		t.Errorf("%d records of %d bytes", len(got), size)
	}
}

// TestAuditTextsCanBeKept invalidates each text of a record.
func TestAuditTextsCanBeKept(t *testing.T) {
	for name, spoil := range map[string]func(*wire.AuditRecord){
		"":                      func(*wire.AuditRecord) {},
		"a client's name":       func(r *wire.AuditRecord) { r.ClientName = "\xff" },
		"a member":              func(r *wire.AuditRecord) { r.Member = "a\nb" },
		"an address":            func(r *wire.AuditRecord) { r.Address = "a\nb" },
		"a lock":                func(r *wire.AuditRecord) { r.Lock = "a\n" },
		"an imported cluster":   func(r *wire.AuditRecord) { r.Imported = &wire.AuditImport{ClusterId: "a\nb"} },
		"a backup's cluster":    func(r *wire.AuditRecord) { r.Backup = &wire.Backup{ClusterId: "a\nb"} },
		"a backup's lineage":    func(r *wire.AuditRecord) { r.Backup = &wire.Backup{Lineage: "a\nb"} },
		"an operator":           func(r *wire.AuditRecord) { r.Operator = "a\nb" },
		"a reason":              func(r *wire.AuditRecord) { r.Reason = "a\nb" },
		"an action of the past": func(r *wire.AuditRecord) { r.Action = wire.AuditRecord_UNSPECIFIED },
		"an action to come":     func(r *wire.AuditRecord) { r.Action = 99 },
	} {
		r := &wire.AuditRecord{Id: 1, Action: wire.AuditRecord_REVOKE, Reason: "r", ClientName: "c", Lock: "l"}
		if spoil(r); (validAudit(r) == nil) != (name == "") {
			t.Errorf("%q: %v", name, validAudit(r))
		}
	}
}

// TestAuditRecordsHaveOutcomes checks the record of an act on a hold of many locks with long names, and that of an act
// whose caller has lost its right meanwhile.
func TestAuditRecordsHaveOutcomes(t *testing.T) {
	m := bootstrapped(t)
	session := openSession(t, m, "a")
	op := &wire.Acquire{}
	for i := range 8 {
		op.Locks = append(op.Locks, &wire.LockRequest{Name: fmt.Sprint(strings.Repeat("l/", 250), i), Mode: wire.Mode_EXCLUSIVE})
	}
	granted := applyOne(t, m, &wire.Command{SessionId: session, Seq: 1, Op: &wire.Command_Acquire{Acquire: op}}).Results[0]
	forced := applyOne(t, m, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: granted.HoldId, Token: granted.Token, Reason: "r", Ticket: "T-1"}}})
	if forced.Results[0].Status != wire.Status_OK {
		t.Fatalf("%v, %v", granted, forced.Results[0])
	}
	r := m.AuditAfter(0)[0]
	if len(r.Locks) != 4 || r.FurtherLocks != 4 || r.Locks[3] != op.Locks[3].Name || r.Lock != r.Locks[0] || r.Ticket != "T-1" || r.Outcome != wire.Status_OK {
		t.Errorf("record %v", r)
	}
	setPolicy(t, m, bindings())
	act := &wire.RecordAct{Action: wire.AuditRecord_SAVE_SNAPSHOT, Reason: "r"}
	record := func() wire.Status_Code {
		return applyOne(t, m, &wire.Command{Op: &wire.Command_RecordAct{RecordAct: act}, Caller: &wire.Caller{Identity: "ann"}}).Results[0].Status
	}
	if got := record(); got != wire.Status_PERMISSION_DENIED {
		t.Errorf("ann may begin: %v", got)
	}
	act.Outcome, act.Message, act.BegunRevision = wire.Status_UNAVAILABLE, "no quorum", 7
	if got := record(); got != wire.Status_OK {
		t.Errorf("the outcome is not recorded: %v", got)
	}
	kept := m.AuditAfter(0)
	if r := kept[len(kept)-1]; r.Outcome != wire.Status_UNAVAILABLE || r.Message != "no quorum" || r.BegunRevision != 7 {
		t.Errorf("record %v", r)
	}
}

// TestRecoveryIsRecorded verifies that only the restore with which a recovered cluster begins is recorded as a recovery.
func TestRecoveryIsRecorded(t *testing.T) {
	recovered := wire.RecoveredID("prod", "1")
	for name, c := range map[string]struct {
		cluster, backup string
		used            bool
		want            wire.AuditRecord_Action
	}{
		"a recovery":                          {recovered, "prod", false, wire.AuditRecord_RECOVER},
		"of a recovered cluster":              {wire.RecoveredID(recovered, "2"), recovered, false, wire.AuditRecord_RECOVER},
		"a restore into a recovered cluster":  {recovered, "prod", true, wire.AuditRecord_RESTORE},
		"a backup of another cluster":         {recovered, "other", false, wire.AuditRecord_RESTORE},
		"a backup of the cluster itself":      {"prod", "prod", false, wire.AuditRecord_RESTORE},
		"a backup of the cluster's recovery":  {"prod", recovered, false, wire.AuditRecord_RESTORE},
		"a backup whose cluster is not known": {recovered, "", false, wire.AuditRecord_RESTORE},
	} {
		m := New(Level)
		applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: c.cluster}))
		if c.used {
			applyOne(t, m, &wire.Command{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_SAVE_SNAPSHOT, Reason: "r"}}})
		}
		restore := &wire.RestoreBackup{ClusterId: c.cluster, Lineage: "l", Reason: "r", Backup: &wire.Backup{ClusterId: c.backup}}
		if r := applyOne(t, m, &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: restore}}).Results[0]; r.Status != wire.Status_OK {
			t.Fatalf("%s: %v", name, r)
		}
		if last := m.ListAudit(&wire.ListAuditRequest{PageSize: 1}).Records[0]; last.Action != c.want || last.Outcome != wire.Status_OK {
			t.Errorf("%s: %v", name, last)
		}
	}
}
