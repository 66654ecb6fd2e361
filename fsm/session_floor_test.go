package fsm

import (
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestSessionsOfAnEarlierHistory checks that a client from before a restore, or of a cluster that was
// created again, never gets another client's session under its own id, and learns why its session ended.
func TestSessionsOfAnEarlierHistory(t *testing.T) {
	first := bootstrapped(t)
	old := openSession(t, first, "old")

	anew := New(Level)
	applyOne(t, anew, &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{
		ClusterId: "c", TokenFloor: 1000 << 32, ClockUnixMs: epoch + 1000_000}}})
	overOf(t, anew, old)
	current := openSession(t, anew, "new")
	if want := uint64(1000<<20 + 1); current != want {
		t.Errorf("the first session is %d, want %d", current, want)
	}
	overOf(t, anew, old)

	for round, m := range []*Machine{first, anew} {
		applyOne(t, m, &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: &wire.RestoreBackup{
			Lineage: "second", Reason: "disaster", Operator: "op", ClusterId: "c", ClockUnixMs: epoch + 2000_000,
			Backup: &wire.Backup{ClusterId: "c", Token: 1000<<32 + 7, Sha256: make([]byte, 32)},
		}}})
		m = restored(t, snapshotOf(t, m))
		overOf(t, m, old)
		overOf(t, m, current)
		next := openSession(t, m, "next")
		if next <= current {
			t.Errorf("round %d: session %d after %d", round, next, current)
		}
		if r := attachTo(t, m, next+1, "next"); r.Status != wire.Status_SESSION_LOST || r.Restored {
			t.Errorf("round %d: a session that never was: %v", round, r)
		}
		if err := m.Check(); err != nil {
			t.Error(err)
		}
	}
}

// overOf checks that a session ended because its history did.
func overOf(t *testing.T, m *Machine, session uint64) {
	t.Helper()
	for _, r := range []*wire.Result{
		attachTo(t, m, session, "old"),
		applyOne(t, m, &wire.Command{SessionId: session, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "a"}}}}}).Results[0],
	} {
		if r.Status != wire.Status_SESSION_LOST || !r.Restored || r.Message == "" {
			t.Errorf("session %d: %v", session, r)
		}
	}
}

func attachTo(t *testing.T, m *Machine, session uint64, name string) *wire.Result {
	t.Helper()
	return applyOne(t, m, &wire.Command{SessionId: session, Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{
		SecretHash: secretHash(name)}}}).Results[0]
}
