package replica_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestPartitionedLeaderAcknowledgesNoHeartbeat(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.settleIn()
		s := c.openSession("a", time.Minute)
		c.expect(leader.beat(s), wire.Status_OK)
		c.net.Isolate(leader.id, c.except(leader)...)
		// Raft still believes in itself here, for its lease; so would VerifyLeader with
		// answers to older heartbeats.
		answers := make(chan *wire.Result, 100)
		for range 100 {
			leader.Heartbeat(s, func(r *wire.Result) { answers <- r })
			leader.Prove(func(r *wire.Result) {
				if r.Status == wire.Status_OK {
					t.Error("a partitioned leader proved its leadership")
				}
			})
			time.Sleep(20 * time.Millisecond)
		}
		for range 100 {
			if r := <-answers; r.Status == wire.Status_OK {
				t.Errorf("a partitioned leader acknowledged a heartbeat")
			}
		}
		if r := leader.beat(s); r.Status != wire.Status_NOT_LEADER {
			t.Errorf("deposed, it answered %v", r)
		}
	})
}

func TestHeartbeatsShareOneEntry(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.settleIn()
		const clients = 5000
		sessions := make([]uint64, clients)
		opened := make(chan *wire.Result, clients)
		for i := range clients {
			leader.Propose(openCommand(time.Duration(i).String(), time.Minute), func(r *wire.Result) { opened <- r })
		}
		for i := range sessions {
			sessions[i] = c.expect(<-opened, wire.Status_OK).Session.SessionId
		}
		before := len(leader.entries())
		answers := make(chan *wire.Result, clients)
		begin := time.Now()
		for _, s := range sessions {
			leader.Heartbeat(s, func(r *wire.Result) { answers <- r })
		}
		for range sessions {
			c.expect(<-answers, wire.Status_OK)
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("acknowledged after %v", took)
		}
		if n := len(leader.entries()) - before; n != 1 {
			t.Errorf("%d heartbeats took %d entries, want 1", clients, n)
		}
		// Ordinary traffic serves too.
		before = len(leader.entries())
		leader.Heartbeat(sessions[0], func(r *wire.Result) { answers <- r })
		c.expect(leader.do(acquireCommand(sessions[1], 1, "x", 0)), wire.Status_GRANTED)
		c.expect(<-answers, wire.Status_OK)
		if n := len(leader.entries()) - before; n != 1 {
			t.Errorf("a heartbeat beside a command took %d entries, want 1", n)
		}
		c.expect(leader.beat(1<<40), wire.Status_SESSION_LOST)
	})
}
