package replica_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// acquireCached returns a command that acquires a cached hold of 64 tokens, with the options of a.
func acquireCached(session, seq uint64, lock string, a *wire.Acquire) *wire.Command {
	cmd := acquire(session, seq, lock, a)
	cmd.Op = &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{Acquire: a, Tokens: 64, IdleMs: 60_000}}
	return cmd
}

// cachedCluster starts three nodes that have raised the level, and returns their leader.
func cachedCluster(t *testing.T) (*cluster, *node) {
	c := newCluster(t, 3).startAll()
	leader := c.waitForReports()
	c.eventually("the level is raised", func() (raised bool) {
		leader.View(func(m *fsm.Machine) { raised = m.FeatureLevel() == fsm.Level })
		return raised
	})
	return c, leader
}

// recalls counts the recalls of a hold among the pushes.
func recalls(pushes []*wire.Push, hold *wire.Result) (n int) {
	for _, p := range pushes {
		if notice := p.GetHoldNotice(); notice.GetWanted() && notice.GetHoldId() == hold.GetHoldId() && notice.GetToken() == hold.GetToken() {
			n++
		}
	}
	return n
}

// reportIdle sends a heartbeat that reports a hold as idle for one second.
func (n *node) reportIdle(session uint64, hold *wire.Result) *wire.Result {
	idle := []*wire.IdleHold{{HoldId: hold.GetHoldId(), IdleMs: 1_000}}
	return n.wait("a heartbeat", func(done func(*wire.Result)) { n.Heartbeat(session, idle, done) })
}

// TestCachedHoldsSurviveTheLeader verifies that the next leader knows a cached hold, its range and that it is recalled:
// the answer to the attach says so, and each heartbeat repeats it until the release, which grants the waiter with a token
// after the range.
func TestCachedHoldsSurviveTheLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, leader := cachedCluster(t)
		s, to := c.bound("holder", 5*time.Minute)
		waiter, _ := c.bound("waiter", 5*time.Minute)
		hold := c.expect(leader.do(acquireCached(s, 1, "a", &wire.Acquire{})), wire.Status_GRANTED)
		c.expect(leader.reportIdle(s, hold), wire.Status_OK)
		if age, known := leader.IdleFor(s, hold.GetHoldId()); !known || age < time.Second || age > 2*time.Second {
			t.Errorf("the hold is idle for %v, known %v", age, known)
		}
		if got := recalls(to.told(), hold); got != 0 {
			t.Errorf("recalled %d times before anybody waits", got)
		}
		c.expect(leader.do(acquire(waiter, 1, "a", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
		if got := recalls(to.told(), hold); got != 1 {
			t.Errorf("recalled %d times when a request waits", got)
		}
		leader.crash()
		next := c.leader()
		if _, known := leader.IdleFor(s, hold.GetHoldId()); known {
			t.Error("the former leader knows how long the hold is idle")
		}
		if _, known := next.IdleFor(s, hold.GetHoldId()); known {
			t.Error("the next leader knows how long the hold is idle, without a heartbeat")
		}
		attached := c.expect(next.do(attachCommand(s, "holder")), wire.Status_OK)
		if holds := attached.GetSession().GetHolds(); len(holds) != 1 || holds[0].GetTokens() != 64 || !holds[0].GetWanted() || holds[0].GetToken() != hold.GetToken() {
			t.Errorf("the attach is answered with %v", holds)
		}
		to = &sink{}
		next.Bind(s, to)
		for i := range 3 {
			c.expect(next.reportIdle(s, hold), wire.Status_OK)
			if got := recalls(to.told(), hold); got != i+1 {
				t.Errorf("after %d heartbeats recalled %d times", i+1, got)
			}
		}
		if h := next.lockOf("a").GetHolders()[0]; !h.GetRecalled() || h.GetTokens() != 64 {
			t.Errorf("the next leader shows %v", h)
		}
		c.expect(next.do(releaseCommand(s, 2, hold)), wire.Status_OK)
		before := recalls(to.told(), hold)
		c.expect(next.heartbeat(s), wire.Status_OK)
		if got := recalls(to.told(), hold); got != before {
			t.Errorf("recalled after the release")
		}
		if h := next.lockOf("a").GetHolders()[0]; h.GetSessionId() != waiter || h.GetToken() < hold.GetToken()+64 {
			t.Errorf("the next holder is %v, after the range of %d", h, hold.GetToken())
		}
		leader.start()
	})
}

// TestCachedHoldsEnd ends a cached hold, which is idle and recalled, in each way in which it can end against the will of
// its session. The waiter is granted the lock, and the session learns why it lost the hold.
func TestCachedHoldsEnd(t *testing.T) {
	const ttl = 10 * time.Second
	lost := func(reason wire.HoldLost_Reason) func(*wire.Push, *wire.Result) bool {
		return func(p *wire.Push, hold *wire.Result) bool {
			return p.GetHoldLost().GetReason() == reason && p.GetHoldLost().GetHoldId() == hold.GetHoldId() && p.GetHoldLost().GetToken() == hold.GetToken()
		}
	}
	for name, end := range map[string]struct {
		begin func(c *cluster, leader *node, hold *wire.Result)
		after time.Duration
		told  func(*wire.Push, *wire.Result) bool
	}{
		"forced": {func(c *cluster, leader *node, hold *wire.Result) {
			c.expect(leader.do(forceCommand(hold, "gone")), wire.Status_OK)
		}, 0, lost(wire.HoldLost_FORCED)},
		"revoked": {func(c *cluster, leader *node, hold *wire.Result) {
			c.expect(leader.do(revokeCommand(hold, "maintenance", time.Second)), wire.Status_OK)
		}, time.Second, lost(wire.HoldLost_FORCED)},
		"expired with its session": {func(*cluster, *node, *wire.Result) {}, ttl, func(p *wire.Push, _ *wire.Result) bool {
			return p.GetLost().GetReason() == wire.SessionLost_EXPIRED
		}},
	} {
		inVirtualTime(t, func(t *testing.T) {
			c, leader := cachedCluster(t)
			s, to := c.bound("holder", ttl)
			waiter, granted := c.bound("waiter", 5*time.Minute)
			hold := c.expect(leader.do(acquireCached(s, 1, "a", &wire.Acquire{})), wire.Status_GRANTED)
			c.expect(leader.do(acquire(waiter, 1, "a", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
			begin := time.Now()
			c.expect(leader.reportIdle(s, hold), wire.Status_OK)
			end.begin(c, leader, hold)
			c.within(end.after+time.Second, name+": the waiter holds it", func() bool { return leader.holder("a") == waiter })
			if took := time.Since(begin); took < end.after {
				t.Errorf("%s: it ended after %v, want %v", name, took, end.after)
			}
			if !slices.ContainsFunc(to.told(), func(p *wire.Push) bool { return end.told(p, hold) }) {
				t.Errorf("%s: the holder was told %v", name, to.told())
			}
			next := granted.told()
			if len(next) != 1 || next[0].GetOutcome().GetToken() < hold.GetToken()+64 {
				t.Errorf("%s: the waiter was told %v, the range began with %d", name, next, hold.GetToken())
			}
			if _, known := leader.IdleFor(s, hold.GetHoldId()); known {
				t.Errorf("%s: the hold that ended is idle", name)
			}
			leader.View(func(m *fsm.Machine) {
				for _, token := range []uint64{hold.GetToken(), hold.GetToken() + 63} {
					if m.VerifyToken(&wire.VerifyTokenRequest{Name: "a", Token: token}).GetHeld() {
						t.Errorf("%s: token %d holds the lock", name, token)
					}
				}
			})
			if got := leader.do(releaseCommand(s, 2, hold)).GetStatus(); got != wire.Status_NOT_HELD && got != wire.Status_SESSION_LOST {
				t.Errorf("%s: its release is answered with %v", name, got)
			}
		})
	}
}
