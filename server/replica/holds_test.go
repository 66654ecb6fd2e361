package replica_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// acquire returns a command that acquires one lock with the options of a.
func acquire(session, seq uint64, lock string, a *wire.Acquire) *wire.Command {
	if len(a.Locks) == 0 {
		a.Locks = []*wire.LockRequest{{}}
	}
	a.Locks[0].Name = lock
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: a}}
}

func shared(a *wire.Acquire) *wire.Acquire {
	a.Locks = []*wire.LockRequest{{Mode: wire.Mode_SHARED}}
	return a
}

func extendCommand(session, seq uint64, of *wire.Result) *wire.Command {
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Extend{Extend: &wire.Extend{HoldId: of.HoldId, Token: of.Token}}}
}

func upgradeCommand(session, seq uint64, of *wire.Result, wait time.Duration) *wire.Command {
	u := &wire.Upgrade{HoldId: of.HoldId, Token: of.Token, WaitMs: uint32(max(0, wait.Milliseconds())), WaitForever: wait < 0}
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Upgrade{Upgrade: u}}
}

func forceCommand(of *wire.Result, reason string) *wire.Command {
	return &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: of.HoldId, Token: of.Token, Reason: reason, Operator: "ops"}}}
}

func revokeCommand(of *wire.Result, reason string, grace time.Duration) *wire.Command {
	return &wire.Command{Op: &wire.Command_Revoke{Revoke: &wire.Revoke{HoldId: of.HoldId, Token: of.Token, Reason: reason, GraceMs: uint32(grace.Milliseconds()), Operator: "ops"}}}
}

// bound opens a session and binds a sink to it.
func (c *cluster) bound(name string, ttl time.Duration) (uint64, *sink) {
	c.t.Helper()
	s, to := c.openSession(name, ttl), &sink{}
	c.leader().Bind(s, to)
	return s, to
}

// lockOf returns the lock as this node knows it, nil if it does not exist.
func (n *node) lockOf(name string) (l *wire.GetLockResponse) {
	n.View(func(m *fsm.Machine) { l, _ = m.GetLock(&wire.GetLockRequest{Name: name}) })
	return l
}

// told returns the pushes once no more are in flight: an answer comes before the pushes of its entry.
func (s *sink) told() []*wire.Push {
	synctest.Wait()
	return s.all()
}

// endsIn waits until the condition holds, and reports an error if that is earlier than soonest after begin,
// or much later.
func (c *cluster) endsIn(begin time.Time, soonest time.Duration, what string, ok func() bool) {
	c.t.Helper()
	c.within(soonest+time.Minute, what, ok)
	if took := time.Since(begin); took < soonest || took > soonest+200*time.Millisecond {
		c.t.Errorf("%s: after %v, want %v", what, took, soonest)
	}
}

func TestMaxHoldEndsOnlyThatHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s, to := c.bound("holder", 5*time.Minute)
		waiter, granted := c.bound("waiter", 5*time.Minute)
		const bound = 3 * time.Second
		begin := time.Now()
		hold := c.expect(leader.do(acquire(s, 1, "a", &wire.Acquire{MaxHoldMs: uint32(bound.Milliseconds())})), wire.Status_GRANTED)
		other := c.expect(leader.do(acquire(s, 2, "b", &wire.Acquire{})), wire.Status_GRANTED)
		c.expect(leader.do(acquire(waiter, 1, "a", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
		if rest, ok := leader.HoldRemaining(hold.HoldId); !ok || rest > bound || rest < bound-100*time.Millisecond {
			t.Errorf("of its max_hold remain %v, %v", rest, ok)
		}
		if _, ok := leader.HoldRemaining(other.HoldId); ok {
			t.Error("a hold without max_hold has a deadline")
		}
		c.endsIn(begin, bound, "the next one holds it", func() bool { return leader.holder("a") == waiter })
		if !leader.lives(s) || leader.holder("b") != s {
			t.Error("the session, or its other hold, went with it")
		}
		if got := to.told(); len(got) != 1 || got[0].GetHoldLost().GetReason() != wire.HoldLost_EXPIRED || got[0].GetHoldLost().GetHoldId() != hold.HoldId || got[0].GetHoldLost().GetToken() != hold.Token {
			t.Errorf("the holder was told %v", got)
		}
		if got := granted.told(); len(got) != 1 || got[0].GetOutcome().GetStatus() != wire.Status_GRANTED {
			t.Errorf("the waiter was told %v", got)
		}
		c.expect(leader.do(releaseCommand(s, 3, hold)), wire.Status_NOT_HELD)
	})
}

func TestMaxHoldIsExtendedAndStartsAgainUnderANewLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("holder", 5*time.Minute)
		const bound = 4 * time.Second
		hold := c.expect(leader.do(acquire(s, 1, "a", &wire.Acquire{MaxHoldMs: uint32(bound.Milliseconds())})), wire.Status_GRANTED)
		for seq := range uint64(3) {
			time.Sleep(bound - 100*time.Millisecond)
			c.expect(leader.do(extendCommand(s, 2+seq, hold)), wire.Status_OK)
		}
		time.Sleep(bound - time.Second)
		leader.crash()
		next := c.leader()
		c.endsIn(time.Now(), bound-10*time.Millisecond, "the hold ends", func() bool { return next.holder("a") == 0 })
		leader.start()
	})
}

func TestLockDelayKeepsTheLockClosed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		const delay = 4 * time.Second
		delayed := func() *wire.Acquire {
			return &wire.Acquire{LockDelayMs: uint32(delay.Milliseconds()), WaitForever: true}
		}
		s, to := c.bound("holder", 5*time.Minute)
		waiter := c.openSession("waiter", 5*time.Minute)
		hold := c.expect(leader.do(acquire(s, 1, "a", delayed())), wire.Status_GRANTED)
		c.expect(leader.do(acquire(waiter, 1, "a", delayed())), wire.Status_QUEUED)
		begin := time.Now()
		c.expect(leader.do(forceCommand(hold, "the box is on fire")), wire.Status_OK)
		if got := to.told(); len(got) != 1 || got[0].GetHoldLost().GetReason() != wire.HoldLost_FORCED || got[0].GetHoldLost().GetMessage() != "the box is on fire" {
			t.Errorf("the holder was told %v", got)
		}
		if rest, ok := leader.DelayRemaining(hold.HoldId); !ok || rest > delay || rest < delay-100*time.Millisecond {
			t.Errorf("of its lock-delay remain %v, %v", rest, ok)
		}
		c.endsIn(begin, delay, "the next one holds it", func() bool { return leader.holder("a") == waiter })
		if _, ok := leader.DelayRemaining(hold.HoldId); ok {
			t.Error("the delay is over, and remains")
		}

		// It follows the end of a session, and starts again under a new leader.
		short := c.openSession("short", 5*time.Second)
		c.expect(leader.do(acquire(short, 1, "b", delayed())), wire.Status_GRANTED)
		c.expect(leader.do(acquire(waiter, 2, "b", delayed())), wire.Status_QUEUED)
		c.eventually("expired", func() bool { return !leader.lives(short) })
		time.Sleep(delay - time.Second)
		leader.crash()
		next := c.leader()
		c.endsIn(time.Now(), delay-10*time.Millisecond, "the next one holds it", func() bool { return next.holder("b") == waiter })
		leader.start()
	})
}

// TestSkippedDelay verifies that a skipped delay leaves no deadline behind.
func TestSkippedDelay(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1).startAll()
		leader := c.waitForReports()
		s := c.openSession("holder", 5*time.Minute)
		hold := c.expect(leader.do(acquire(s, 1, "a", &wire.Acquire{LockDelayMs: 60_000})), wire.Status_GRANTED)
		c.expect(leader.do(forceCommand(hold, "stuck")), wire.Status_OK)
		c.expect(leader.do(acquire(s, 2, "a", &wire.Acquire{})), wire.Status_NOT_ACQUIRED)
		skip := &wire.SkipDelay{Name: "a", Reason: "checked by hand", Operator: "ops"}
		c.expect(leader.do(&wire.Command{Op: &wire.Command_SkipDelay{SkipDelay: skip}}), wire.Status_OK)
		if _, ok := leader.DelayRemaining(hold.HoldId); ok {
			t.Error("the delay was skipped, and remains")
		}
		c.expect(leader.do(acquire(s, 3, "a", &wire.Acquire{})), wire.Status_GRANTED)
	})
}

func TestRevocationIsPushedAndForcedAfterItsGrace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s, to := c.bound("holder", 5*time.Minute)
		hold := c.expect(leader.do(acquire(s, 1, "a", &wire.Acquire{MaxHoldMs: 60_000})), wire.Status_GRANTED)
		c.expect(leader.do(revokeCommand(hold, "please", 0)), wire.Status_OK)
		const grace = 3 * time.Second
		begin := time.Now()
		c.expect(leader.do(revokeCommand(hold, "maintenance", grace)), wire.Status_OK)
		c.expect(leader.do(extendCommand(s, 2, hold)), wire.Status_FAILED_PRECONDITION)
		c.endsIn(begin, grace, "forced", func() bool { return leader.holder("a") == 0 })
		got := to.told()
		if len(got) != 3 || !leader.lives(s) {
			t.Fatalf("the holder was told %v", got)
		}
		if r := got[0].GetHoldNotice().GetRevocation(); r.GetReason() != "please" || r.GetGraceMs() != 0 {
			t.Errorf("first %v", got[0])
		}
		if n := got[1].GetHoldNotice(); n.GetRevocation().GetReason() != "maintenance" || n.Revocation.RevokedUnixMs == 0 || n.Revocation.GraceMs != 3000 || n.HoldId != hold.HoldId || n.Token != hold.Token {
			t.Errorf("then %v", got[1])
		}
		if l := got[2].GetHoldLost(); l.GetReason() != wire.HoldLost_FORCED || l.GetMessage() != "maintenance" {
			t.Errorf("at last %v", got[2])
		}

		// Under a new leader the grace starts again.
		hold = c.expect(leader.do(acquire(s, 3, "a", &wire.Acquire{})), wire.Status_GRANTED)
		c.expect(leader.do(revokeCommand(hold, "again", grace)), wire.Status_OK)
		time.Sleep(grace - time.Second)
		leader.crash()
		next := c.leader()
		c.endsIn(time.Now(), grace-10*time.Millisecond, "forced", func() bool { return next.holder("a") == 0 })
		leader.start()
	})
}

// TestGraceDoesNotProlongAHold verifies that the earlier of grace and max_hold ends a hold, even after a
// second revocation and under a new leader, where both start again.
func TestGraceDoesNotProlongAHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s, to := c.bound("holder", 5*time.Minute)
		const bound = 3 * time.Second
		begin := time.Now()
		hold := c.expect(leader.do(acquire(s, 1, "a", &wire.Acquire{MaxHoldMs: uint32(bound.Milliseconds())})), wire.Status_GRANTED)
		time.Sleep(time.Second)
		for _, grace := range []time.Duration{time.Minute, 2 * time.Minute} {
			c.expect(leader.do(revokeCommand(hold, "maintenance", grace)), wire.Status_OK)
		}
		if left, ok := leader.HoldRemaining(hold.HoldId); !ok || left > bound-time.Second {
			t.Errorf("%v remain of the hold, %v", left, ok)
		}
		c.endsIn(begin, bound, "it expires", func() bool { return leader.holder("a") == 0 })
		if got := to.told(); len(got) != 3 || got[2].GetHoldLost().GetReason() != wire.HoldLost_EXPIRED {
			t.Errorf("the holder was told %v", got)
		}

		hold = c.expect(leader.do(acquire(s, 2, "a", &wire.Acquire{MaxHoldMs: uint32(bound.Milliseconds())})), wire.Status_GRANTED)
		c.expect(leader.do(revokeCommand(hold, "maintenance", time.Minute)), wire.Status_OK)
		time.Sleep(time.Second)
		leader.crash()
		next := c.leader()
		c.endsIn(time.Now(), bound-10*time.Millisecond, "it expires", func() bool { return next.holder("a") == 0 })
		leader.start()
	})
}

// TestUpgradeWhoseHoldEnds verifies that an upgrade whose hold ends while it waits gets what ended the hold.
func TestUpgradeWhoseHoldEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1).startAll()
		leader := c.waitForReports()
		s, to := c.bound("upgrader", 5*time.Minute)
		reader := c.openSession("reader", 5*time.Minute)
		c.expect(leader.do(acquire(reader, 1, "a", shared(&wire.Acquire{}))), wire.Status_GRANTED)
		ends := map[string]func(uint64, *wire.Result){
			"max_hold passed": func(uint64, *wire.Result) { time.Sleep(3 * time.Second) },
			"released":        func(seq uint64, hold *wire.Result) { c.expect(leader.do(releaseCommand(s, seq, hold)), wire.Status_OK) },
			"away: stuck": func(_ uint64, hold *wire.Result) {
				c.expect(leader.do(&wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: hold.HoldId, Token: hold.Token, Reason: "stuck"}}}), wire.Status_OK)
			},
		}
		seq := uint64(1)
		for why, end := range ends {
			hold := c.expect(leader.do(acquire(s, seq, "a", shared(&wire.Acquire{MaxHoldMs: 2000}))), wire.Status_GRANTED)
			c.expect(leader.do(upgradeCommand(s, seq+1, hold, time.Minute)), wire.Status_QUEUED)
			end(seq+2, hold)
			got := slices.DeleteFunc(to.told(), func(p *wire.Push) bool { return p.GetOutcome().GetSeq() != seq+1 })
			if len(got) != 1 {
				t.Fatalf("%s: pushed %v", why, to.told())
			}
			if o := got[0].GetOutcome(); o.GetStatus() != wire.Status_NOT_HELD || !strings.Contains(o.GetMessage(), why) || o.GetSeq() != seq+1 {
				t.Errorf("%s: pushed %v", why, got)
			}
			again := leader.do(upgradeCommand(s, seq+1, hold, time.Minute))
			if r := c.expect(again, wire.Status_NOT_HELD); !strings.Contains(r.Message, why) {
				t.Errorf("%s: a retry is answered %v", why, r)
			}
			seq += 3
		}
	})
}

func TestUpgradeThatWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s, to := c.bound("upgrader", 5*time.Minute)
		reader := c.openSession("reader", 5*time.Minute)
		hold := c.expect(leader.do(acquire(s, 1, "a", shared(&wire.Acquire{MaxHoldMs: 60_000}))), wire.Status_GRANTED)
		read := c.expect(leader.do(acquire(reader, 1, "a", shared(&wire.Acquire{}))), wire.Status_GRANTED)
		again := shared(&wire.Acquire{Reentrant: true})
		if r := c.expect(leader.do(acquire(s, 10, "a", again)), wire.Status_GRANTED); r.Count != 2 || r.HoldId != hold.HoldId {
			t.Errorf("acquired once more: %v", r)
		}
		const wait = 3 * time.Second
		begin := time.Now()
		c.expect(leader.do(upgradeCommand(s, 2, hold, wait)), wire.Status_QUEUED)
		c.endsIn(begin, wait, "timed out", func() bool { return len(to.all()) == 1 })
		if o := to.told()[0].GetOutcome(); o.GetStatus() != wire.Status_TIMEOUT || o.GetSeq() != 2 {
			t.Errorf("pushed %v", o)
		}
		if l := leader.lockOf("a"); len(l.GetHolders()) != 2 || l.Holders[0].Token != hold.Token {
			t.Errorf("the shared hold did not stay: %v", l)
		}

		// The wait starts again under a new leader, and a grant is pushed.
		c.expect(leader.do(upgradeCommand(s, 3, hold, wait)), wire.Status_QUEUED)
		time.Sleep(wait - time.Second)
		leader.crash()
		next := c.leader()
		leader.start()
		next.Bind(s, to)
		time.Sleep(wait - 500*time.Millisecond)
		rest, _ := next.HoldRemaining(hold.HoldId)
		c.expect(next.do(releaseCommand(reader, 2, read)), wire.Status_OK)
		pushes := to.told()
		last := pushes[len(pushes)-1].GetOutcome()
		if last.GetStatus() != wire.Status_GRANTED || last.GetSeq() != 3 || last.GetCount() != 2 || last.GetHoldId() != hold.HoldId || last.GetToken() <= read.Token {
			t.Errorf("pushed %v", last)
		}
		if now, ok := next.HoldRemaining(hold.HoldId); !ok || now > rest {
			t.Errorf("the upgrade started max_hold again: %v after %v", now, rest)
		}
		time.Sleep(2 * wait)
		if l := next.lockOf("a"); len(l.GetHolders()) != 1 || l.Holders[0].Mode != wire.Mode_EXCLUSIVE {
			t.Errorf("granted, and then %v", l)
		}
		c.expect(next.do(releaseCommand(s, 4, last)), wire.Status_OK)
	})
}

func countOf(pushes []*wire.Push, what func(*wire.Push) bool) (n int) {
	for _, p := range pushes {
		if what(p) {
			n++
		}
	}
	return n
}

// TestOneNoticePerRelease verifies that a release notifies exactly one of many waiters and nothing else, and
// that the holder is notified once that others wait.
func TestOneNoticePerRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		holder, told := c.bound("holder", 10*time.Minute)
		hold := c.expect(leader.do(acquire(holder, 1, "hot", &wire.Acquire{Notify: true})), wire.Status_GRANTED)
		const sessions, each = 20, 500
		var sinks []*sink
		results := make(chan *wire.Result, sessions*each)
		for i := range sessions {
			s, to := c.bound(time.Duration(i).String(), 10*time.Minute)
			sinks = append(sinks, to)
			for seq := range uint64(each) {
				leader.Propose(acquireCommand(s, seq+1, "hot", forever), func(r *wire.Result) { results <- r })
			}
		}
		for range sessions * each {
			c.expect(<-results, wire.Status_QUEUED)
		}
		if got := told.told(); len(got) != 1 || !got[0].GetHoldNotice().GetWanted() || got[0].GetHoldNotice().GetHoldId() != hold.HoldId {
			t.Errorf("10,000 wait, and the holder was told %v", got)
		}
		c.expect(leader.do(releaseCommand(holder, 2, hold)), wire.Status_OK)
		const releases = 20
		for released := 1; ; released++ {
			pushed, last := 0, (*wire.Push)(nil)
			synctest.Wait()
			for _, to := range sinks {
				got := to.all()
				if pushed += len(got); len(got) > 0 && got[len(got)-1].GetOutcome().GetToken() > last.GetOutcome().GetToken() {
					last = got[len(got)-1]
				}
			}
			if pushed != released {
				t.Fatalf("%d pushes after %d releases", pushed, released)
			}
			if released == releases {
				break
			}
			c.expect(leader.do(releaseCommand(last.SessionId, uint64(each+released), last.GetOutcome())), wire.Status_OK)
		}
		if n := countOf(told.told(), func(p *wire.Push) bool { return p.GetHoldNotice() != nil }); n != 1 {
			t.Errorf("the holder was told %d times", n)
		}
	})
}
