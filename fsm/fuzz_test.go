package fsm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// FuzzApply checks that any bytes of an entry lead to results or an error, that no handler panics, and
// that every invariant holds afterwards.
func FuzzApply(f *testing.F) {
	base, many, locked, keys, cached := busy(f, 1), family(f), guarded(f), keyed(f), caching(f)
	for seed := range uint64(20) {
		log := walk(seed+6e6, 40) // every fourth one is with keys
		f.Add(entry(f, log[1:]...))
		f.Add(entry(f, log[20:22]...))
	}
	f.Add([]byte{})
	f.Add(bootEntry(f))
	f.Add(newerEntry(f))
	f.Add(entry(f, ofTheFamily(many)...))
	f.Add(entry(f, ofTheFamily(locked)...))
	f.Add(entry(f, ofTheFamily(cached)...))
	f.Add(entry(f, strangeAccess()...))
	for _, cmd := range strange(base) {
		f.Add(entry(f, cmd))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range []*Machine{base.Fork(), many.Fork(), locked.Fork(), keys.Fork(), cached.Fork(), New(Level)} {
			revision := m.Revision()
			applied, err := m.Apply(data)
			switch {
			case err != nil:
				if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUpgrade) || m.Revision() != revision {
					t.Fatalf("%v at revision %d after %d", err, m.Revision(), revision)
				}
			case len(applied.Failures) > 0:
				t.Fatalf("a handler panicked: %+v", applied.Failures)
			case m.Revision() < revision+uint64(len(applied.Results)), m.Revision() > revision+uint64(maxKeys*len(applied.Results)):
				t.Fatalf("revision %d after %d and %d commands", m.Revision(), revision, len(applied.Results))
			}
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// ofTheFamily returns commands of every kind about the state of family.
func ofTheFamily(m *Machine) []*wire.Command {
	var commands []*wire.Command
	add := func(session, seq uint64, cmd *wire.Command) {
		cmd.SessionId, cmd.Seq = session, seq
		commands = append(commands, cmd)
	}
	several := &wire.Acquire{WaitForever: true, Notify: true, LockDelayMs: 500, MaxHoldMs: 700, Locks: []*wire.LockRequest{
		{Name: "a", Mode: wire.Mode_SHARED}, {Name: "s", Permits: 2, Limit: 3},
	}}
	m.EachSession(func(s Session) bool {
		add(s.ID, 901, &wire.Command{Op: &wire.Command_Acquire{Acquire: several}})
		add(s.ID, 902, acquiringCached("c", 3))
		return true
	})
	add(0, 0, &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: secretHash("lease"), Acquire: several}}})
	m.claims.each(0, func(c *claim) bool {
		id := c.id
		add(c.session, id+1_000, &wire.Command{Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: id, Token: c.token, WaitForever: true}}})
		add(c.session, id+2_000, &wire.Command{Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: id, Token: c.token}}})
		add(c.session, id+3_000, &wire.Command{Op: &wire.Command_Extend{Extend: &wire.Extend{HoldId: id, Token: c.token, MaxHoldMs: 100}}})
		add(0, 0, &wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: id, Token: c.token, GraceMs: 5, Reason: "r"}}})
		add(0, 0, &wire.Command{Op: &wire.Command_ExpireHold{ExpireHold: &wire.ExpireHold{HoldId: id, Term: m.Term(), Generation: 1}}})
		if s, live := m.Session(c.session); live && s.Leased {
			add(0, 0, &wire.Command{Op: &wire.Command_ConfirmLease{ConfirmLease: &wire.ConfirmLease{SecretHash: s.SecretHash, HoldId: id}}})
		}
		add(0, 0, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: id, Token: c.token, Reason: "r"}}})
		return true
	})
	add(0, 0, &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "s", Limit: 2, Reason: "r"}}})
	add(0, 0, &wire.Command{Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: secretHash("lease")}}})
	add(0, 0, &wire.Command{Op: &wire.Command_SkipDelay{SkipDelay: &wire.SkipDelay{Name: "a", Reason: "r"}}})
	add(0, 0, &wire.Command{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Reason: "r", Member: "n4"}}})
	add(0, 0, &wire.Command{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_DRAIN_MEMBER, Reason: "r", Member: "n1"}}})
	return append(commands, ofAccess(m)...)
}

// acquiringCached waits for a cached hold with that many tokens.
func acquiringCached(name string, tokens uint32) *wire.Command {
	return &wire.Command{Op: &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{
		Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true, MaxHoldMs: 300, LockDelayMs: 200},
		Tokens:  tokens, IdleMs: 1_000,
	}}}
}

// strange returns commands with numbers at the limits of their ranges.
func strange(m *Machine) []*wire.Command {
	const most = 1<<64 - 1
	var id uint64
	m.EachSession(func(s Session) bool { id = s.ID; return true })
	var hold HoldDeadline
	m.EachHoldDeadline(func(h HoldDeadline) bool { hold = h; return true })
	return []*wire.Command{
		{SessionId: id, Seq: most, AckedBelow: most, Acked: []uint64{0, 1, most}, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "a"}}, Owner: most, WaitMs: 1<<32 - 1, WaitForever: true,
		}}},
		{SessionId: id, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "x", Mode: -1}}}}},
		{SessionId: id, Seq: 2, Op: &wire.Command_AcquireCached{}},
		{SessionId: id, Seq: 3, Op: &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{Tokens: 1<<32 - 1, IdleMs: 1<<32 - 1, Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{nil}, MaxHoldMs: 1<<32 - 1, Owner: most,
		}}}},
		{SessionId: id, Seq: most - 1, Op: &wire.Command_Release{Release: &wire.Release{HoldId: most, Token: most}}},
		{SessionId: id, Seq: most - 2, Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: most}}},
		{SessionId: most, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}},
		{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: most}}},
		{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{SessionId: id, Term: m.Term(), Generation: 1}}},
		{Op: &wire.Command_TimeoutWait{TimeoutWait: &wire.TimeoutWait{WaitId: most}}},
		{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: &wire.Member{Id: "n9", Level: 1}}}},
		{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: &wire.Member{Id: "n9", Level: 1, Drained: true}}}},
		{Op: &wire.Command_RecordAct{RecordAct: &wire.RecordAct{Action: wire.AuditRecord_UNDRAIN_MEMBER, Reason: "r", Member: "n1", Outcome: wire.Status_OK}}},
		{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: "n1"}}},
		{SessionId: id, Seq: most - 3, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks:     []*wire.LockRequest{{Name: "s", Limit: 1 << 31, Permits: 1 << 31}, {Name: "t", Limit: most, Permits: most}},
			MaxHoldMs: 1<<32 - 1, LockDelayMs: 1<<32 - 1, Order: -1,
		}}},
		{SessionId: id, Seq: most - 4, Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: hold.HoldID, Token: most, WaitForever: true}}},
		{SessionId: id, Seq: most - 5, Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: most}}},
		{SessionId: id, Seq: most - 6, Op: &wire.Command_Extend{Extend: &wire.Extend{HoldId: hold.HoldID, MaxHoldMs: 1<<32 - 1}}},
		{Op: &wire.Command_ExpireHold{ExpireHold: &wire.ExpireHold{HoldId: hold.HoldID, Term: m.Term(), Generation: hold.Generation}}},
		{Op: &wire.Command_EndDelay{EndDelay: &wire.EndDelay{HoldId: hold.HoldID, Term: m.Term(), Generation: 1}}},
		{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: hold.HoldID, Token: most, Reason: "r"}}},
		{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: hold.HoldID, GraceMs: 1<<32 - 1, Reason: "r"}}},
		{Op: &wire.Command_SkipDelay{SkipDelay: &wire.SkipDelay{Name: "a", HoldId: most, Reason: "r"}}},
		{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "b", Limit: most, Reason: "r"}}},
		{Op: &wire.Command_ForceClose{ForceClose: &wire.ForceClose{SessionId: most, Reason: "r"}}},
		{Op: &wire.Command_ForceClose{ForceClose: &wire.ForceClose{SessionId: id, Reason: "r"}}},
		{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{TokenFloor: most, Lineage: "l", Reason: "r", Audit: []*wire.AuditRecord{{Id: most}, nil}}}},
		{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: secretHash("x"), Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{nil}, Owner: most,
		}}}},
		{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: secretHash("y")}}},
		{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: secretHash("z"), OwnerValue: []byte("v"), TtlMs: 10}}},
		{Op: &wire.Command_ChangeKeys{}},
		{Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{
			Action: wire.ChangeKeys_EXTEND, Names: []string{"a"}, NodeId: "n1", Boot: most, Seq: 1<<63 - 1, AckedBelow: 1<<63 - 1, TtlMs: 10,
			Version: &wire.KeyVersion{HoldId: most, Generation: most},
		}}},
		{Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{
			Action: -1, Names: []string{"a"}, NodeId: "n1", Boot: most, Seq: most, AckedBelow: most, CompareBytes: 1<<32 - 1,
		}}},
		{Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{Action: wire.ChangeKeys_DELETE, Names: []string{"a", "b"}, NodeId: "n1", Boot: most, Seq: 1<<63 - 1, Force: true}}},
		{Op: &wire.Command_RecordRemaining{}},
		{Op: &wire.Command_RecordRemaining{RecordRemaining: &wire.RecordRemaining{Term: m.Term(), Keys: []*wire.RecordRemaining_Remaining{
			{SessionId: id, Generation: 1, RemainingMs: 1<<32 - 1}, {SessionId: most, Generation: most}, nil,
		}}}},
		{Op: &wire.Command_ExtendLease{}},
		{Op: &wire.Command_ConfirmLease{}},
		{Op: &wire.Command_ReleaseLease{}},
	}
}

// FuzzRestore checks that any bytes lead to a machine or an error. The bytes are tried as they are, and
// as records with a correct checksum, which a fuzzer would not find. A restored machine can be written
// and restored again, and keeps working.
func FuzzRestore(f *testing.F) {
	for seed := range uint64(5) {
		good := snapshotOf(f, busy(f, seed*100))
		f.Add(good)
		f.Add(bytes.Join(records(f, good), nil))
		f.Add(good[:len(good)/2])
	}
	f.Add(snapshotOf(f, New(Level)))
	f.Add(snapshotOf(f, twoLocks(f)))
	f.Add(snapshotOf(f, family(f)))
	f.Add(snapshotOf(f, guarded(f)))
	f.Add(snapshotOf(f, keyed(f)))
	f.Add(snapshotOf(f, caching(f)))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add(bytes.Repeat([]byte{0xff}, 11)) // no valid length
	log := walk(7e6, 30)
	f.Fuzz(func(t *testing.T, data []byte) {
		tryRestore(t, data, log)
		if sealed, ok := reseal(t, data); ok {
			tryRestore(t, sealed, log)
		}
	})
}

func tryRestore(t *testing.T, data []byte, log []*wire.Command) {
	t.Helper()
	m, err := Restore(bytes.NewReader(data), Level)
	if err != nil {
		if m != nil || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUpgrade) {
			t.Fatalf("%v, %v", m, err)
		}
		return
	}
	first := snapshotOf(t, m)
	if !bytes.Equal(snapshotOf(t, restored(t, first)), first) {
		t.Fatal("written differently after restoring it again")
	}
	discarded := m.Discarded()
	for _, cmd := range log {
		if m.Revision() >= 1<<62 || m.Token() >= maxTokenFloor {
			return // counters that no cluster reaches
		}
		if _, err := m.Apply(entry(t, cmd)); err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); err != nil {
			t.Fatalf("after %v: %v", cmd, err)
		}
	}
	if m.Discarded() != discarded {
		t.Fatal("a handler panicked")
	}
}

// reseal reads the bytes as framed records, as far as that is possible, and appends the correct trailer.
func reseal(t *testing.T, data []byte) ([]byte, bool) {
	t.Helper()
	reader := &recordReader{r: bufio.NewReader(bytes.NewReader(data)), sum: sha256.New()}
	var whole [][]byte
	for len(whole) < 1_000 {
		record, err := reader.next()
		if err != nil || record.GetTrailer() != nil {
			break
		}
		whole = append(whole, framed(t, record))
	}
	return sealed(t, whole...), len(whole) > 0
}
