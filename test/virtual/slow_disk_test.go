package virtual_test

import (
	"fmt"
	"testing"
	"time"
)

// TestSlowLeaderKeepsTheShortestSessions has every write of the leader take up to 0.87 s, which is too
// short for another node to take over. Requests wait for two writes: for the one in flight, and for their
// own. No session with the shortest TTL is lost meanwhile.
func TestSlowLeaderKeepsTheShortestSessions(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, nil)
		leader := c.leaderWithReports()
		var all []*shopper
		for i := range 6 {
			all = append(all, c.shopper(fmt.Sprint("shop", i)))
		}
		writer := c.client("writer")
		session := c.openFor(writer, "writer", time.Minute, false)
		takes := c.between(700*time.Millisecond, 870*time.Millisecond)
		leader.disk.slow(func() time.Duration { return takes })
		for until := c.now() + time.Minute; c.now() < until; {
			hold, err := session.Lock(t.Context(), "written")
			if err == nil {
				err = hold.Unlock(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		leader.disk.slow(nil)
		if c.serving() != leader {
			t.Errorf("%s leads no more", leader.id)
		}
		for _, h := range all {
			h.survived(fmt.Sprintf("a minute of writes that take %v", takes))
		}
		return counts{}
	})
}
