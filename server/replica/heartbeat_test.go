package replica_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestPartitionedLeaderAcknowledgesNoHeartbeat(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", time.Minute)
		c.expect(leader.heartbeat(s), wire.Status_OK)
		c.net.Isolate(leader.id, c.except(leader)...)
		// Raft still considers itself the leader here, until its lease ends. So would VerifyLeader, because
		// of answers to older heartbeats.
		answers := make(chan *wire.Result, 100)
		for range 100 {
			leader.Heartbeat(s, nil, func(r *wire.Result) { answers <- r })
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
		if r := leader.heartbeat(s); r.Status != wire.Status_NOT_LEADER {
			t.Errorf("deposed, it answered %v", r)
		}
	})
}

func TestHeartbeatsShareOneEntry(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
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
			leader.Heartbeat(s, nil, func(r *wire.Result) { answers <- r })
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
		// Ordinary traffic proves leadership as well.
		before = len(leader.entries())
		leader.Heartbeat(sessions[0], nil, func(r *wire.Result) { answers <- r })
		c.expect(leader.do(acquireCommand(sessions[1], 1, "x", 0)), wire.Status_GRANTED)
		c.expect(<-answers, wire.Status_OK)
		if n := len(leader.entries()) - before; n != 1 {
			t.Errorf("a heartbeat beside a command took %d entries, want 1", n)
		}
		c.expect(leader.heartbeat(1<<40), wire.Status_SESSION_LOST)
	})
}

// TestBarrierIsNewerThanTheHeartbeat verifies that an entry that was in flight when the heartbeat arrived does
// not prove it.
func TestBarrierIsNewerThanTheHeartbeat(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		s := c.openSession("a", time.Minute)
		const way = 50 * time.Millisecond
		for _, o := range c.except(leader) {
			c.net.Delay(leader.id, o, way)
			c.net.Delay(o, leader.id, way)
		}
		for offset := range 10 {
			begin := time.Now()
			committed := make(chan time.Duration, 1)
			leader.Propose(acquireCommand(s, uint64(offset)+1, time.Duration(offset).String(), 0), func(*wire.Result) { committed <- time.Since(begin) })
			time.Sleep(time.Duration(offset)*way/5 + time.Millisecond)
			for what, ask := range map[string]func(func(*wire.Result)){
				"heartbeat": func(done func(*wire.Result)) { leader.Heartbeat(s, nil, done) },
				"proof":     leader.Prove,
			} {
				asked := time.Now()
				c.expect(leader.wait(what, ask), wire.Status_OK)
				if took := time.Since(asked); took < 2*way {
					t.Errorf("a %s was answered after %v, a commit takes %v", what, took, 2*way)
				}
			}
			if took := <-committed; took < 2*way {
				t.Errorf("a commit took %v", took)
			}
		}
	})
}
