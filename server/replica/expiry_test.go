package replica_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// client is a session as its SDK sees it: alive until its TTL, less a margin, after it sent its last
// acknowledged heartbeat.
type client struct {
	session  uint64
	mu       sync.Mutex
	lastSent time.Time // when the last acknowledged heartbeat was sent
	anySent  time.Time // when the last heartbeat was sent
	told     bool      // the session was reported lost
}

func (k *client) heartbeatAfter(c *cluster, delay time.Duration) {
	sent := time.Now()
	time.Sleep(delay) // latency to the leader
	n := c.servingReplica()
	k.mu.Lock()
	k.anySent = time.Now()
	k.mu.Unlock()
	if n == nil {
		return
	}
	done := make(chan *wire.Result, 1)
	n.Heartbeat(k.session, nil, func(r *wire.Result) { done <- r })
	select {
	case r := <-done:
		k.mu.Lock()
		defer k.mu.Unlock()
		switch r.Status {
		case wire.Status_OK:
			k.lastSent = sent
		case wire.Status_SESSION_LOST:
			k.told = true
		}
	case <-time.After(2 * time.Second):
	}
}

// TestExpiryIsNeverEarlyAndAlwaysHappens lets many clients send heartbeats and stop at random while leaders
// come and go. No session may end before its client's own deadline, and all must end within two TTLs after
// the last heartbeat or the last barrier, whichever is later.
func TestExpiryIsNeverEarlyAndAlwaysHappens(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) { expiryUnderFailover(t, seed) })
		})
	}
}

func expiryUnderFailover(t *testing.T, seed uint64) {
	c := newCluster(t, 3).startAll()
	c.waitForReports()
	const ttl = 5 * time.Second
	random := rand.New(rand.NewPCG(seed, 1))
	var beating sync.WaitGroup
	clients := make([]*client, 40)
	for i := range clients {
		k := &client{session: c.openSession(fmt.Sprint("client", i), ttl), lastSent: time.Now(), anySent: time.Now()}
		clients[i] = k
		every := ttl/8 + time.Duration(random.Int64N(int64(ttl/3)))
		delay := time.Duration(random.Int64N(int64(300 * time.Millisecond)))
		heartbeats := random.IntN(20)
		beating.Go(func() {
			for range heartbeats {
				k.heartbeatAfter(c, delay)
				time.Sleep(every)
			}
		})
	}
	watch := newExpiryWatch(c, clients)
	for range 4 {
		time.Sleep(time.Duration(random.Int64N(int64(2 * ttl))))
		leader := c.leader()
		leader.crash()
		time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
		leader.start()
		c.leader()
		watch.barrier(time.Now())
	}
	beating.Wait()
	watch.wait(t, ttl)
}

// expiryWatch records when each session is gone from the state of a serving leader.
type expiryWatch struct {
	c        *cluster
	clients  []*client
	done     chan struct{}
	mu       sync.Mutex
	gone     map[uint64]time.Time
	barriers []time.Time
}

func newExpiryWatch(c *cluster, clients []*client) *expiryWatch {
	w := &expiryWatch{c: c, clients: clients, done: make(chan struct{}), gone: map[uint64]time.Time{}, barriers: []time.Time{time.Now()}}
	go w.run()
	return w
}

func (w *expiryWatch) barrier(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.barriers = append(w.barriers, at)
}

func (w *expiryWatch) run() {
	defer close(w.done)
	for begin := time.Now(); time.Since(begin) < 5*time.Minute && w.look() > 0; {
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *expiryWatch) look() (left int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.c.servingReplica(); n != nil {
		n.View(func(m *fsm.Machine) {
			for _, k := range w.clients {
				if _, lives := m.Session(k.session); !lives && w.gone[k.session].IsZero() {
					w.gone[k.session] = time.Now()
				}
			}
		})
	}
	return len(w.clients) - len(w.gone)
}

func (w *expiryWatch) wait(t *testing.T, ttl time.Duration) {
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	soonest, latest := time.Hour, time.Duration(0)
	for _, k := range w.clients {
		gone, ok := w.gone[k.session]
		if !ok {
			t.Errorf("session %d never expired", k.session)
			continue
		}
		deadline := k.lastSent.Add(ttl - max(ttl/100, 20*time.Millisecond))
		soonest = min(soonest, gone.Sub(deadline))
		if gone.Before(deadline) {
			t.Errorf("session %d was gone %v before its client's deadline", k.session, deadline.Sub(gone))
		}
		from := k.anySent
		for _, barrier := range w.barriers {
			if barrier.Before(gone) && barrier.After(from) {
				from = barrier
			}
		}
		latest = max(latest, gone.Sub(from))
		if gone.Sub(from) > 2*ttl {
			t.Errorf("session %d outlived its last heartbeat or barrier by %v", k.session, gone.Sub(from))
		}
	}
	t.Logf("soonest %v after the client's deadline; latest %v after the last heartbeat or barrier, TTL %v", soonest, latest, ttl)
}

func TestTimedWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("holder", time.Minute)
		hold := c.expect(leader.do(acquireCommand(s, 1, "hot", 0)), wire.Status_GRANTED)
		waiter := c.openSession("waiter", time.Minute)
		begin := time.Now()
		outcome := make(chan *wire.Result, 1)
		leader.Await(waiter, 1, func(r *wire.Result) { outcome <- r })
		c.expect(leader.do(acquireCommand(waiter, 1, "hot", 3*time.Second)), wire.Status_QUEUED)
		r := c.expect(<-outcome, wire.Status_TIMEOUT)
		if took := time.Since(begin); took < 3*time.Second || took > 3200*time.Millisecond || r.Seq != 1 {
			t.Errorf("timed out after %v: %v", took, r)
		}

		// Under a new leader the wait starts again in full.
		begin = time.Now()
		c.expect(leader.do(acquireCommand(waiter, 2, "hot", 4*time.Second)), wire.Status_QUEUED)
		time.Sleep(3 * time.Second)
		leader.crash()
		next := c.leader()
		barrier := time.Now()
		next.Await(waiter, 2, func(r *wire.Result) { outcome <- r })
		leader.start()
		c.expect(<-outcome, wire.Status_TIMEOUT)
		if took := time.Since(barrier); took < 3900*time.Millisecond || took > 4200*time.Millisecond {
			t.Errorf("timed out %v after the barrier, %v after the request", took, time.Since(begin))
		}

		// A grant that comes first wins, and no timeout follows.
		next.Await(waiter, 3, func(r *wire.Result) { outcome <- r })
		c.expect(next.do(acquireCommand(waiter, 3, "hot", 2*time.Second)), wire.Status_QUEUED)
		c.expect(next.do(releaseCommand(s, 2, hold)), wire.Status_OK)
		c.expect(<-outcome, wire.Status_GRANTED)
		time.Sleep(3 * time.Second)
		if next.holder("hot") != waiter {
			t.Error("the waiter lost what it was granted")
		}
	})
}

// TestSignsOfLife verifies that every request is a sign of life, except an attach with the wrong secret.
func TestSignsOfLife(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1).startAll()
		leader := c.waitForReports()
		const ttl = 5 * time.Second
		busy, guarded := c.openSession("busy", ttl), c.openSession("guarded", ttl)
		for seq := range uint64(4) {
			time.Sleep(ttl - time.Second)
			c.expect(leader.do(acquireCommand(busy, seq+1, fmt.Sprint("lock", seq), 0)), wire.Status_GRANTED)
			if leader.lives(guarded) {
				c.expect(leader.do(attachCommand(guarded, "somebody else")), wire.Status_PERMISSION_DENIED)
			}
		}
		if !leader.lives(busy) || leader.lives(guarded) {
			t.Errorf("busy lives: %v, guarded lives: %v", leader.lives(busy), leader.lives(guarded))
		}
		if age, ok := leader.HeartbeatAge(busy); !ok || age > time.Second {
			t.Errorf("heartbeat age %v %v", age, ok)
		}
	})
}

// TestDecidedExpiryIsFinal verifies that nothing brings a session back once its end is decided, and that the
// end is proposed again until it is applied.
func TestDecidedExpiryIsFinal(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		const ttl = 5 * time.Second
		s := c.openSession("a", ttl)
		to := &sink{}
		leader.Bind(s, to)
		time.Sleep(ttl - 100*time.Millisecond)
		// Delay the entry that ends it.
		for _, o := range c.except(leader) {
			c.net.Delay(leader.id, o, 100*time.Millisecond)
			c.net.Delay(o, leader.id, 100*time.Millisecond)
		}
		pending := make(chan *wire.Result, 1)
		leader.Heartbeat(s, nil, func(r *wire.Result) { pending <- r })
		c.expect(<-pending, wire.Status_OK)
		c.eventually("decided", func() bool { _, ok := leader.Remaining(s); return !ok })
		if !leader.lives(s) {
			t.Fatal("the end was applied before it could be refused")
		}
		c.expect(leader.heartbeat(s), wire.Status_SESSION_LOST)
		c.expect(leader.do(acquireCommand(s, 1, "late", 0)), wire.Status_SESSION_LOST)
		c.eventually("gone", func() bool { return !leader.lives(s) })
		c.eventually("told", func() bool { return len(to.all()) > 0 })
		if lost := to.all()[0].GetLost(); lost.GetReason() != wire.SessionLost_EXPIRED {
			t.Errorf("told %v", to.all())
		}
	})
}
