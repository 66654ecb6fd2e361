package replica_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// keepBeating sends heartbeats for a session to the current leader until stop is closed. It sends the time to
// lost when the session is reported lost.
func (c *cluster) keepBeating(session uint64, every time.Duration, stop <-chan struct{}, lost chan<- time.Time) {
	for {
		if r := c.servingReplica(); r != nil {
			r.Heartbeat(session, nil, func(r *wire.Result) {
				if r.Status == wire.Status_SESSION_LOST {
					select {
					case lost <- time.Now():
					default:
					}
				}
			})
		}
		select {
		case <-time.After(every):
		case <-stop:
			return
		}
	}
}

func TestLeaderLossKeepsSessionsHoldsAndPlaces(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		old := c.waitForReports()
		const ttl = 5 * time.Second
		lost := make(chan time.Time, 1)
		stop := make(chan struct{})
		defer close(stop)
		var sessions []uint64
		var hold *wire.Result
		for i, name := range []string{"holder", "first", "second"} {
			s := c.openSession(name, ttl)
			sessions = append(sessions, s)
			go c.keepBeating(s, ttl/3, stop, lost)
			r := old.do(acquireCommand(s, 1, "cron/nightly", forever))
			if want := []wire.Status_Code{wire.Status_GRANTED, wire.Status_QUEUED}[min(i, 1)]; r.Status != want {
				t.Fatalf("%s: %v, want %v", name, r, want)
			}
			if i == 0 {
				hold = r
			}
		}
		for range 5 {
			leader := c.leader()
			begin := time.Now()
			leader.crash()
			next := c.leader()
			t.Logf("%s replaced by %s after %v", leader.id, next.id, time.Since(begin))
			leader.start()
			time.Sleep(ttl / 2)
		}
		queue := queueOf(c.leader(), "cron/nightly")
		if len(queue) != 2 || queue[0] != sessions[1] || queue[1] != sessions[2] {
			t.Fatalf("the queue is %v, want %v", queue, sessions[1:])
		}
		// The new leader pushes the waiter's grant, and the token is higher.
		to := &sink{}
		leader := c.leader()
		c.expect(leader.wait("attach", func(done func(*wire.Result)) {
			leader.Propose(attachCommand(sessions[1], "first"), func(r *wire.Result) {
				leader.Bind(sessions[1], to)
				done(r)
			})
		}), wire.Status_OK)
		c.expect(leader.do(releaseCommand(sessions[0], 2, hold)), wire.Status_OK)
		c.eventually("the grant is pushed", func() bool { return len(to.all()) == 1 })
		if got := to.all()[0].GetOutcome(); got.GetStatus() != wire.Status_GRANTED || got.GetToken() <= hold.Token || got.GetSeq() != 1 {
			t.Errorf("pushed %v", got)
		}
		select {
		case at := <-lost:
			t.Errorf("a session that kept its heartbeats up was lost at %v", at)
		default:
		}
	})
}

func queueOf(n *node, lock string) (sessions []uint64) {
	n.View(func(m *fsm.Machine) {
		l, _ := m.GetLock(&wire.GetLockRequest{Name: lock})
		for _, w := range l.GetQueue() {
			sessions = append(sessions, w.SessionId)
		}
	})
	return sessions
}

func TestPartitionedLeaderIsReplacedAndLeavesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		old := c.waitForReports()
		s := c.openSession("a", time.Minute)
		c.net.Isolate(old.id, c.except(old)...)
		answered := make(chan *wire.Result, 1)
		old.Propose(acquireCommand(s, 1, "cut/off", 0), func(r *wire.Result) { answered <- r })
		begin := time.Now()
		c.within(3*time.Second, "another leader", func() bool {
			n := c.serving()
			return n != nil && n != old
		})
		t.Logf("replaced after %v", time.Since(begin))
		if r := <-answered; r.Status != wire.Status_UNCERTAIN && r.Status != wire.Status_NOT_LEADER {
			t.Errorf("the partitioned leader answered %v", r)
		}
		if r := old.do(acquireCommand(s, 2, "cut/off", 0)); r.Status != wire.Status_NOT_LEADER {
			t.Errorf("deposed, it answered %v", r)
		}
		next := c.leader()
		c.expect(next.do(acquireCommand(s, 3, "cut/off", 0)), wire.Status_GRANTED)
		c.net.Heal()
		c.eventually("the old leader follows", func() bool { return old.holder("cut/off") == s && old.Leader().GetId() == next.id })
		if n := c.leader(); n != next {
			t.Errorf("the healed node %s took over from %s", n.id, next.id)
		}
	})
}

// TestLeaderWithoutIncomingMessagesIsReplaced cuts one direction: the leader's messages arrive, the answers do not.
func TestLeaderWithoutIncomingMessagesIsReplaced(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		old := c.waitForReports()
		for _, o := range c.except(old) {
			c.net.Cut(o, old.id)
		}
		c.within(5*time.Second, "another leader", func() bool {
			n := c.serving()
			return n != nil && n != old && !old.Serving()
		})
	})
}

func TestRestartOfAllKeepsEverything(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s, waiter := c.openSession("a", time.Minute), c.openSession("b", time.Minute)
		hold := c.expect(leader.do(acquireCommand(s, 1, "state/prod", 0)), wire.Status_GRANTED)
		c.expect(leader.do(acquireCommand(waiter, 1, "state/prod", forever)), wire.Status_QUEUED)
		for round := range 3 {
			for _, n := range c.nodes {
				n.crash()
			}
			c.startAll()
			leader = c.leader()
			if h := leader.holder("state/prod"); h != s {
				t.Fatalf("round %d: held by %d, want %d", round, h, s)
			}
			if q := queueOf(leader, "state/prod"); len(q) != 1 || q[0] != waiter {
				t.Fatalf("round %d: queue %v", round, q)
			}
		}
		// A retry of the acquire, long afterwards, returns the same grant.
		again := c.expect(leader.do(acquireCommand(s, 1, "state/prod", 0)), wire.Status_GRANTED)
		if again.Token != hold.Token || again.HoldId != hold.HoldId {
			t.Errorf("a retry got %v, the first was %v", again, hold)
		}
		third := c.openSession("c", time.Minute)
		if r := c.expect(leader.do(acquireCommand(third, 1, "other", 0)), wire.Status_GRANTED); r.Token <= hold.Token {
			t.Errorf("token %d after %d", r.Token, hold.Token)
		}
	})
}

// TestRegainedLeadershipRebuildsDeadlines verifies that leadership lost and regained between two reads of
// LeaderCh is a new leadership, in which every session has a full TTL from its barrier.
func TestRegainedLeadershipRebuildsDeadlines(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		const ttl = 10 * time.Second
		s := c.openSession("a", ttl)
		to := &sink{}
		leader.Bind(s, to)
		time.Sleep(ttl - 2*time.Second)
		term := leader.Leader().Term
		// Isolate it for about a second. Then it is elected again because its log is the longest: the others
		// are prevented from standing.
		c.net.Isolate(leader.id, c.except(leader)...)
		for _, a := range c.except(leader) {
			c.net.Isolate(a, c.except(leader)...)
		}
		c.eventually("the leader steps down", func() bool { return !leader.Serving() })
		for _, n := range c.except(leader) {
			c.nodes[n].crash() // also heals
		}
		for _, n := range c.except(leader) {
			c.nodes[n].start()
		}
		for c.leader() != leader {
			next := c.leader()
			if err := next.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: leader.id, Reason: "test"}); err != nil {
				t.Logf("transfer: %v", err)
			}
		}
		barrier := time.Now()
		if now := leader.Leader().Term; now <= term {
			t.Fatalf("term %d after %d", now, term)
		}
		if pushes := to.all(); len(pushes) != 1 || pushes[0].GetLeader() == nil {
			t.Errorf("the bound session was told %v, want one leader hint", pushes)
		}
		rest, ok := leader.Remaining(s)
		if !ok || rest < ttl-100*time.Millisecond {
			t.Fatalf("after the new barrier %v remain, want a full TTL", rest)
		}
		c.eventually("expired", func() bool { return !leader.lives(s) })
		if took := time.Since(barrier); took < ttl-100*time.Millisecond || took > ttl+time.Second {
			t.Errorf("expired %v after the barrier, TTL %v", took, ttl)
		}
	})
}
