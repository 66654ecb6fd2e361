package replica_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestExpiryUnderOverload verifies that with a full queue, an expiry is still on time and refusals are
// immediate.
func TestExpiryUnderOverload(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		const ttl = 5 * time.Second
		busy, silent := c.openSession("busy", time.Minute), c.openSession("silent", ttl)
		begin := time.Now()
		for _, o := range c.except(leader) {
			c.net.Delay(leader.id, o, 100*time.Millisecond)
			c.net.Delay(o, leader.id, 100*time.Millisecond)
		}
		time.Sleep(ttl - 200*time.Millisecond)
		var mu sync.Mutex
		counts := map[wire.Status_Code]int{}
		cmd := &wire.Command{SessionId: busy, Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}, Acked: make([]uint64, 100)}
		for range 80_000 { // about forty entries, ten seconds' worth
			leader.Propose(cmd, func(r *wire.Result) {
				mu.Lock()
				defer mu.Unlock()
				counts[r.Status]++
			})
		}
		c.eventually("expired", func() bool { return !leader.lives(silent) })
		took := time.Since(begin)
		mu.Lock()
		t.Logf("expired after %v of TTL %v; answers until then %v", took, ttl, counts)
		if took > ttl+time.Second {
			t.Errorf("expired after %v", took)
		}
		if counts[wire.Status_UNAVAILABLE] == 0 || counts[wire.Status_OK] > 60_000 {
			t.Errorf("the queue was never full: %v", counts)
		}
		mu.Unlock()
	})
}

// TestExpirySurvivesAFailedTransfer verifies that an expiry that is decided during a leadership transfer is
// not lost if the transfer fails. Raft refuses every entry during a transfer.
func TestExpirySurvivesAFailedTransfer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		const ttl = 5 * time.Second
		s := c.openSession("a", ttl)
		target := c.followers()[0]
		time.Sleep(ttl - 200*time.Millisecond)
		// It answers the probes, and is unreachable by the time raft hands over.
		const way = 10 * time.Millisecond
		c.net.Delay(leader.id, target.id, way)
		c.net.Delay(target.id, leader.id, way)
		time.AfterFunc(12*way+way/2, func() { c.net.Isolate(target.id, leader.id) })
		begin := time.Now()
		err := leader.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: target.id, Reason: "test"})
		t.Logf("after %v: %v", time.Since(begin), err)
		if !mentions(err, "leadership transfer timeout") || time.Since(begin) < 300*time.Millisecond {
			t.Fatal("the transfer did not last until the session was due")
		}
		if !leader.Serving() {
			t.Fatal("the leader no longer serves")
		}
		c.within(5*time.Second, "expired", func() bool { return !leader.lives(s) })
		t.Logf("expired after %v", time.Since(begin))
	})
}

// TestNoLostWakeUp verifies that no grant is missed, whatever the order of awaits, acquires and releases.
func TestNoLostWakeUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		const clients, rounds = 32, 20
		var all sync.WaitGroup
		for i := range clients {
			s := c.openSession(fmt.Sprint("s", i), time.Minute)
			all.Go(func() {
				for round := range uint64(rounds) {
					lockAndRelease(t, leader, s, 2*round+1, fmt.Sprint("hot", i%4))
				}
			})
		}
		begin := time.Now()
		all.Wait()
		t.Logf("%d hand-overs took %v", clients*rounds, time.Since(begin))
	})
}

func lockAndRelease(t *testing.T, n *node, session, seq uint64, lock string) {
	results := make(chan *wire.Result, 2)
	cancel := n.Await(session, seq, func(r *wire.Result) { results <- r })
	defer cancel()
	n.Propose(acquireCommand(session, seq, lock, forever), func(r *wire.Result) {
		if r.Status != wire.Status_QUEUED {
			results <- r
		}
	})
	var hold *wire.Result
	select {
	case hold = <-results:
	case <-time.After(30 * time.Second):
		t.Errorf("session %d, request %d: never granted", session, seq)
		return
	}
	if hold.Status != wire.Status_GRANTED {
		t.Errorf("session %d, request %d: %v", session, seq, hold)
		return
	}
	released := make(chan *wire.Result, 1)
	release := releaseCommand(session, seq+1, hold)
	release.AckedBelow, release.Acked = seq+1, []uint64{seq}
	n.Propose(release, func(r *wire.Result) { released <- r })
	if r := <-released; r.Status != wire.Status_OK {
		t.Errorf("release: %v", r)
	}
}

func TestNewerBindingSupersedes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", time.Minute)
		older, newer := &sink{}, &sink{}
		leader.Bind(s, older)
		leader.Bind(s, newer)
		leader.Unbind(s, older) // comes late, and must not affect the newer one
		c.expect(leader.do(&wire.Command{SessionId: s, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}}), wire.Status_OK)
		c.eventually("told", func() bool { return len(newer.all()) == 1 })
		if r := older.all(); len(r) != 1 || r[0].GetLost().GetReason() != wire.SessionLost_SUPERSEDED {
			t.Errorf("the older one was told %v", r)
		}
		if r := newer.all(); r[0].GetLost().GetReason() != wire.SessionLost_CLOSED {
			t.Errorf("the newer one was told %v", r)
		}
	})
}
