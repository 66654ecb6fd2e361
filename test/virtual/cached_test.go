package virtual_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/test/workload"
)

// cachingParts are the parts of a load whose sessions cache locks.
var cachingParts = []workload.Part{workload.Line, workload.Cached, workload.FrailCached}

// cachingLeast is the minimum for a story with them.
var cachingLeast = counts{workload.Grants: 200, workload.Writes: 150, localGrants: 50, recalls: 20}

// TestCachedHolds injects faults under sessions that cache locks: the leader dies or is cut off, leadership moves, and
// clients are cut off or get late what they were sent. Each session has another connection then, and recalls are lost.
func TestCachedHolds(t *testing.T) {
	story{
		load: workload.Options{Parts: cachingParts, Pace: 300 * time.Millisecond},
		prepare: func(c *cluster) {
			c.net.Weather(simnet.Weather{Delay: time.Millisecond, Scatter: c.between(1, 10*time.Millisecond)})
		},
		fault: func(c *cluster, leader *node) {
			for range 3 {
				cut := workload.FrailCachedClient(c.random.IntN(workload.FencedClients))
				switch c.random.IntN(4) {
				case 0:
					leader.crash()
					c.successor(leader)
				case 1:
					c.isolate(leader.id, c.nodes...)
					c.successor(leader)
				case 2:
					c.isolate(cut, c.nodes...)
					c.lead(c.shuffled(leader)[0])
				default:
					c.isolate(cut, c.nodes...)
					pause(c.between(0, 2*frailTTL))
				}
				pause(c.between(0, time.Second))
				c.calm()
				c.startAll()
				leader = c.leader()
			}
			c.goesOn()
		},
	}.tellEach(t, 5, cachingLeast)
}

// TestPausedCachingClients is TestPausedClients with clients whose sessions cache the lock.
func TestPausedCachingClients(t *testing.T) {
	story{
		load: workload.Options{Parts: []workload.Part{workload.FrailCached, workload.Line}, Unguarded: true},
		fault: func(c *cluster, _ *node) {
			g := c.gateOf(workload.FrailCachedClient(1 + c.random.IntN(workload.FencedClients-1))) // tell cuts the first one off
			caught := g.arm()
			c.eventually("the client is about to write", func() bool {
				select {
				case <-caught:
					return true
				default:
					return false
				}
			})
			pause(c.between(frailTTL/2, 2*frailTTL))
			g.open()
			pause(time.Second)
		},
	}.tellEach(t, 5, counts{workload.Grants: 50, localGrants: 20, recalls: 5})
}

// TestSuspendedSessionGrantsNothing suspends a client whose session has a local holder and a caller that waits locally.
// When the holder unlocks, before the client has run its timers, the caller must not be granted the lock: the session
// was not heard for half its TTL, or has expired and another one holds the lock.
func TestSuspendedSessionGrantsNothing(t *testing.T) {
	for name, suspension := range map[string]time.Duration{"half its TTL": frailTTL * 55 / 100, "beyond its TTL": 2 * frailTTL} {
		t.Run(name, func(t *testing.T) {
			did := eachSeed(t, 2, func(t *testing.T, seed uint64) counts { return suspendedSession(t, seed, suspension) })
			enough(t, did, counts{localGrants: 1})
		})
	}
}

func suspendedSession(t *testing.T, seed uint64, suspension time.Duration) counts {
	c := newCluster(t, seed, 3, nil)
	c.leaderWithReports()
	s := c.openFor(c.client("c0"), "suspended", frailTTL, false)
	other := c.open(c.client("c1"), "other")
	cached := client.WithCached(time.Minute)
	c.stopped(s)
	lock := func() (pin, error) {
		asked := c.now()
		h, err := s.Lock(t.Context(), "x", cached)
		if err != nil {
			return pin{}, err
		}
		booked := c.log.Grant(history.Hold{
			Session: s.ID(), ID: h.ID(), Token: h.Token(), Revision: h.Revision(), Locks: history.Exclusive("x"), Asked: asked, Unguarded: true,
		})
		booked.Follow(h.Context())
		return pin{h, c, booked}, nil
	}
	c.take(s, "x", cached).drop()
	first, err := lock()
	c.must("lock", err)
	waits := make(chan error, 1)
	go func() {
		second, err := lock()
		if err == nil {
			err = second.release()
		}
		waits <- err
	}()

	g := c.gateOf("c0")
	caught := g.arm()
	go g.stall()
	<-caught
	pause(suspension)
	expired := suspension > frailTTL
	if expired {
		next := c.granted(c.taking(other, "x"))
		defer next.drop()
	}
	if err := first.release(); expired != errors.Is(err, client.ErrExpired) {
		t.Errorf("the local holder unlocked: %v", err)
	}
	g.open()
	if err := c.answer(waits); expired != errors.Is(err, client.ErrSessionLost) {
		t.Errorf("the caller that waits locally: %v", err)
	}
	return c.verdict(counts{})
}

// stopped records that the session's client is stopped beyond the session's TTL.
func (c *cluster) stopped(s *client.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lives {
		l.Unguarded = l.Unguarded || l.ID == s.ID()
	}
}

// TestRecallWhileCutOff cuts a client off that caches a lock, while another session comes to want it and the leader
// dies. Once attached to the next leader, the client knows of the recall: the other session is next.
func TestRecallWhileCutOff(t *testing.T) {
	enough(t, eachSeed(t, 3, recallWhileCutOff), counts{localGrants: 1, recalls: 1, leaderChanges: 1})
}

func recallWhileCutOff(t *testing.T, seed uint64) counts {
	c := newCluster(t, seed, 3, nil)
	c.leaderWithReports()
	s, other := c.open(c.client("c0"), "caching"), c.open(c.client("c1"), "other")
	cached := client.WithCached(time.Minute)
	c.take(s, "x", cached).drop()
	first := c.take(s, "x", cached)
	local := c.taking(s, "x", cached)

	c.isolate("c0", c.nodes...)
	next := c.taking(other, "x")
	c.eventually("the other session waits", func() bool { return c.serving() != nil && len(c.line("x")) == 1 })
	old, since := c.leader(), c.now()
	old.crash()
	c.successor(old)
	c.startAll()
	c.calm()
	c.eventually("the client has attached", func() bool {
		return slices.ContainsFunc(c.log.History().Ops(), func(op *history.Op) bool {
			return op.Kind == "attach" && op.Client == "c0" && op.Call > since && op.Outcome == history.OK
		})
	})
	first.drop()
	p := c.granted(next)
	select {
	case <-local:
		t.Error("the caller that waited locally was granted the lock before the other session")
	default:
	}
	p.drop()
	c.granted(local).drop()
	return c.verdict(counts{})
}
