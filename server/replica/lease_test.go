package replica_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func leaseCommand(name string, ttl time.Duration, lock string, a *wire.Acquire) *wire.Command {
	hash := sha256.Sum256([]byte(name))
	a.Locks = []*wire.LockRequest{{Name: lock}}
	return &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: hash[:], TtlMs: uint32(ttl.Milliseconds()), Acquire: a}}}
}

func extendLeaseCommand(name string, of *wire.Result) *wire.Command {
	hash := sha256.Sum256([]byte(name))
	return &wire.Command{Op: &wire.Command_ExtendLease{ExtendLease: &wire.ExtendLease{SecretHash: hash[:], HoldId: of.HoldId}}}
}

func confirmLeaseCommand(name string, of *wire.Result) *wire.Command {
	hash := sha256.Sum256([]byte(name))
	return &wire.Command{Op: &wire.Command_ConfirmLease{ConfirmLease: &wire.ConfirmLease{SecretHash: hash[:], HoldId: of.HoldId}}}
}

// TestLeaseExpiresItsTTLAfterTheGrant verifies that a lease ends its TTL after the grant. Repeating the
// request, or anything else that prolongs a session, does not prolong it; extending it does.
func TestLeaseExpiresItsTTLAfterTheGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		const ttl = 6 * time.Second
		lease := func() *wire.Command { return leaseCommand("curl", ttl, "a", &wire.Acquire{}) }
		begin := time.Now()
		hold := c.expect(leader.do(lease()), wire.Status_GRANTED)
		if hold.SessionId == 0 {
			t.Fatalf("no session in %v", hold)
		}
		for range 5 {
			time.Sleep(time.Second)
			if again := c.expect(leader.do(lease()), wire.Status_GRANTED); again.Token != hold.Token || again.HoldId != hold.HoldId {
				t.Errorf("repeated, it got %v, the first was %v", again, hold)
			}
			c.expect(leader.heartbeat(hold.SessionId), wire.Status_INVALID_ARGUMENT)
			c.expect(leader.do(acquireCommand(hold.SessionId, 2, "b", 0)), wire.Status_INVALID_ARGUMENT)
		}
		if rest, ok := leader.Remaining(hold.SessionId); !ok || rest > ttl-time.Since(begin)+100*time.Millisecond {
			t.Errorf("%v after the grant %v remain", time.Since(begin), rest)
		}
		c.endsIn(begin, ttl, "the lease ends", func() bool { return leader.holder("a") == 0 && !leader.lives(hold.SessionId) })

		begin = time.Now()
		hold = c.expect(leader.do(lease()), wire.Status_GRANTED)
		for range 3 {
			time.Sleep(ttl - 500*time.Millisecond)
			begin = time.Now()
			c.expect(leader.do(extendLeaseCommand("curl", hold)), wire.Status_OK)
		}
		c.endsIn(begin, ttl, "the extended lease ends", func() bool { return leader.holder("a") == 0 })
		c.expect(leader.do(extendLeaseCommand("curl", hold)), wire.Status_NOT_HELD)

		hold = c.expect(leader.do(lease()), wire.Status_GRANTED)
		time.Sleep(ttl - time.Second)
		leader.crash()
		next := c.leader()
		c.endsIn(time.Now(), ttl-10*time.Millisecond, "under a new leader it starts again, and ends", func() bool { return !next.lives(hold.SessionId) })
		leader.start()
	})
}

// waitTTL is the TTL of a lease that waits, or that has waited and is not confirmed.
const waitTTL = fsm.LeaseWaitTTL * time.Millisecond

// TestUnconfirmedLeaseUnderANewLeader verifies that a lease that was granted after a wait, and not confirmed, has the TTL of
// its wait under the next leader as well, and that it can still be confirmed there.
func TestUnconfirmedLeaseUnderANewLeader(t *testing.T) {
	for _, confirmed := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T) {
			c := newCluster(t, 3).startAll()
			leader := c.waitForReports()
			s := c.openSession("holder", 5*time.Minute)
			hold := c.expect(leader.do(acquireCommand(s, 1, "a", 0)), wire.Status_GRANTED)
			waits := c.expect(leader.do(leaseCommand("curl", time.Hour, "a", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
			c.expect(leader.do(releaseCommand(s, 2, hold)), wire.Status_OK)
			leader.crash()
			next := c.leader()
			begin := time.Now()
			if left, ok := next.Remaining(waits.SessionId); !ok || left > waitTTL {
				t.Errorf("%v remain", left)
			}
			if confirmed {
				c.expect(next.do(confirmLeaseCommand("curl", waits)), wire.Status_GRANTED)
				if left, ok := next.Remaining(waits.SessionId); !ok || left < time.Hour-time.Minute {
					t.Errorf("%v remain after the confirmation", left)
				}
			} else {
				c.endsIn(begin, waitTTL-10*time.Millisecond, "it ends", func() bool { return !next.lives(waits.SessionId) })
			}
			leader.start()
		})
	}
}

// TestLeaseThatWaits verifies that repeated requests keep a waiting lease alive, and that its TTL starts with
// the confirmation of its grant.
func TestLeaseThatWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		const ttl = 6 * time.Second
		lease := func() *wire.Command { return leaseCommand("curl", ttl, "a", &wire.Acquire{WaitForever: true}) }
		s := c.openSession("holder", 5*time.Minute)
		hold := c.expect(leader.do(acquireCommand(s, 1, "a", 0)), wire.Status_GRANTED)
		outcome := make(chan *wire.Result, 1)
		first := leader.wait("the lease", func(done func(*wire.Result)) {
			leader.Propose(lease(), func(r *wire.Result) {
				leader.Await(r.SessionId, 1, func(r *wire.Result) { outcome <- r })
				done(r)
			})
		})
		c.expect(first, wire.Status_QUEUED)
		for range 9 {
			time.Sleep(ttl / 3)
			if r := c.expect(leader.do(lease()), wire.Status_QUEUED); r.SessionId != first.SessionId || r.Position != 1 {
				t.Errorf("repeated, it got %v", r)
			}
		}
		time.Sleep(ttl / 2)
		c.expect(leader.do(releaseCommand(s, 2, hold)), wire.Status_OK)
		if r := c.expect(<-outcome, wire.Status_GRANTED); r.HoldId != first.HoldId || r.Token <= hold.Token {
			t.Errorf("granted %v", r)
		}
		c.expect(leader.do(lease()), wire.Status_GRANTED)
		if left, ok := leader.Remaining(first.SessionId); !ok || left > waitTTL-ttl/2 {
			t.Errorf("%v remain before the confirmation", left)
		}
		begin := time.Now()
		c.expect(leader.do(confirmLeaseCommand("curl", first)), wire.Status_GRANTED)
		c.endsIn(begin, ttl, "the lease ends", func() bool { return !leader.lives(first.SessionId) })

		// Abandoned by its client, it leaves the queue.
		c.expect(leader.do(acquireCommand(s, 3, "a", 0)), wire.Status_GRANTED)
		begin = time.Now()
		second := c.expect(leader.do(lease()), wire.Status_QUEUED)
		leader.Await(second.SessionId, 1, func(r *wire.Result) { outcome <- r })
		c.endsIn(begin, waitTTL, "the wait ends", func() bool { return len(queueOf(leader, "a")) == 0 })
		c.expect(<-outcome, wire.Status_SESSION_LOST)
		leader.View(func(m *fsm.Machine) {
			if total := m.Totals(); total.Sessions != 1 || total.Waiters != 0 {
				t.Errorf("left: %+v", total)
			}
		})
	})
}

// TestLeaseThatTimesOut verifies that a lease ends with its bounded wait, and that its await is answered.
func TestLeaseThatTimesOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1).startAll()
		leader := c.waitForReports()
		s := c.openSession("holder", 5*time.Minute)
		c.expect(leader.do(acquireCommand(s, 1, "a", 0)), wire.Status_GRANTED)
		begin := time.Now()
		r := c.expect(leader.do(leaseCommand("curl", time.Minute, "a", &wire.Acquire{WaitMs: 2000})), wire.Status_QUEUED)
		outcome := make(chan *wire.Result, 1)
		leader.Await(r.SessionId, 1, func(r *wire.Result) { outcome <- r })
		c.expect(<-outcome, wire.Status_TIMEOUT)
		c.endsIn(begin, 2*time.Second, "its session is gone", func() bool { return !leader.lives(r.SessionId) })
		if _, ok := leader.Remaining(r.SessionId); ok {
			t.Error("it left a deadline behind")
		}
	})
}
