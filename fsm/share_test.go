package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestShareOfTheState fills the state for one identity, first without a policy and then with one. With a policy, half
// of the state remains for others, and the leader refuses more before it is logged.
func TestShareOfTheState(t *testing.T) {
	for _, restricted := range []bool{false, true} {
		m := New(Level)
		applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c", Settings: &wire.Settings{MaxSessionBytes: MinSessionBytes, MaxStateBytes: MinStateBytes}}))
		if restricted {
			setPolicy(t, m, bindings("*", "user"))
		}
		const usable = MinStateBytes - fixedUnits - operatorUnits
		cmd, refusal := fillState(t, m, "flood")
		used := m.usedBy("flood").Bytes
		if !restricted {
			if !strings.HasPrefix(refusal.Message, "max_state_bytes: the state takes") || used < usable-8<<10 {
				t.Errorf("without a policy %d units were used, then: %v", used, refusal)
			}
			continue
		}
		if !strings.Contains(refusal.Message, `the sessions of "flood"`) || used > usable/2 || used < usable/2-8<<10 {
			t.Errorf("with a policy %d units were used, then: %v", used, refusal)
		}
		if r := m.Exhausted(cmd, 0); !strings.Contains(r.GetMessage(), `the sessions of "flood"`) {
			t.Errorf("before the log: %v", r)
		}
		openAs(t, m, "ann's", "ann")
	}
}

// fillState opens sessions of an identity with holds until one is refused for something else than its own budget, and
// returns the request with its refusal.
func fillState(t *testing.T, m *Machine, identity string) (*wire.Command, *wire.Result) {
	t.Helper()
	for i := 0; ; i++ {
		open := asCaller(identity, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secretHash(fmt.Sprint(identity, i))}}})
		opened := applyOne(t, m, open).Results[0]
		if opened.Status != wire.Status_OK {
			return open, opened
		}
		id := opened.Session.SessionId
		for seq := uint64(1); ; seq++ {
			cmd := &wire.Command{SessionId: id, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
				Locks: []*wire.LockRequest{{Name: fmt.Sprint(id, "/", seq)}}, Value: make([]byte, 1_000),
			}}}
			r := applyOne(t, m, cmd).Results[0]
			if r.Status == wire.Status_GRANTED {
				continue
			}
			if !strings.HasPrefix(r.Message, "max_session_bytes") {
				return cmd, r
			}
			break
		}
	}
}

// TestShareOfLocksBeforeTheLog verifies that the leader refuses claims on new locks before they are logged, and those
// on existing locks not.
func TestShareOfLocksBeforeTheLog(t *testing.T) {
	m := New(Level)
	applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c", Settings: &wire.Settings{MaxLocks: 64}}))
	setPolicy(t, m, bindings("*", "user"))
	id := openAs(t, m, "s", "flood")
	ask := func(seq uint64, name string) *wire.Command {
		return asCaller("flood", &wire.Command{SessionId: id, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}, Owner: seq, WaitForever: true}}})
	}
	for seq := uint64(1); seq <= 32; seq++ {
		if r := m.Exhausted(ask(seq, fmt.Sprint(seq)), 0); r != nil {
			t.Fatalf("lock %d: %v", seq, r)
		}
		applyOne(t, m, ask(seq, fmt.Sprint(seq)))
	}
	if r := m.Exhausted(ask(33, "33"), 0); !strings.HasPrefix(r.GetMessage(), `max_locks: 32 of 64 locks exist, and "flood" has 32 claims`) {
		t.Errorf("one more: %v", r)
	}
	if r := m.Exhausted(ask(33, "1"), 0); r != nil {
		t.Errorf("a lock that exists: %v", r)
	}
}
