package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// keysCommand returns a request of the Redis port of n1 by an identity.
func keysCommand(identity string, op *wire.ChangeKeys) *wire.Command {
	cmd := &wire.Command{Op: &wire.Command_ChangeKeys{ChangeKeys: op}}
	if identity != "" {
		cmd.Caller = &wire.Caller{Identity: identity}
	}
	return cmd
}

func mustKeys(t tester, m *Machine, want wire.Status_Code, op *wire.ChangeKeys) *wire.Result {
	t.Helper()
	r := applyOne(t, m, keysCommand("", op)).Results[0]
	if r.Status != want {
		t.Fatalf("%v: %v, want %v", op, r, want)
	}
	return r
}

// keyRequestOf returns the request with a number of the first start of n1.
func keyRequestOf(seq uint64, action wire.ChangeKeys_Action, names ...string) *wire.ChangeKeys {
	return &wire.ChangeKeys{Action: action, Names: names, Value: []byte("v"), TtlMs: 30_000, NodeId: "n1", Boot: 1, Seq: seq}
}

// keyed returns a machine with the key "k" (claim 3, session 1), of which 9,000 ms remain, the key "w" (claim 4,
// session 2) and a wait for it (claim 5, session 3). Two results of n1 are remembered.
func keyed(t tester) *Machine {
	t.Helper()
	m := bootstrapped(t)
	mustKeys(t, m, wire.Status_GRANTED, keyRequestOf(7, wire.ChangeKeys_ACQUIRE, "k"))
	mustKeys(t, m, wire.Status_GRANTED, keyRequestOf(8, wire.ChangeKeys_ACQUIRE, "w"))
	applyOne(t, m, &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{
		SecretHash: secretHash("wait"), TtlMs: 20_000, OwnerValue: []byte("v"),
		Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "w"}}, WaitForever: true},
	}}})
	applyOne(t, m, &wire.Command{Op: &wire.Command_RecordRemaining{RecordRemaining: &wire.RecordRemaining{
		Term: 1, Keys: []*wire.RecordRemaining_Remaining{{SessionId: 1, Generation: 1, RemainingMs: 9_000}},
	}}})
	return m
}

// editKey edits the key of a session.
func editKey(id uint64, edit func(*key)) func(*Machine) {
	return editSession(id, func(s *session) {
		now := *s.key
		edit(&now)
		s.key = &now
	})
}

func editKeyResult(edit func(*keyResult)) func(*Machine) {
	return func(m *Machine) { damage(&m.keyResults, keyRequest{"n1", 7}, edit) }
}

func setKeySender(s keySender) func(*Machine) { return func(m *Machine) { m.keySenders.put(s) } }

var brokenKeys = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"no lease", editSession(1, func(s *session) { s.leased = false }), "not leased belongs to a key"},
	{"the shortest TTL", editSession(1, func(s *session) { s.ttl = 10; s.key = &key{value: "v"} }), ""},
	{"a short TTL", editSession(1, func(s *session) { s.ttl = 9; s.key = &key{value: "v"} }), "TTL 9 ms"},
	{"the longest TTL", editSession(1, func(s *session) { s.ttl = 86_400_000 }), ""},
	{"a long TTL", editSession(1, func(s *session) { s.ttl = 86_400_001 }), "TTL 86400001 ms"},
	{"a short TTL after its wait", editSession(3, func(s *session) { s.ttl = 9 }), "TTL 9 ms"},
	{"a wait that has its TTL", editSession(3, func(s *session) { s.unconfirmed = false }), "1 waits, to be confirmed: false"},
	{"a key without a request that could be confirmed", editSession(2, func(s *session) { s.unconfirmed = true }), "0 waits, to be confirmed: true"},
	{"no value", editKey(1, func(k *key) { k.value = "" }), "value of a key has 0 bytes"},
	{"a long value", editKey(1, func(k *key) { k.value = strings.Repeat("v", 1_025) }), "value of a key has 1025 bytes"},
	{"all remains", editKey(1, func(k *key) { k.remaining = 30_000 }), ""},
	{"more remains", editKey(1, func(k *key) { k.remaining = 30_001 }), "30001 of 30000 ms remain"},
	{"a lease of a key without its request", editSession(3, func(s *session) { s.secretHash = "" }), "its request is there"},
}

var brokenKeyRequests = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"a node that is no member", setKeySender(keySender{"n9", 1, 0}), `node "n9"`},
	{"no start", setKeySender(keySender{"n1", 0, 0}), "start 0"},
	{"acknowledged", setKeySender(keySender{"n1", 1, 7}), ""},
	{"a result that was acknowledged", setKeySender(keySender{"n1", 1, 8}), "the result of request 7"},
	{"a result of another node", func(m *Machine) { m.keyResults.put(&keyResult{keyRequest: keyRequest{"n9", 7}}) }, `node "n9"`},
	{"number 0", func(m *Machine) { m.keyResults.put(&keyResult{keyRequest: keyRequest{"n1", 0}}) }, "the result of request 0"},
	{"a number without a next one", func(m *Machine) { m.keyResults.put(&keyResult{keyRequest: keyRequest{"n1", 1 << 63}}) }, "the result of request 9223372036854775808"},
	{"a status", editKeyResult(func(r *keyResult) { r.status = wire.Status_NOT_HELD }), ""},
	{"a status that is not remembered", editKeyResult(func(r *keyResult) { r.status = wire.Status_UNAVAILABLE }), "UNAVAILABLE"},
	{"a grant of nothing", editKeyResult(func(r *keyResult) { r.count = 0 }), "count 0"},
	{"as many keys as allowed", editKeyResult(func(r *keyResult) { r.count = maxKeys }), ""},
	{"too many keys", editKeyResult(func(r *keyResult) { r.count = maxKeys + 1 }), "count 65"},
	{"a token to come", editKeyResult(func(r *keyResult) { r.token = 103 }), "token 103"},
	{"a hold to come", editKeyResult(func(r *keyResult) { r.holdID = 7 }), "hold 7"},
}

// TestKeyResultsAreBounded sends as many requests as are remembered of a node, and one more.
func TestKeyResultsAreBounded(t *testing.T) {
	m := bootstrapped(t)
	for seq := range uint64(maxKeyResults) {
		mustKeys(t, m, wire.Status_NOT_FOUND, keyRequestOf(1+seq, wire.ChangeKeys_EXTEND, "a"))
	}
	one := keyRequestOf(maxKeyResults+1, wire.ChangeKeys_EXTEND, "a")
	if r := mustKeys(t, m, wire.Status_RESOURCE_EXHAUSTED, one); !strings.Contains(r.Message, `8192 of them of node "n1"`) {
		t.Errorf("refused with %q", r.Message)
	}
	for _, node := range []string{"n2", "n3"} {
		m.members.put(&wire.Member{Id: node, Level: 1})
		m.commit()
	}
	other := func(node string, seq uint64) *wire.ChangeKeys {
		op := keyRequestOf(seq, wire.ChangeKeys_EXTEND, "a")
		op.NodeId = node
		return op
	}
	for seq := range uint64(maxAllKeyResults - maxKeyResults - 1) {
		mustKeys(t, m, wire.Status_NOT_FOUND, other("n2", 1+seq))
	}
	mustKeys(t, m, wire.Status_NOT_FOUND, other("n3", 1))
	if r := mustKeys(t, m, wire.Status_RESOURCE_EXHAUSTED, other("n3", 2)); !strings.Contains(r.Message, "of 10240 requests") {
		t.Errorf("refused with %q", r.Message)
	}
	mustKeys(t, m, wire.Status_NOT_FOUND, keyRequestOf(1, wire.ChangeKeys_EXTEND, "a"))
	one.AckedBelow = 2
	mustKeys(t, m, wire.Status_NOT_FOUND, one)
	if n := m.keyResults.len(); n != maxAllKeyResults {
		t.Errorf("%d results are remembered", n)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
}

// TestKeysAtTheDoor checks what Exhausted refuses of requests for keys before they are in the log.
func TestKeysAtTheDoor(t *testing.T) {
	m := withQuotas(t, &wire.Quota{Identity: "ann", Sessions: 2})
	do := func(op *wire.ChangeKeys) *wire.Result {
		return applyOne(t, m, keysCommand("ann", op)).Results[0]
	}
	door := func(op *wire.ChangeKeys) *wire.Result { return m.Exhausted(keysCommand("ann", op), 0) }
	if r := door(keyRequestOf(1, wire.ChangeKeys_ACQUIRE, "a", "b", "c")); !strings.HasPrefix(r.GetMessage(), "quota sessions of") {
		t.Errorf("three keys, of two: %v", r)
	}
	if r := do(keyRequestOf(1, wire.ChangeKeys_ACQUIRE, "a", "b")); r.Status != wire.Status_GRANTED || r.Count != 2 {
		t.Fatal(r)
	}
	for _, action := range []wire.ChangeKeys_Action{wire.ChangeKeys_ACQUIRE, wire.ChangeKeys_ACQUIRE_OR_EXTEND} {
		if r := door(keyRequestOf(2, action, "c")); !strings.HasPrefix(r.GetMessage(), "quota sessions of") {
			t.Errorf("%v of a third key: %v", action, r)
		}
	}
	for what, op := range map[string]*wire.ChangeKeys{
		"a retry":            keyRequestOf(1, wire.ChangeKeys_ACQUIRE, "a", "b"),
		"an extension":       keyRequestOf(2, wire.ChangeKeys_ACQUIRE_OR_EXTEND, "a"),
		"another extension":  keyRequestOf(2, wire.ChangeKeys_EXTEND, "a"),
		"a release":          keyRequestOf(2, wire.ChangeKeys_RELEASE, "a"),
		"a delete":           keyRequestOf(2, wire.ChangeKeys_DELETE, "a"),
		"one without a name": keyRequestOf(2, wire.ChangeKeys_EXTEND),
	} {
		if r := door(op); r != nil {
			t.Errorf("%s: %v", what, r)
		}
	}
	again := keyRequestOf(1, wire.ChangeKeys_ACQUIRE, "c")
	if again.Boot = 2; door(again) == nil {
		t.Error("the number of an earlier start is taken for a retry")
	}
}

// TestManyKeysAtTheDoor checks that the budget of a session bounds each key of a request, and that of the state all of
// them together.
func TestManyKeysAtTheDoor(t *testing.T) {
	m := bootstrapped(t)
	op := keyRequestOf(1, wire.ChangeKeys_ACQUIRE)
	for i := range maxKeys {
		op.Names = append(op.Names, fmt.Sprint("k", i))
	}
	one := GrowthUnits(keysCommand("", keyRequestOf(1, wire.ChangeKeys_ACQUIRE, "k10")))
	all := GrowthUnits(keysCommand("", op))
	if all < 60*one {
		t.Errorf("one key may add %d units, 64 keys %d", one, all)
	}
	m.state.settings.MaxSessionBytes = one + shrinkUnits
	if r := m.Exhausted(keysCommand("", op), 0); r != nil {
		t.Errorf("64 keys, each with room: %v", r)
	}
	m.state.settings.MaxSessionBytes = one + shrinkUnits - 1
	if r := m.Exhausted(keysCommand("", op), 0); !strings.HasPrefix(r.GetMessage(), "max_session_bytes") {
		t.Errorf("keys without room: %v", r)
	}
	m.state.settings.MaxSessionBytes = 1 << 30
	m.state.settings.MaxStateBytes = m.Units() + operatorUnits + all
	if r := m.Exhausted(keysCommand("", op), 0); r != nil {
		t.Errorf("64 keys with room: %v", r)
	}
	m.state.settings.MaxStateBytes--
	if r := m.Exhausted(keysCommand("", op), 0); !strings.HasPrefix(r.GetMessage(), "max_state_bytes") {
		t.Errorf("64 keys without room: %v", r)
	}
	before := m.Units()
	m.state.settings.MaxStateBytes++
	mustKeys(t, m, wire.Status_GRANTED, op)
	if grown := m.Units() - before; grown > all {
		t.Errorf("they took %d units, at most %d were expected", grown, all)
	}
}

// TestValuesOfKeysGrowTogether checks that the budget bounds the values that one request sets, together.
func TestValuesOfKeysGrowTogether(t *testing.T) {
	m := bootstrapped(t)
	mustKeys(t, m, wire.Status_GRANTED, keyRequestOf(1, wire.ChangeKeys_ACQUIRE, "a", "b"))
	op := keyRequestOf(2, wire.ChangeKeys_EXTEND, "a", "b")
	op.CompareBytes, op.Value = 1, []byte("v"+strings.Repeat("x", 99))
	grown := textUnits(100) - textUnits(1)
	m.state.settings.MaxStateBytes = m.Units() + operatorUnits + 2*grown - 1
	mustKeys(t, m, wire.Status_RESOURCE_EXHAUSTED, op)
	if k, _ := m.Key("a"); k.Value != "v" || k.Generation != 1 {
		t.Errorf("the first key was changed: %+v", k)
	}
	if m.Exhausted(keysCommand("", op), 0) == nil {
		t.Error("not refused at the door")
	}
	m.state.settings.MaxStateBytes += 2 * textUnits(1)
	if r := m.Exhausted(keysCommand("", op), 0); r == nil {
		t.Error("the door does not take the whole value for new") // it may refuse more than is necessary
	}
	mustKeys(t, m, wire.Status_OK, op)
	if k, _ := m.Key("b"); len(k.Value) != 100 || k.Generation != 2 {
		t.Errorf("the last key was not changed: %+v", k)
	}
}

// TestBackupsOmitValues checks that a backup can be read, and contains no value of a key.
func TestBackupsOmitValues(t *testing.T) {
	m := bootstrapped(t)
	op := keyRequestOf(1, wire.ChangeKeys_ACQUIRE, "k")
	op.Value = []byte("a secret of somebody")
	mustKeys(t, m, wire.Status_GRANTED, op)
	var backup strings.Builder
	if err := m.WriteBackup(&backup); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(backup.String(), "a secret of somebody") {
		t.Error("it contains the value")
	}
	if again, err := Restore(strings.NewReader(backup.String()), Level); err != nil || again.Revision() != m.Revision() {
		t.Errorf("read again: %v", err)
	}
	if !strings.Contains(string(snapshotOf(t, m)), "a secret of somebody") {
		t.Error("a snapshot does not contain the value either")
	}
}

// TestKeyHoldIsTheSameAfterARestore has a hold that shared its lock: it has a row among the holders in the one machine,
// and none in the other.
func TestKeyHoldIsTheSameAfterARestore(t *testing.T) {
	m := bootstrapped(t)
	read := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a", Mode: wire.Mode_SHARED}}}
	ann, bob := openSession(t, m, "ann"), openSession(t, m, "bob")
	first := applyOne(t, m, &wire.Command{SessionId: ann, Seq: 1, Op: &wire.Command_Acquire{Acquire: read}}).Results[0]
	held := applyOne(t, m, &wire.Command{SessionId: bob, Seq: 1, Op: &wire.Command_Acquire{Acquire: read}}).Results[0]
	compare := func(when string, hold uint64) {
		t.Helper()
		again := restored(t, snapshotOf(t, m))
		for what, m := range map[string]*Machine{"the machine": m, "a restored one": again} {
			if k, exists := m.Key("a"); !exists || k.HoldID != hold {
				t.Errorf("%s, %s: %+v, want hold %d", when, what, k, hold)
			}
		}
	}
	compare("shared by two", 0)
	applyOne(t, m, &wire.Command{SessionId: ann, Seq: 2, Op: &wire.Command_Release{Release: &wire.Release{HoldId: first.HoldId, Token: first.Token}}})
	compare("shared by one", 0)
	applyOne(t, m, &wire.Command{SessionId: bob, Seq: 2, Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: held.HoldId, Token: held.Token}}})
	compare("upgraded", held.HoldId)
}

// TestDeletedHoldsAreBounded deletes a lock with as many holds as are allowed, and with one more, which leaves all.
func TestDeletedHoldsAreBounded(t *testing.T) {
	m := spacious(t)
	fillWith(t, m, maxDeleted, func(int) *wire.Acquire {
		return &wire.Acquire{Locks: []*wire.LockRequest{{Name: "s", Mode: wire.Mode_SHARED}}}
	})
	mustKeys(t, m, wire.Status_GRANTED, keyRequestOf(1, wire.ChangeKeys_ACQUIRE, "k"))
	op := keyRequestOf(2, wire.ChangeKeys_DELETE, "k", "s")
	op.Force = true
	if r := mustKeys(t, m, wire.Status_FAILED_PRECONDITION, op); !strings.Contains(r.Message, "at most 1024 holds") {
		t.Errorf("refused with %q", r.Message)
	}
	if n := m.Totals().Holds; n != maxDeleted+1 {
		t.Errorf("%d holds are left", n)
	}
	op.Names = []string{"s"}
	if r := mustKeys(t, m, wire.Status_OK, op); r.Count != 1 || m.Totals().Holds != 1 {
		t.Errorf("%v, and %d holds are left", r, m.Totals().Holds)
	}
}
