package replica

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// acquiring returns an acquire of one lock, modified by change if that is not nil.
func acquiring(session, seq uint64, name string, change func(*wire.Acquire)) *wire.Command {
	op := &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}}
	if change != nil {
		change(op)
	}
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: op}}
}

// TestReignsBeginWithEveryDeadline starts a leadership with a state that has something of each kind that ends
// by time.
func TestReignsBeginWithEveryDeadline(t *testing.T) {
	r := governing(t)
	one, two := r.openNow(t, "one"), r.openNow(t, "two")
	results := r.applyNow(t,
		acquiring(one, 1, "bounded", func(a *wire.Acquire) { a.MaxHoldMs = 10_000 }),
		acquiring(one, 2, "revoked", nil),
		acquiring(one, 3, "delayed", func(a *wire.Acquire) { a.LockDelayMs = 20_000 }),
		acquiring(two, 1, "bounded", func(a *wire.Acquire) { a.WaitMs = 30_000 }),
		acquiring(two, 2, "revoked", func(a *wire.Acquire) { a.WaitForever = true }),
		&wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{
			SecretHash: opening("lease").GetOpenSession().SecretHash, TtlMs: 50_000, Acquire: acquiring(0, 0, "leased", nil).GetAcquire(),
		}}},
	).Results
	hold := func(i int) uint64 { return results[i].GetHoldId() }
	ended := r.applyNow(t,
		&wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: hold(1), Token: results[1].GetToken(), Reason: "r", GraceMs: 40_000}}},
		&wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: hold(2), Token: results[2].GetToken(), Reason: "r"}}},
	).Results
	for i, result := range append(results, ended...) {
		if s := result.GetStatus(); s != wire.Status_OK && s != wire.Status_GRANTED && s != wire.Status_QUEUED {
			t.Fatalf("command %d: %v", i, result)
		}
	}
	var lease uint64
	r.machine.View(func(m *fsm.Machine) {
		m.EachSession(func(s fsm.Session) bool {
			if s.Leased {
				lease = s.ID
			}
			return true
		})
	})
	r.deadlines.stop()
	if _, known := r.HeartbeatAge(one); known {
		t.Error("after the reign a session has an age")
	}
	if _, bounded := r.Remaining(one); bounded {
		t.Error("after the reign a session has time left")
	}
	<-r.deadlines.wake
	r.machine.View(func(m *fsm.Machine) { r.deadlines.start(2, m) })
	want := map[ending]time.Duration{}
	for _, c := range []struct {
		of  kind
		id  uint64
		ttl time.Duration
	}{
		{ofSession, one, time.Minute}, {ofSession, two, time.Minute}, {ofSession, lease, 50 * time.Second},
		{ofHold, hold(0), 10 * time.Second}, {ofGrace, hold(1), 40 * time.Second}, {ofDelay, hold(2), 20 * time.Second}, {ofWait, hold(3), 30 * time.Second},
	} {
		want[ending{of: c.of, id: c.id}] = c.ttl
	}
	got := 0
	for of := range kinds {
		for id, e := range r.deadlines.tables[of] {
			got++
			if e.ttl != want[ending{of: of, id: id}] || e.fixed != (id == lease) || e.at != e.last.Add(e.ttl) {
				t.Errorf("kind %d of %d: after %v, fixed %v", of, id, e.ttl, e.fixed)
			}
		}
	}
	if got != len(want) || len(r.deadlines.heap) != got || len(r.deadlines.wake) != 1 {
		t.Errorf("%d deadlines, want %d; %d in the heap", got, len(want), len(r.deadlines.heap))
	}
}

// TestEndingsCostWhatTheirSessionHolds verifies that an expiry's work includes the session's locks, so that
// an entry has room only for a few sessions with many locks.
func TestEndingsCostWhatTheirSessionHolds(t *testing.T) {
	r := governing(t)
	session := r.openNow(t, "a")
	r.applyNow(t, acquiring(session, 1, "x", nil), acquiring(session, 2, "y", nil))
	if !r.proposeEnding(1, ending{ofSession, session, 1}, nil) || r.proposer.work != 3 {
		t.Errorf("the end of a session with two locks is of work %d", r.proposer.work)
	}
}
