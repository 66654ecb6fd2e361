package fsm

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestUnitsBoundMemory fills states of several shapes and compares their memory on the heap with their units.
func TestUnitsBoundMemory(t *testing.T) {
	if raced {
		t.Skip("the race detector has memory of its own")
	}
	for name, fill := range map[string]func(*testing.T, *Machine){
		"sessions": func(t *testing.T, m *Machine) {
			for i := range 20_000 {
				openSession(t, m, fmt.Sprint(i))
			}
		},
		"labels": func(t *testing.T, m *Machine) {
			labels := make([]*wire.Label, 1_500)
			for i := range labels {
				labels[i] = &wire.Label{}
			}
			for i := range 200 {
				applyOne(t, m, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
					SecretHash: secretHash(fmt.Sprint(i)), Client: &wire.ClientInfo{Name: "labelled", Labels: labels},
				}}})
			}
		},
		"held locks":    func(t *testing.T, m *Machine) { acquireEach(t, m, 25_000, scattered) },
		"one hot lock":  func(t *testing.T, m *Machine) { acquireEach(t, m, 30_000, func(int) string { return "hot" }) },
		"long names":    func(t *testing.T, m *Machine) { acquireEach(t, m, 10_000, longName) },
		"64-name waits": fillManyNames,
		"shared holds": func(t *testing.T, m *Machine) {
			fillWith(t, m, 25_000, func(i int) *wire.Acquire {
				return &wire.Acquire{Locks: []*wire.LockRequest{{Name: fmt.Sprint("s", i/10), Mode: wire.Mode_SHARED}}, WaitForever: true}
			})
		},
		"special holds": func(t *testing.T, m *Machine) {
			fillWith(t, m, 20_000, func(i int) *wire.Acquire {
				return &wire.Acquire{Locks: []*wire.LockRequest{{Name: scattered(i)}}, Value: make([]byte, 33), MaxHoldMs: 1_000, Notify: true}
			})
		},
		"values set again": fillValues,
		"handed over":      fillHandedOver,
		"unacknowledged":   fillWindows,
		"deadlock refusals": func(t *testing.T, m *Machine) {
			fillDeadlocks(t, m)
		},
		"mostly released": fillAndRelease,
		"keys":            fillKeys,
		"revoked":         fillRevoked,
	} {
		t.Run(name, func(t *testing.T) {
			m := spacious(t)
			before, units := liveBytes(), m.Units()
			fill(t, m)
			m.Fork() // later changes make copies
			bytes := liveBytes() - before
			units = m.Units() - units
			t.Logf("%d bytes in %d units: %.2f", bytes, units, float64(bytes)/float64(units))
			if uint64(bytes) > units {
				t.Errorf("%d bytes of memory are counted as %d units", bytes, units)
			}
			if err := m.Check(); err != nil {
				t.Error(err)
			}
			runtime.KeepAlive(m)
		})
	}
}

// fillKeys acquires keys with short values.
func fillKeys(t *testing.T, m *Machine) {
	for i := range uint64(20_000) {
		op := keyRequestOf(i+1, wire.ChangeKeys_ACQUIRE, scattered(int(i)))
		op.AckedBelow = op.Seq
		mustKeys(t, m, wire.Status_GRANTED, op)
	}
}

// fillRevoked revokes all holds, with reasons of the maximum length. The audit log is full before that.
func fillRevoked(t *testing.T, m *Machine) {
	first := m.Revision() + 2 // the first command opens a session
	acquireEach(t, m, 500, scattered)
	revoked := 0
	for hold := first; hold <= m.Revision(); hold++ {
		c, ok := m.claims.get(hold)
		if !ok {
			continue
		}
		r := applyOne(t, m, &wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{
			HoldId: c.id, Token: c.token, Reason: longText(wire.MaxReasonBytes), GraceMs: 3_600_000,
		}}}).Results[0]
		if r.Status != wire.Status_OK {
			t.Fatal(r)
		}
		revoked++
	}
	if revoked != 500 {
		t.Fatalf("%d of 500 holds were revoked", revoked)
	}
}

// longText returns a text with its own memory.
func longText(n int) string { return strings.Repeat("r", n) }

// TestFixedUnitsBoundMemory fills everything whose number is bounded, with texts of the maximum length:
// members, removed members, the audit log, and the results of requests of Redis ports.
func TestFixedUnitsBoundMemory(t *testing.T) {
	if raced {
		t.Skip("the race detector has memory of its own")
	}
	m := spacious(t)
	before := liveBytes()
	text := func(n int) string { return longText(n) }
	for i := range maxAudit + maxImported {
		records := &m.audit
		if i >= maxAudit {
			records = &m.imported
		}
		records.put(&wire.AuditRecord{
			Id: uint64(i) + 1, Action: wire.AuditRecord_RESTORE, Reason: text(wire.MaxReasonBytes), Operator: text(wire.MaxOperatorBytes),
			ClientName: text(maxClientNameBytes), Lock: text(wire.MaxNameBytes), Member: text(maxMemberText), Address: text(maxMemberText),
			Imported: &wire.AuditImport{ClusterId: text(maxMemberText)},
			Backup:   &wire.Backup{ClusterId: text(maxMemberText), Lineage: text(maxLineageBytes), Sha256: make([]byte, 32)},
		})
	}
	for i := range maxMembers {
		m.members.put(&wire.Member{Id: fmt.Sprint(i, text(maxMemberText)), PeerAddr: text(maxMemberText), ClientAddr: text(maxMemberText), HttpAddr: text(maxMemberText)})
	}
	for i := range maxAllKeyResults {
		node := fmt.Sprint(i%2, text(maxMemberText))
		if i < 2 {
			m.keySenders.put(keySender{node: node, boot: 1})
		}
		from, _ := m.keySenders.get(node)
		m.keyResults.put(&keyResult{keyRequest: keyRequest{from.node, uint64(i) + 1}})
	}
	for i := range maxRemoved {
		m.removed.put(&wire.RemovedMember{Revision: uint64(i) + 1, Id: text(maxMemberText)})
	}
	bytes := liveBytes() - before
	t.Logf("%d bytes in %d units: %.2f", bytes, fixedUnits, float64(bytes)/fixedUnits)
	if bytes > fixedUnits {
		t.Errorf("%d bytes of memory are counted as %d units", bytes, fixedUnits)
	}
	runtime.KeepAlive(m)
}

func longName(i int) string { return fmt.Sprintf("%0500d", i) }

// fillWith makes sessions of 1,000 claims each acquire.
func fillWith(t *testing.T, m *Machine, n int, op func(int) *wire.Acquire) {
	var id uint64
	for i := range n {
		seq := uint64(i%1_000) + 1
		if seq == 1 {
			id = openSession(t, m, fmt.Sprint(m.Revision()))
		}
		a := op(i)
		a.Owner = seq
		applyOne(t, m, &wire.Command{SessionId: id, Seq: seq, AckedBelow: seq, Op: &wire.Command_Acquire{Acquire: a}})
	}
}

func fillManyNames(t *testing.T, m *Machine) {
	fillWith(t, m, 1_000, func(i int) *wire.Acquire {
		op := &wire.Acquire{WaitForever: true, AllowDeadlock: true}
		for n := range maxLocks {
			op.Locks = append(op.Locks, &wire.LockRequest{Name: fmt.Sprintf("many/%d/%02d", i%20, n)})
		}
		return op
	})
}

// fillValues replaces a long value of every hold by a short one, with a fork in between.
func fillValues(t *testing.T, m *Machine) {
	var holds []*wire.Result
	id := openSession(t, m, "values")
	set := func(value []byte) {
		for i, h := range holds {
			r := applyOne(t, m, &wire.Command{SessionId: id, Seq: m.Revision(), AckedBelow: m.Revision(), Op: &wire.Command_SetValue{SetValue: &wire.SetValue{
				HoldId: h.HoldId, Token: h.Token, Value: value,
			}}}).Results[0]
			if r.Status != wire.Status_OK {
				t.Fatal(i, r)
			}
		}
	}
	for i := range 5_000 {
		holds = append(holds, applyOne(t, m, &wire.Command{SessionId: id, Seq: m.Revision(), AckedBelow: m.Revision(), Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: scattered(i)}}, Value: make([]byte, 1_024),
		}}}).Results[0])
	}
	set(make([]byte, 1_000))
	m.Fork()
	set([]byte{1})
}

// fillHandedOver creates holds that waited first.
func fillHandedOver(t *testing.T, m *Machine) {
	first := m.state.lastSession + 1
	acquireEach(t, m, 10_000, scattered)
	last := m.state.lastSession
	acquireEach(t, m, 10_000, scattered)
	m.Fork()
	for id := first; id <= last; id++ {
		applyOne(t, m, &wire.Command{SessionId: id, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
	}
}

// fillWindows creates sessions that acknowledge nothing, and some whose windows used to be large.
func fillWindows(t *testing.T, m *Machine) {
	for i := range 100 {
		id := openSession(t, m, fmt.Sprint(i))
		for seq := range uint64(600) {
			applyOne(t, m, &wire.Command{SessionId: id, Seq: seq + 1, Op: &wire.Command_Release{Release: &wire.Release{HoldId: 1, Token: 1}}})
		}
		if i%2 == 0 {
			applyOne(t, m, &wire.Command{SessionId: id, AckedBelow: 300, Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}})
		}
	}
}

// fillDeadlocks fills windows with refusals that contain long cycles.
func fillDeadlocks(t *testing.T, m *Machine) {
	const ring = 40
	ids := make([]uint64, ring)
	lock := func(i int) string { return fmt.Sprintf("ring/%s/%d", strings.Repeat("x", 300), i%ring) }
	for i := range ids {
		ids[i] = openSession(t, m, fmt.Sprint(strings.Repeat("n", 200), i))
		acquireNow(t, m, ids[i], 1, lock(i))
	}
	for i := range ids[:ring-1] {
		acquireNow(t, m, ids[i], 2, lock(i+1))
	}
	for seq := range uint64(1_000) {
		saveSearches(m, ids[ring-1])
		r := applyOne(t, m, &wire.Command{SessionId: ids[ring-1], Seq: seq + 2, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: lock(ring)}}, WaitForever: true,
		}}}).Results[0]
		if r.Status != wire.Status_DEADLOCK {
			t.Fatal(r)
		}
	}
}

// fillAndRelease keeps one of four locks, which leaves the pages of the tables half empty.
func fillAndRelease(t *testing.T, m *Machine) {
	id := openSession(t, m, "a")
	var holds []*wire.Result
	for i := range 40_000 {
		r := applyOne(t, m, &wire.Command{SessionId: id, Seq: m.Revision(), AckedBelow: m.Revision(), Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: scattered(i)}},
		}}}).Results[0]
		holds = append(holds, r)
	}
	for i, h := range holds {
		if i%4 != 0 {
			applyOne(t, m, &wire.Command{SessionId: id, Seq: m.Revision(), AckedBelow: m.Revision(), Op: &wire.Command_Release{Release: &wire.Release{HoldId: h.HoldId, Token: h.Token}}})
		}
	}
}

// TestClaimsCountByNames checks that a claim for 64 names counts 64 times.
func TestClaimsCountByNames(t *testing.T) {
	m := New(Level)
	applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c", Settings: &wire.Settings{MaxClaimsPerSession: 100}}))
	id := openSession(t, m, "a")
	many := func(seq uint64, n int) *wire.Result {
		op := &wire.Acquire{}
		for i := range n {
			op.Locks = append(op.Locks, &wire.LockRequest{Name: fmt.Sprintf("%d/%d", seq, i)})
		}
		return applyOne(t, m, &wire.Command{SessionId: id, Seq: seq, Op: &wire.Command_Acquire{Acquire: op}}).Results[0]
	}
	first := many(1, 64)
	if r := many(2, 37); r.Status != wire.Status_RESOURCE_EXHAUSTED || !strings.HasPrefix(r.Message, "max_claims_per_session") {
		t.Errorf("the 101st name: %v", r)
	}
	if r := many(3, 36); r.Status != wire.Status_GRANTED {
		t.Errorf("the 100th name: %v", r)
	}
	releaseNow(t, m, id, 4, first)
	if r := many(5, 64); r.Status != wire.Status_GRANTED {
		t.Errorf("64 names after as many were released: %v", r)
	}
}

// fullSession returns a machine whose session has used up its units, and the session's holds.
func fullSession(t *testing.T) (m *Machine, id uint64, holds []*wire.Result) {
	t.Helper()
	m = New(Level)
	applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c", Settings: &wire.Settings{MaxSessionBytes: MinSessionBytes, MaxStateBytes: MinStateBytes}}))
	id = openSession(t, m, "a")
	for seq := uint64(1); ; seq++ {
		r := applyOne(t, m, &wire.Command{SessionId: id, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: fmt.Sprint(seq)}}, Value: make([]byte, 1_000),
		}}}).Results[0]
		if r.Status != wire.Status_GRANTED {
			if r.Status != wire.Status_RESOURCE_EXHAUSTED || !strings.HasPrefix(r.Message, "max_session_bytes") {
				t.Fatal(r)
			}
			return m, id, holds
		}
		holds = append(holds, r)
	}
}

// TestFullBudgetRefusesOnlyGrowth checks that requests that give something up succeed, and that retries
// of earlier requests are answered.
func TestFullBudgetRefusesOnlyGrowth(t *testing.T) {
	m, id, holds := fullSession(t)
	do := func(seq uint64, cmd *wire.Command, want wire.Status_Code) *wire.Result {
		t.Helper()
		cmd.SessionId, cmd.Seq = id, seq
		r := applyOne(t, m, cmd).Results[0]
		if r.Status != want {
			t.Errorf("%v: %v", cmd, r)
		}
		if err := withinBudgets(m); err != nil {
			t.Error(err)
		}
		if err := m.Check(); err != nil {
			t.Error(err)
		}
		return r
	}
	value := func(hold *wire.Result, n int) *wire.Command {
		return &wire.Command{Op: &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: hold.HoldId, Token: hold.Token, Value: make([]byte, n)}}}
	}
	// Units are reserved for values that are a little smaller than before.
	for seq := uint64(1_000); seq < 1_020; seq++ {
		do(seq, value(holds[0], 999-int(seq-1_000)), wire.Status_OK)
	}
	for seq, r := uint64(1_020), (*wire.Result)(nil); r.GetStatus() != wire.Status_RESOURCE_EXHAUSTED; seq++ {
		cmd := value(holds[0], 999-int(seq-1_000))
		cmd.SessionId, cmd.Seq = id, seq
		r = applyOne(t, m, cmd).Results[0]
	}
	for seq := uint64(1_100); seq < 1_200; seq++ {
		do(seq, &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: 1, Token: 1}}}, wire.Status_NOT_HELD)
	}
	do(1_200, value(holds[0], 1_000), wire.Status_RESOURCE_EXHAUSTED)
	do(1, &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "1"}}, Value: make([]byte, 1_000)}}}, wire.Status_GRANTED)
	do(1_201, &wire.Command{Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: holds[0].HoldId, Token: holds[0].Token}}}, wire.Status_OK)
	do(1_202, value(holds[1], 10), wire.Status_OK)
	do(1_203, &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: holds[2].HoldId, Token: holds[2].Token}}}, wire.Status_OK)
	do(1_203, &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: holds[2].HoldId, Token: holds[2].Token}}}, wire.Status_OK)
	force := applyOne(t, m, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: holds[3].HoldId, Token: holds[3].Token, Reason: "r"}}}).Results[0]
	if force.Status != wire.Status_OK {
		t.Error(force)
	}
	do(0, &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}}, wire.Status_OK)
}

// TestTheStateHasABudget checks that sessions cannot exceed the budget together, and that room is
// reserved for operators.
func TestTheStateHasABudget(t *testing.T) {
	m, _, holds := fullSession(t)
	var r *wire.Result
	for i := 0; r.GetStatus() != wire.Status_RESOURCE_EXHAUSTED; i++ {
		r = applyOne(t, m, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secretHash(fmt.Sprint(i))}}}).Results[0]
	}
	if !strings.HasPrefix(r.Message, "max_state_bytes") {
		t.Error(r)
	}
	for _, h := range holds {
		r := applyOne(t, m, &wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: h.HoldId, Token: h.Token, Reason: "r", GraceMs: 1_000}}}).Results[0]
		if r.Status != wire.Status_OK {
			t.Fatal(r)
		}
	}
	if err := withinBudgets(m); err != nil {
		t.Error(err)
	}
	again := restored(t, snapshotOf(t, m))
	if again.Units() != m.Units() {
		t.Errorf("%d units, %d restored", m.Units(), again.Units())
	}
}

// TestAMillionHeldLocksFitTheDefaultBudget computes the units of a million locks with names of 64 bytes
// and outcomes that are not acknowledged.
func TestAMillionHeldLocksFitTheDefaultBudget(t *testing.T) {
	op := &wire.Acquire{Locks: []*wire.LockRequest{{Name: strings.Repeat("x", 64)}}}
	if used := fixedUnits + operatorUnits + 1_000*sessionUnits + 1_000_000*(acquireUnits(op, false)+outcomeUnits); used > DefaultStateBytes {
		t.Errorf("%d units, %d are allowed", used, DefaultStateBytes)
	}
	if used := fixedUnits + operatorUnits + 100_000*(sessionUnits+acquireUnits(op, false)); used > DefaultStateBytes {
		t.Errorf("100,000 sessions with a lock each: %d units", used)
	}
}
