package replica_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// follow sends the sessions' heartbeats to the current leader, at the SDK's pace. A session counts as lost,
// as it would at a client, if no heartbeat is answered with OK within its TTL.
func (c *cluster) follow(sessions []uint64, ttl time.Duration) (end func() (lost []uint64)) {
	var mu sync.Mutex
	var lost []uint64
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for _, s := range sessions {
		clients.Go(func() {
			proof := time.Now()
			proved := make(chan time.Time, 100)
			for {
				sent := time.Now()
				if r := c.servingReplica(); r != nil {
					r.Heartbeat(s, nil, func(r *wire.Result) {
						if r.Status == wire.Status_OK {
							proved <- sent
						}
					})
				}
				for wait := time.After(ttl / 30); wait != nil; {
					select {
					case at := <-proved:
						if at.After(proof) {
							proof = at
						}
					case <-wait:
						wait = nil
					case <-stop:
						return
					}
				}
				if time.Since(proof) > ttl-ttl/100 {
					mu.Lock()
					lost = append(lost, s)
					mu.Unlock()
					return
				}
			}
		})
	}
	return func() []uint64 {
		close(stop)
		clients.Wait()
		return lost
	}
}

// TestNoSessionIsLostByAHungDisk verifies that if a leader's disk hangs, in whichever write, sessions with
// the shortest TTL survive and only see another leader.
func TestNoSessionIsLostByAHungDisk(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		for _, overlap := range []bool{true, false} {
			t.Run(fmt.Sprint(nodes, overlap), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T) { hangUnder(t, nodes, overlap) })
			})
		}
	}
}

func hangUnder(t *testing.T, nodes int, overlap bool) {
	const ttl = 5 * time.Second
	c := newCluster(t, nodes)
	for _, n := range c.nodes {
		n.cfg.NoOverlap = !overlap
	}
	old := c.startAll().waitForReports()
	var sessions []uint64
	for i := range 8 {
		s := c.openSession(fmt.Sprint(i), ttl)
		c.expect(old.do(acquireCommand(s, 1, fmt.Sprint("l", i), 0)), wire.Status_GRANTED)
		sessions = append(sessions, s)
	}
	end := c.follow(sessions, ttl)
	time.Sleep(ttl)
	release := sync.OnceFunc(old.disk.hang())
	defer release()
	c.within(2500*time.Millisecond, "another leader", func() bool { n := c.serving(); return n != nil && n != old })
	if old.haltedWith() != nil {
		t.Error("replaced by its end only")
	}
	c.within(100*time.Millisecond, "the node with the hung disk names the next leader", func() bool {
		return !old.Serving() && old.Leader().GetId() == c.leader().id && old.Leader().GetClientAddr() != ""
	})
	c.expect(old.heartbeat(sessions[0]), wire.Status_NOT_LEADER)
	time.Sleep(2 * ttl)
	if old.haltedWith() == nil {
		t.Error("the node with the hung disk was not stopped")
	}
	if lost := end(); len(lost) > 0 {
		t.Errorf("sessions %v were lost", lost)
	}
	for i, s := range sessions {
		if got := c.leader().holder(fmt.Sprint("l", i)); got != s {
			t.Errorf("lock %d is held by %d, not %d", i, got, s)
		}
	}
	release()
}

// TestSlowDisksDoNotMoveLeadership verifies that a leader is replaced once if only its own disk is slow, and
// stays if the disks of a majority are slow.
func TestSlowDisksDoNotMoveLeadership(t *testing.T) {
	const each = 1500 * time.Millisecond
	for name, test := range map[string]struct {
		slow func(c *cluster, old *node) []*node
		most uint64
	}{
		"the leader's": {func(_ *cluster, old *node) []*node { return []*node{old} }, 1},
		"a majority":   {func(c *cluster, old *node) []*node { return []*node{old, c.followers()[0]} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				c := newCluster(t, 3).startAll()
				old := c.waitForReports()
				s := c.openSession("a", time.Minute)
				term := c.statusOf(old).Term
				for _, n := range test.slow(c, old) {
					n.disk.takeTime(each)
				}
				end := c.follow([]uint64{s}, time.Minute)
				time.Sleep(2 * time.Minute)
				if lost := end(); len(lost) > 0 {
					t.Error("the session was lost")
				}
				if now := c.statusOf(c.leader()).Term; now-term > test.most {
					t.Errorf("%d elections, want at most %d", now-term, test.most)
				}
				for _, n := range c.nodes {
					if err := n.haltedWith(); err != nil {
						t.Errorf("%s: %v", n.id, err)
					}
					n.disk.takeTime(0) // a graceful stop waits for raft's transfer, which waits for the disk
				}
				c.waitForReports()
			})
		})
	}
}

// TestSlowInTurn stalls another leader's disk for more than a second every few seconds. Each node must hand
// over at most once a minute.
func TestSlowInTurn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		old := c.waitForReports()
		s := c.openSession("a", time.Minute)
		term := c.statusOf(old).Term
		end := c.follow([]uint64{s}, time.Minute)
		for range 20 {
			leader := c.leader()
			leader.disk.takeTime(1200 * time.Millisecond)
			time.Sleep(2 * time.Second)
			leader.disk.takeTime(0)
			time.Sleep(500 * time.Millisecond)
		}
		if lost := end(); len(lost) > 0 {
			t.Error("the session was lost")
		}
		if now := c.statusOf(c.leader()).Term; now-term > 3 {
			t.Errorf("%d elections in 50 s", now-term)
		}
	})
}

// TestOnlyTheLeaderCanAskForACampaign verifies that only the leader can make a follower call an election.
func TestOnlyTheLeaderCanAskForACampaign(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		term := c.statusOf(leader).Term
		a, b := c.followers()[0], c.followers()[1]
		for name, ask := range map[string]func() error{
			"another follower": func() error { return b.AskToCampaign(a.id, term) },
			"an older term":    func() error { return leader.AskToCampaign(a.id, term-1) },
		} {
			if err := ask(); err == nil {
				t.Errorf("%s made a follower call an election", name)
			}
		}
		leader.HandOverSlow() // its disk is not slow
		b.HasHandedOver()
		if err := leader.AskToCampaign(b.id, term); !mentions(err, "handed over") {
			t.Errorf("a node that has handed over was made to call an election: %v", err)
		}
		a.disk.takeTime(1500 * time.Millisecond)
		s := c.openSession("a", time.Minute)
		c.expect(leader.do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		time.Sleep(3 * time.Second)
		if err := leader.AskToCampaign(a.id, term); err == nil || !mentions(err, "slow") {
			t.Errorf("a node with a slow disk was made to call an election: %v", err)
		}
		if c.serving() != leader || c.statusOf(leader).Term != term {
			t.Error("leadership has moved")
		}
	})
}

// TestCampaignWithoutAnElection asks a follower to call an election whose peer port is closed, so that raft does not hold
// an election.
func TestCampaignWithoutAnElection(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		term := c.statusOf(leader).Term
		if err := c.followers()[0].CampaignCutOff(t.Context(), leader.id, term); !errors.Is(err, status.ErrUnavailable) {
			t.Errorf("asked to call an election: %v", err)
		}
		if c.serving() != leader || c.statusOf(leader).Term != term {
			t.Error("leadership has moved")
		}
	})
}

// TestCampaignWithoutVotes asks a follower to call an election that reaches no other node.
func TestCampaignWithoutVotes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		a, term := c.followers()[0], c.statusOf(leader).Term
		c.net.Isolate(a.id, c.except(a)...)
		if err := a.Campaign(t.Context(), leader.id, term); !errors.Is(err, status.ErrUnavailable) || !mentions(err, "not won in time") {
			t.Errorf("asked to call an election: %v", err)
		}
		c.net.Heal()
	})
}

// TestOnlyVotersCampaign asks a non-voter, and a node that is not in raft's configuration.
func TestOnlyVotersCampaign(t *testing.T) {
	for _, wholly := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T) {
			c := newCluster(t, 4).startAll()
			leader := c.waitForReports()
			term := c.statusOf(leader).Term
			a := c.followers()[0]
			if err := a.MayCampaign(leader.id, term); err != nil {
				t.Errorf("a voter must not call an election: %v", err)
			}
			c.within(time.Second, "a node that must not call an election", func() bool {
				if err := leader.Demote(a.id, wholly); err != nil {
					t.Fatal(err)
				}
				return mentions(a.MayCampaign(leader.id, term), "does not vote")
			})
		})
	}
}

// TestHandOversAreRateLimited verifies that a leader that has handed over recently stays, however slow its disk is.
func TestHandOversAreRateLimited(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		term := c.statusOf(leader).Term
		leader.HasHandedOver()
		leader.disk.takeTime(1500 * time.Millisecond)
		c.openSession("a", time.Minute)
		time.Sleep(5 * time.Second)
		leader.disk.takeTime(0) // a graceful stop waits for raft's transfer, which waits for the disk
		c.waitForReports()
		if c.serving() != leader || c.statusOf(leader).Term != term {
			t.Error("leadership has moved")
		}
	})
}
