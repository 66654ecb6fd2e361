package process_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/disk"
	"github.com/quorumlock/quorumlock/test/process"
)

// shortestTTL is the minimum TTL of a session.
const shortestTTL = 5 * time.Second

// shortest are sessions with that TTL, each with a lock that it must keep.
type shortest struct {
	c        *process.Cluster
	sessions []*client.Session
	holds    []*client.Hold
}

// openShortest opens three dozen sessions, on a dozen clients.
func openShortest(t *testing.T, c *process.Cluster) *shortest {
	t.Helper()
	f := &shortest{c: c}
	for range 12 {
		cl := c.NewClient()
		for range 3 {
			s := open(t, cl, shortestTTL)
			hold, err := s.Lock(t.Context(), fmt.Sprintf("shortest/%d", len(f.holds)))
			if err != nil {
				t.Fatal(err)
			}
			f.sessions, f.holds = append(f.sessions, s), append(f.holds, hold)
		}
	}
	return f
}

// kept fails the test unless every session works and every lock is held with its original token. So each
// session has a recently acknowledged request when the next fault begins.
func (f *shortest) kept(t *testing.T, after string) {
	t.Helper()
	for i, s := range f.sessions {
		name := fmt.Sprintf("shortest/%d", i)
		holders := f.c.Lock(name).GetHolders()
		if s.Err() != nil || len(holders) != 1 || holders[0].GetToken() != f.holds[i].Token() {
			t.Fatalf("%s: a session with a TTL of %v lost %s: %v, holders %v", after, shortestTTL, name, s.Err(), holders)
		}
		if err := f.holds[i].SetValue(t.Context(), []byte(after)); err != nil {
			t.Fatalf("%s: a session with a TTL of %v is of no use: %v", after, shortestTTL, err)
		}
	}
}

// shortestFaults are faults, besides the losses of a leader in TestFailover, that must not end a session with
// the minimum TTL.
var shortestFaults = []struct {
	name  string
	apart bool
	round func(t *testing.T, c *process.Cluster, random *rand.Rand)
}{{
	name: "the leader's disk hangs",
	round: func(t *testing.T, c *process.Cluster, _ *rand.Rand) {
		old := c.Leader()
		injection := c.Inject(old, disk.Syncs+","+disk.Writes, disk.Hang)
		// A leader notices only when it has to write.
		open(t, c.NewClient(), time.Minute)
		c.AwaitLeader(old)
		c.Pass(shortestTTL)
		injection.Lift()
		c.Perish(old) // it may have ended on its own
		c.Restart(old)
	},
}, {
	name: "the leader's disk is slow",
	round: func(t *testing.T, c *process.Cluster, random *rand.Rand) {
		injection := c.Inject(c.Leader(), disk.Syncs, disk.Slow(time.Duration(100+random.IntN(900))*time.Millisecond))
		until := time.Now().Add(shortestTTL + time.Second)
		for s := open(t, c.NewClient(), time.Minute); time.Now().Before(until); {
			hold, err := s.Lock(t.Context(), "written")
			if err != nil {
				t.Fatal(err)
			}
			if err := hold.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if injection.Lift() == 0 {
			t.Error("no sync was slow")
		}
	},
}, {
	name:  "clients reach one follower alone",
	apart: true,
	round: func(t *testing.T, c *process.Cluster, random *rand.Rand) {
		leader := c.Leader()
		others := c.Others(leader)
		cut, err := c.CutClientsOff(leader, others[random.IntN(len(others))])
		if err == nil {
			c.Pass(2 * shortestTTL)
			var packets uint64
			if packets, err = cut.Packets(); packets == 0 {
				t.Error("no packet was dropped")
			}
		}
		if err != nil {
			t.Error(err)
		}
		if err := cut.Heal(); err != nil {
			t.Fatal(err)
		}
	},
}, {
	name: "all nodes are paused",
	round: func(_ *testing.T, c *process.Cluster, random *rand.Rand) {
		for _, id := range c.IDs() {
			c.Stop(id)
		}
		c.Pass(2*time.Second - time.Duration(random.IntN(1500))*time.Millisecond)
		for _, id := range c.IDs() {
			c.Continue(id)
		}
	},
}}

// TestShortestSessionsAreKept injects faults into the same sessions repeatedly:
//
//	QUORUMLOCK_CHECK=1 go test ./test/process -run '^TestShortestSessionsAreKept$' -v
func TestShortestSessionsAreKept(t *testing.T) {
	if !full {
		t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
	}
	const rounds = 20
	for _, fault := range shortestFaults {
		t.Run(fault.name, func(t *testing.T) {
			c := process.StartWith(t, programs, process.Options{Nodes: 3, Apart: fault.apart})
			f := openShortest(t, c)
			random := rand.New(rand.NewPCG(1, 1))
			for round := range rounds {
				fault.round(t, c, random)
				c.AwaitAll()
				f.kept(t, fmt.Sprintf("round %d", round))
			}
			t.Logf("%d sessions outlived %d rounds", len(f.sessions), rounds)
		})
	}
}
