package replica_test

import (
	"testing"
	"time"
)

// TestNodeThatWasAwayIsNeededAtOnce has a follower be away for longer and longer, and come
// back just before the other one goes: the leader needs it for the next commit. Raft by
// itself leaves it without entries for up to ten seconds, since it has failed to send them
// so often; heartbeats go through all the same, and the leader keeps leading.
func TestNodeThatWasAwayIsNeededAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.settleIn()
		away, other := c.followers()[0], c.followers()[1]
		for _, absence := range []time.Duration{time.Second, time.Minute, 2 * time.Minute} {
			away.crash()
			time.Sleep(absence)
			away.start()
			c.eventually("it is in touch with the leader", func() bool { return c.nodeStatus(away.id).GetReachable() })
			other.crash()
			begin := time.Now()
			c.openSession("after "+absence.String(), 5*time.Second)
			if took := time.Since(begin); took > time.Second || c.leader() != leader {
				t.Errorf("after an absence of %v, the next commit took %v by %s, who led was %s", absence, took, c.leader().id, leader.id)
			}
			other.start()
			c.eventually("all are there", func() bool { return c.nodeStatus(other.id).GetReachable() })
		}
	})
}
