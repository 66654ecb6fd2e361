package command

import (
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/expiry"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
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

// TestLeadershipsBeginWithEveryDeadline starts a leadership with a state that has something of each kind that ends
// by time.
func TestLeadershipsBeginWithEveryDeadline(t *testing.T) {
	r := newLeading(t)
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
	r.cfg.Machine.View(func(m *fsm.Machine) {
		m.EachSession(func(s fsm.Session) bool {
			if s.Leased {
				lease = s.ID
			}
			return true
		})
	})
	r.Deadlines.Stop()
	if _, known := r.HeartbeatAge(one); known {
		t.Error("after the leadership a session has an age")
	}
	if _, bounded := r.Remaining(one); bounded {
		t.Error("after the leadership a session has time left")
	}
	started := time.Now()
	r.cfg.Machine.View(func(m *fsm.Machine) { r.Deadlines.Start(2, m) })
	for _, c := range []struct {
		of  expiry.Kind
		id  uint64
		ttl time.Duration
	}{
		{expiry.Session, one, time.Minute}, {expiry.Session, two, time.Minute}, {expiry.Session, lease, 50 * time.Second},
		{expiry.Hold, hold(0), 10 * time.Second}, {expiry.Grace, hold(1), 40 * time.Second}, {expiry.Delay, hold(2), 20 * time.Second}, {expiry.Wait, hold(3), 30 * time.Second},
	} {
		if left, ok := r.Deadlines.Remaining(c.of, c.id); !ok || left > c.ttl || left < c.ttl-time.Since(started) {
			t.Errorf("kind %d of %d: %v is left, want %v", c.of, c.id, left, c.ttl)
		}
	}
	if _, bounded := r.Deadlines.Remaining(expiry.Wait, hold(4)); bounded {
		t.Error("an unbounded wait has a deadline")
	}
	if s := r.Deadlines.Touch(lease, started); s != expiry.Leased {
		t.Errorf("the lease is %v", s)
	}
}

// TestEndingsCostWhatTheirSessionHolds verifies that an expiry's work includes the session's locks, so that
// an entry has room only for a few sessions with many locks.
func TestEndingsCostWhatTheirSessionHolds(t *testing.T) {
	r := newLeading(t)
	session := r.openNow(t, "a")
	r.applyNow(t, acquiring(session, 1, "x", nil), acquiring(session, 2, "y", nil))
	if r.locksOf(session) != 2 || !r.proposeEnding(1, expireSession(session), nil) {
		t.Errorf("the end of a session with two locks counts %d", r.locksOf(session))
	}
}

// TestEndsOfAnotherTermAreNotProposed verifies that an end is proposed only in the term in which it was decided.
func TestEndsOfAnotherTermAreNotProposed(t *testing.T) {
	r := &Processor{Proposer: groupcommit.New(nil, nil), cfg: Config{Machine: fsm.NewReplicated(1, nil)}}
	r.Proposer.Begin(7)
	if r.proposeEnding(6, expireSession(1), nil) {
		t.Error("an end of term 6 was proposed under term 7")
	}
	if !r.proposeEnding(7, expireSession(1), nil) || r.Proposer.Queued() != 1 {
		t.Error("an end of term 7 was not proposed")
	}
}

// TestHoldRemaining verifies that the earlier of a hold's deadlines counts.
func TestHoldRemaining(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := openDeadlines(t, wire.Status_OK)
		r := &Processor{Deadlines: d}
		for i, c := range []struct{ bound, grace, want time.Duration }{
			{0, 0, 0}, {time.Minute, 0, time.Minute}, {0, time.Hour, time.Hour}, {time.Minute, time.Hour, time.Minute}, {time.Hour, time.Minute, time.Minute},
		} {
			hold := uint64(i + 1)
			d.Observe([]*wire.Event{
				{Type: wire.Event_GRANTED, HoldId: hold, MaxHoldMs: uint32(c.bound.Milliseconds())},
				{Type: wire.Event_REVOKED, HoldId: hold, MaxHoldMs: uint32(c.grace.Milliseconds())},
			})
			if left, ends := r.HoldRemaining(hold); left != c.want || ends != (c.want > 0) {
				t.Errorf("max_hold %v, grace %v: %v is left, %v", c.bound, c.grace, left, ends)
			}
		}
	})
}

// openDeadlines returns deadlines that run. Every end that they decide is answered with that status.
func openDeadlines(t *testing.T, answer wire.Status_Code) *expiry.Deadlines {
	d := expiry.New(func(_ uint64, _ *wire.Command, answered func(*wire.Result)) bool {
		answered(status.Result(answer, ""))
		return true
	})
	var running sync.WaitGroup
	running.Go(d.Run)
	t.Cleanup(func() {
		d.Close()
		running.Wait()
	})
	d.Start(7, fsm.New(1))
	return d
}

func opened(session uint64, ttl time.Duration) []*wire.Event {
	return []*wire.Event{{Type: wire.Event_SESSION_OPENED, SessionId: session, Generation: 1, TtlMs: uint32(ttl.Milliseconds())}}
}

// expireSession returns the command that ends a session in term 1.
func expireSession(id uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{SessionId: id, Term: 1, Generation: 1}}}
}
