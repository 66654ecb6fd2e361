package judge

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// alone is a stage with one session, whose client sends its last heartbeat after three seconds.
func alone(t *testing.T) (s *stage, session uint64) {
	s = newStage(t)
	session = s.open(ttl)
	s.pass(3 * time.Second)
	s.heartbeat(session)
	return s, session
}

func TestExpiries(t *testing.T) {
	after := func(d time.Duration) func(*stage, uint64) {
		return func(s *stage, session uint64) { s.pass(d); s.expire(session) }
	}
	for what, c := range map[string]struct {
		fault string // none expected if empty
		play  func(s *stage, session uint64)
	}{
		"in time":            {"", after(ttl)},
		"as late as may be":  {"", after(2 * ttl)},
		"too early":          {"before its client's deadline", after(ttl - 200*time.Millisecond)},
		"too late":           {"expired at", after(2*ttl + 2*time.Second)},
		"never":              {"and lives at", func(s *stage, _ uint64) { s.pass(2*ttl + 2*time.Second); s.mark("the end") }},
		"after a new leader": {"", func(s *stage, session uint64) { s.pass(ttl); s.lead(); after(2*ttl)(s, session) }},
		"after healing":      {"", func(s *stage, session uint64) { s.pass(ttl); s.mark(history.Healed); after(2*ttl)(s, session) }},
	} {
		t.Run(what, func(t *testing.T) {
			s, session := alone(t)
			c.play(s, session)
			if c.fault == "" {
				s.accepted()
			} else {
				s.refused(c.fault)
			}
		})
	}
}

// TestExpiriesWithoutStamps relies on what clients requested and received around the expiry.
func TestExpiriesWithoutStamps(t *testing.T) {
	for what, c := range map[string]struct {
		fault string
		waits time.Duration
	}{
		"in time":   {"", ttl},
		"too early": {"before its client's deadline", ttl / 2},
		"too late":  {"expired at", 3 * ttl},
	} {
		t.Run(what, func(t *testing.T) {
			s, session := alone(t)
			s.bounds.Stamps = false
			s.pass(c.waits)
			s.open(ttl)
			s.expire(session)
			s.closes(s.open(ttl))
			if c.fault == "" {
				s.accepted()
			} else {
				s.refused(c.fault)
			}
		})
	}
}

func (s *stage) expireHold(grant *wire.Result, generation uint64) {
	s.apply(&wire.Command{Op: &wire.Command_ExpireHold{ExpireHold: &wire.ExpireHold{HoldId: grant.HoldId, Term: s.term, Generation: generation}}})
}

// extend restarts the time of a bounded hold.
func (s *stage) extend(session uint64, grant *wire.Result) {
	s.t.Helper()
	op := &wire.Extend{HoldId: grant.HoldId, Token: grant.Token}
	s.request(session, &wire.Request{Body: &wire.Request_Extend{Extend: op}}, &wire.Command{Op: &wire.Command_Extend{Extend: op}})
}

// bounded is an acquire of a lock for two seconds, with a lock-delay of one second.
func bounded() *wire.Acquire {
	return &wire.Acquire{Locks: []*wire.LockRequest{{Name: "x"}}, MaxHoldMs: 2_000, LockDelayMs: 1_000}
}

// timerPlays end deadlines in time, too early or too late. fault is the expected fault.
var timerPlays = map[string]struct {
	fault string
	play  func(s *stage, a, b uint64)
}{
	"a wait":           {"", func(s *stage, a, b uint64) { s.waitFor(a, b, 500*time.Millisecond) }},
	"a wait cut short": {"the wait of", func(s *stage, a, b uint64) { s.waitFor(a, b, 490*time.Millisecond) }},
	"a wait too long":  {"only", func(s *stage, a, b uint64) { s.waitFor(a, b, 2*time.Second) }},
	"a wait without end": {"is not over", func(s *stage, a, b uint64) {
		s.lock(a, "x")
		s.acquire(b, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "x"}}, WaitMs: 500})
		s.pass(3 * time.Second)
		s.lock(a, "y")
	}},
	"a wait that a new leader begins anew": {"the wait of", func(s *stage, a, b uint64) {
		s.lock(a, "x")
		s.acquire(b, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "x"}}, WaitMs: 500})
		s.pass(400 * time.Millisecond)
		s.lead()
		s.pass(200 * time.Millisecond)
		s.timeOut("x")
	}},
	"a bounded hold and its delay": {"", func(s *stage, a, _ uint64) {
		grant := s.acquire(a, bounded())
		s.pass(2 * time.Second)
		s.expireHold(grant, 1)
		s.pass(time.Second)
		s.endDelay(grant)
	}},
	"a bounded hold cut short": {"the bound of hold", func(s *stage, a, _ uint64) {
		grant := s.acquire(a, bounded())
		s.pass(1900 * time.Millisecond)
		s.expireHold(grant, 1)
	}},
	"a bounded hold in spite of an extension": {"the bound of hold", func(s *stage, a, _ uint64) {
		grant := s.acquire(a, bounded())
		s.pass(time.Second)
		s.extend(a, grant)
		s.pass(time.Second)
		s.expireHold(grant, 2)
	}},
	"a delay cut short": {"the lock-delay of", func(s *stage, a, _ uint64) {
		grant := s.acquire(a, bounded())
		s.pass(2 * time.Second)
		s.expireHold(grant, 1)
		s.pass(900 * time.Millisecond)
		s.endDelay(grant)
	}},
	"a grace cut short": {"the grace of hold", func(s *stage, a, _ uint64) {
		grant := s.revoke(a, 700)
		s.pass(600 * time.Millisecond)
		s.expireGrace(grant)
	}},
	"a bounded hold whose grace goes on": {"", func(s *stage, a, _ uint64) {
		grant := s.revoke(a, 5_000)
		s.pass(2 * time.Second)
		s.expireHold(grant, 1)
		s.pass(time.Second)
		s.endDelay(grant)
	}},
	"a lease cut short": {"the lease of session", func(s *stage, _, _ uint64) { s.lease(4 * time.Second) }},
	"a lease":           {"", func(s *stage, _, _ uint64) { s.lease(5 * time.Second) }},
	"a lease too long":  {"the lease of session", func(s *stage, _, _ uint64) { s.lease(7 * time.Second) }},
}

// TestTimers verifies that deadlines enforced early or late are reported.
func TestTimers(t *testing.T) {
	for what, c := range timerPlays {
		t.Run(what, func(t *testing.T) {
			s := newStage(t)
			c.play(s, s.open(ttl), s.open(ttl))
			if c.fault == "" {
				s.accepted()
			} else {
				s.refused(c.fault)
			}
		})
	}
}

// revoke acquires the bounded hold x and revokes it with a grace period.
func (s *stage) revoke(a uint64, grace uint32) *wire.Result {
	s.t.Helper()
	grant := s.acquire(a, bounded())
	s.apply(&wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: grant.HoldId, Token: grant.Token, GraceMs: grace, Reason: "deploy"}}})
	return grant
}

func (s *stage) expireGrace(grant *wire.Result) {
	s.t.Helper()
	s.apply(&wire.Command{Op: &wire.Command_ExpireHold{ExpireHold: &wire.ExpireHold{HoldId: grant.HoldId, Term: s.term, Generation: 1, Grace: true}}})
}

// waitFor lets b wait at most half a second for what a holds, and ends the wait after a while.
func (s *stage) waitFor(a, b uint64, ends time.Duration) {
	s.t.Helper()
	s.lock(a, "x")
	s.acquire(b, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "x"}}, WaitMs: 500})
	s.pass(ends)
	s.timeOut("x")
}

func (s *stage) endDelay(grant *wire.Result) {
	s.apply(&wire.Command{Op: &wire.Command_EndDelay{EndDelay: &wire.EndDelay{HoldId: grant.HoldId, Term: s.term, Generation: 1}}})
}

// lease takes a lease of five seconds and expires it after a while.
func (s *stage) lease(ends time.Duration) {
	s.t.Helper()
	secret := []byte("sixteen bytes or more")
	asked := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "leased"}}}
	r := s.ask(&wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: &wire.AcquireLeaseRequest{Secret: secret, TtlMs: 5_000, Acquire: asked}}},
		&wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: hashOf(secret), TtlMs: 5_000, Acquire: asked}}})
	s.pass(ends)
	s.expire(r.SessionId)
}

func TestLeaseAnswersAreCorrect(t *testing.T) {
	s := newStage(t)
	s.lease(5 * time.Second)
	s.accepted()
	s.ops("acquire_lease")[0].Response.Result.Token++
	s.refused("by the log it is")
}

// TestLiveness verifies that live clients must be answered, and notified when their wait ends.
func TestLiveness(t *testing.T) {
	play := func() (s *stage, a, b uint64) {
		s = newStage(t)
		a, b = s.open(ttl), s.open(ttl)
		first := s.lock(a, "x")
		s.lock(b, "x")
		s.mark(history.Healed)
		s.release(a, first)
		for range 4 {
			s.pass(3 * time.Second)
			s.heartbeat(a)
			s.heartbeat(b)
		}
		return s, a, b
	}
	s, _, b := play()
	s.accepted()
	op := s.ops("acquire")[1]
	op.Outcome, op.Return, op.Response = history.Unknown, history.Never, nil
	s.accepted() // the push contained the outcome
	for i, r := range s.records {
		if r.Push != nil {
			s.records[i] = history.Record{Mark: &history.Mark{What: "lost"}}
		}
	}
	s.refused("has no answer")
	s.bounds.Answer = time.Minute
	s.accepted() // there was no time to answer
	s.bounds.Answer = 5 * time.Second
	s.closes(b)
	s.accepted() // no client is left to be notified

	s, _, _ = play()
	for i, r := range s.records {
		if r.Push != nil {
			s.records[i] = history.Record{Mark: &history.Mark{What: "lost"}}
		}
	}
	s.refused("never told")
}

// timeOut ends the first waiter of a lock by timeout.
func (s *stage) timeOut(name string) {
	s.t.Helper()
	lock, _ := s.machine.GetLock(&wire.GetLockRequest{Name: name})
	s.apply(&wire.Command{Op: &wire.Command_TimeoutWait{TimeoutWait: &wire.TimeoutWait{WaitId: lock.Queue[0].WaitId, Term: s.term, Generation: 1}}})
}
