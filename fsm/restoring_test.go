package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestRestoringRefusesRecords adds records to a restore that has session 1 and lock a, whose limit is 3.
func TestRestoringRefusesRecords(t *testing.T) {
	request := func(name string, permits uint64) []*wire.LockRequest {
		return []*wire.LockRequest{{Name: name, Mode: wire.Mode_PERMITS, Permits: permits}}
	}
	for name, c := range map[string]struct {
		add  func(r *restoring) error
		want string // "" if the record is accepted
	}{
		"the largest limit": {func(r *restoring) error { return r.lock(&wire.LockRecord{Id: 2, Name: "b", Limit: maxLimit}) }, ""},
		"a larger limit":    {func(r *restoring) error { return r.lock(&wire.LockRecord{Id: 2, Name: "b", Limit: maxLimit + 1}) }, "has limit"},
		"a lock again":      {func(r *restoring) error { return r.lock(&wire.LockRecord{Id: 1, Name: "a"}) }, "out of order"},
		"a wait": {func(r *restoring) error {
			return r.claim(&wire.ClaimRecord{Id: 9, SessionId: 1, Seq: 1, Generation: 1, Locks: request("a", 3)})
		}, ""},
		"a wait of no session": {func(r *restoring) error {
			return r.claim(&wire.ClaimRecord{Id: 9, SessionId: 7, Seq: 1, Generation: 1, Locks: request("a", 3)})
		}, "of no session"},
		"a wait for no lock": {func(r *restoring) error {
			return r.claim(&wire.ClaimRecord{Id: 9, SessionId: 1, Seq: 1, Generation: 1})
		}, "is for 0 locks"},
		"a wait for too many locks": {func(r *restoring) error {
			return r.claim(&wire.ClaimRecord{Id: 9, SessionId: 1, Seq: 1, Generation: 1, Locks: make([]*wire.LockRequest, maxLocks+1)})
		}, "is for 65 locks"},
		"a wait for a lock that is not there": {func(r *restoring) error {
			return r.claim(&wire.ClaimRecord{Id: 9, SessionId: 1, Seq: 1, Generation: 1, Locks: request("b", 3)})
		}, "which is not there"},
		"a wait for more permits than can be": {func(r *restoring) error {
			return r.claim(&wire.ClaimRecord{Id: 9, SessionId: 1, Seq: 1, Generation: 1, Locks: request("a", maxLimit+1)})
		}, "which is not there"},
		"a hold that was never granted": {func(r *restoring) error {
			return r.claim(&wire.ClaimRecord{Id: 9, SessionId: 1, Seq: 1, Generation: 1, Token: 5, Locks: request("a", 1)})
		}, "has token 5, granted at 0"},
	} {
		m := bootstrapped(t)
		openSession(t, m, "ann")
		r := &restoring{m: m}
		if err := r.lock(&wire.LockRecord{Id: 1, Name: "a", Limit: 3}); err != nil {
			t.Fatal(err)
		}
		if err := c.add(r); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestTrimKeepsWhatIsSpecial removes the options of a hold one at a time; the others must stay.
func TestTrimKeepsWhatIsSpecial(t *testing.T) {
	for name, c := range map[string]struct {
		vary  func(*extra)
		keeps bool
	}{
		"nothing":          {func(*extra) {}, false},
		"a value":          {func(e *extra) { e.value = []byte("v") }, true},
		"a bound":          {func(e *extra) { e.holdGeneration = 1 }, true},
		"a lock-delay":     {func(e *extra) { e.delayGeneration = 1 }, true},
		"a revocation":     {func(e *extra) { e.revocation = &wire.Revocation{} }, true},
		"told":             {func(e *extra) { e.wanted = true }, true},
		"wants to be told": {func(e *extra) { e.notify = true }, true},
	} {
		for _, late := range []bool{false, true} {
			hold := &claim{id: 1, token: 1, since: 7}
			if late {
				hold.recordLateGrant(5)
			}
			queued := hold.queued()
			c.vary(hold.vary())
			hold.trim()
			if (hold.extra() != nil) != c.keeps || (hold.more != nil) != (c.keeps || late) || hold.late() != late || hold.queued() != queued {
				t.Errorf("%s, granted late: %v: %+v", name, late, hold)
			}
		}
	}
	(&claim{}).trim() // one that never had options
}

// TestDeadlocksOfOneAnswer creates more cycles than one answer lists.
func TestDeadlocksOfOneAnswer(t *testing.T) {
	m := bootstrapped(t)
	a := newAsker(t, m, "ann", "bob")
	wait := func(who string, owner uint64, name string, want wire.Status_Code) {
		a.acquire(who, &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}, Owner: owner, WaitForever: true, AllowDeadlock: true}, want)
	}
	for i := range uint64(maxDeadlocks + 1) {
		x, y := fmt.Sprint("x", i), fmt.Sprint("y", i)
		wait("ann", i, x, wire.Status_GRANTED)
		wait("bob", i, y, wire.Status_GRANTED)
		wait("ann", i, y, wire.Status_QUEUED)
		wait("bob", i, x, wire.Status_QUEUED)
	}
	if got := m.ListDeadlocks(nil).Deadlocks; len(got) != maxDeadlocks {
		t.Errorf("%d deadlocks are told", len(got))
	}
}

// TestClockOfARestoreIsBounded restores at the last millisecond of the clock, and one millisecond later.
func TestClockOfARestoreIsBounded(t *testing.T) {
	m := bootstrapped(t)
	for clock, good := range map[uint64]bool{maxClock: true, maxClock + 1: false} {
		r := m.validFloors(&wire.RestoreBackup{ClockUnixMs: clock})
		if told := r != nil && strings.HasPrefix(r.Message, "clock_unix_ms"); told == good {
			t.Errorf("clock %d: %v", clock, r)
		}
	}
}
