package replica_test

import (
	"testing"
	"time"
)

// TestReturningNodeGetsEntriesAtOnce takes a follower down for longer and longer, and brings it back just
// before the other follower goes down, so that the leader needs it for the next commit. Raft alone would send
// it no entries for up to ten seconds after that many failures, although heartbeats get through and the
// leader keeps leading.
func TestReturningNodeGetsEntriesAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
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
