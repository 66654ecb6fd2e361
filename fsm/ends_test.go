package fsm

import (
	"bytes"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestLastToken grants the last token, and nothing after it.
func TestLastToken(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "ann")
	m.state.token = maxToken - 1
	acquire := func(seq uint64, name string) *Applied {
		applied, err := m.Apply(entry(t, &wire.Command{SessionId: id, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: name}},
		}}}))
		if err != nil {
			t.Fatal(err)
		}
		return applied
	}
	if r := acquire(1, "a").Results[0]; r.Status != wire.Status_GRANTED || r.Token != maxToken {
		t.Errorf("the last token: %v", r)
	}
	after := acquire(2, "b")
	if r := after.Results[0]; r.Status != wire.Status_INTERNAL || len(after.Failures) != 1 || !strings.Contains(after.Failures[0].Panic, "exhausted") {
		t.Errorf("after it: %v, failures %v", r, after.Failures)
	}
	if m.Token() != maxToken {
		t.Errorf("the counter is at %d", m.Token())
	}
}

// TestLastAcquireOfAHold counts as many acquires as a hold may count, and no more.
func TestLastAcquireOfAHold(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "ann")
	acquire := func(seq uint64) *wire.Result {
		return applyOne(t, m, &wire.Command{SessionId: id, Seq: seq, AckedBelow: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "a"}}, Reentrant: true,
		}}}).Results[0]
	}
	first := acquire(1)
	c, _ := m.editClaim(first.HoldId)
	c.vary().again = maxAgain - 1
	if r := acquire(2); r.Status != wire.Status_GRANTED || r.Count != maxAgain+1 {
		t.Errorf("the last one: %v", r)
	}
	if r := acquire(3); r.Status != wire.Status_RESOURCE_EXHAUSTED {
		t.Errorf("one more: %v", r)
	}
}

// TestNoHoldWasNotReleased releases hold 0 with token 0 after requests that ended with OK.
func TestNoHoldWasNotReleased(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "ann")
	seq := uint64(0)
	do := func(cmd *wire.Command) *wire.Result {
		seq++
		cmd.SessionId, cmd.Seq = id, seq
		return applyOne(t, m, cmd).Results[0]
	}
	held := do(&wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}}}})
	do(&wire.Command{Op: &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: held.HoldId, Token: held.Token, Value: []byte("v")}}})
	do(&wire.Command{Op: &wire.Command_Extend{Extend: &wire.Extend{HoldId: held.HoldId, Token: held.Token, MaxHoldMs: 1_000}}})
	do(&wire.Command{Op: &wire.Command_Release{Release: &wire.Release{HoldId: held.HoldId, Token: held.Token}}})
	for _, op := range []*wire.Release{{}, {HoldId: held.HoldId}, {Token: held.Token}} {
		if r := do(&wire.Command{Op: &wire.Command_Release{Release: op}}); r.Status != wire.Status_NOT_HELD {
			t.Errorf("%v: %v", op, r)
		}
	}
}

// TestFaultsReachTheWindows makes only the write of an outcome fail.
func TestFaultsReachTheWindows(t *testing.T) {
	m := bootstrapped(t)
	m.setFault(func() { panic("on purpose") })
	defer func() {
		if recover() == nil {
			t.Error("an outcome was written")
		}
	}()
	m.outcomes.begin()
}

// TestFormatZero restores a header with format 0.
func TestFormatZero(t *testing.T) {
	r := &restoring{m: New(Level)}
	if err := r.header(&wire.SnapshotHeader{Level: Level}); err == nil || !strings.Contains(err.Error(), "format 0") {
		t.Errorf("got %v", err)
	}
}

// TestDelayOfAHoldThatCountedAcquires skips a part of the lock-delay of a hold that was acquired twice.
// What is left are permits, which are not reentrant.
func TestDelayOfAHoldThatCountedAcquires(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "ann")
	seq := uint64(0)
	acquire := func(op *wire.Acquire) *wire.Result {
		seq++
		return applyOne(t, m, &wire.Command{SessionId: id, Seq: seq, Op: &wire.Command_Acquire{Acquire: op}}).Results[0]
	}
	acquire(&wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}, {Name: "b", Permits: 1, Limit: 3}}, LockDelayMs: 1_000})
	held := acquire(&wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}, Reentrant: true})
	if held.Status != wire.Status_GRANTED || held.Count != 2 {
		t.Fatalf("acquired again: %v", held)
	}
	before := m.Units()
	applyOne(t, m, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: held.HoldId, Token: held.Token, Reason: "stuck"}}})
	if m.Units() >= before {
		t.Errorf("%d units with the hold, %d with its lock-delay and a record", before, m.Units())
	}
	applyOne(t, m, &wire.Command{Op: &wire.Command_SkipDelay{SkipDelay: &wire.SkipDelay{Name: "a", Reason: "free it"}}})
	if _, err := Restore(bytes.NewReader(snapshotOf(t, m)), Level); err != nil {
		t.Errorf("the snapshot cannot be restored: %v", err)
	}
}

// TestMembersOfOneIncarnation lets a node report the data directory of another member.
func TestMembersOfOneIncarnation(t *testing.T) {
	m := bootstrapped(t)
	put := func(id, incarnation string) *wire.Result {
		return applyOne(t, m, &wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: &wire.Member{Id: id, Incarnation: incarnation, Level: 1}}}}).Results[0]
	}
	put("n2", "i2")
	if r := put("n3", "i2"); r.Status != wire.Status_FAILED_PRECONDITION || !strings.Contains(r.Message, `node "n2"`) {
		t.Errorf("a copy of a member's directory: %v", r)
	}
	for id, incarnation := range map[string]string{"n2": "i2", "n3": "i3", "n4": "", "n5": ""} {
		if r := put(id, incarnation); r.Status != wire.Status_OK {
			t.Errorf("%s with %q: %v", id, incarnation, r)
		}
	}
	applyOne(t, m, &wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: "n3"}}})
	if _, err := Restore(bytes.NewReader(snapshotOf(t, m)), Level); err != nil {
		t.Errorf("the snapshot cannot be restored: %v", err)
	}
}

// TestReductionBeyondItsLimitSpendsIt gives a reduction enough units to find what it depends on, but not
// enough to run.
func TestReductionBeyondItsLimitSpendsIt(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "ann")
	for seq, name := range []string{"a", "b", "c"} {
		applyOne(t, m, &wire.Command{SessionId: id, Seq: uint64(seq + 1), Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}}}})
	}
	from := node{release, id, 0, 0}
	spent := 1 << 20
	if m.reduce(&spent, from) == nil {
		t.Fatal("it does not end")
	}
	spent = 1<<20 - spent
	for left := range spent {
		rest := left
		if m.reduce(&rest, from) == nil && rest > 0 {
			t.Errorf("with %d units it gives up and has %d left", left, rest)
		}
	}
}
