package replica_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestTransferLeavesNoOutcomeUncertain proposes commands during leadership transfers. Each command must have its
// result, or certainly not be executed because this node does not lead any more. None may be UNCERTAIN, and
// none may be refused by a node that still claims to lead.
func TestTransferLeavesNoOutcomeUncertain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		for round := range 5 {
			leader := c.waitForReports()
			for _, other := range c.followers() { // so that entries are in flight
				c.net.Delay(leader.id, other.id, 3*time.Millisecond)
				c.net.Delay(other.id, leader.id, 3*time.Millisecond)
			}
			counts := &answers{of: map[wire.Status_Code]int{}}
			stop := make(chan struct{})
			var clients sync.WaitGroup
			for i := range 8 {
				clients.Go(func() {
					for n := 0; ; n++ {
						counts.add(leader.do(openCommand(fmt.Sprint(round, i, n), time.Minute)))
						counts.add(leader.wait("a proof", leader.Prove))
						select {
						case <-stop:
							return
						case <-time.After(time.Millisecond):
						}
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
			if err := leader.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"}); err != nil {
				t.Error(err)
			}
			close(stop)
			clients.Wait()
			counts.only(t, wire.Status_OK, wire.Status_NOT_LEADER)
		}
	})
}

// answers counts results by status.
type answers struct {
	mu sync.Mutex
	of map[wire.Status_Code]int
}

func (a *answers) add(r *wire.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[r.GetStatus()]++
}

// only fails the test unless there are results with each of these statuses, and none with others.
func (a *answers) only(t *testing.T, want ...wire.Status_Code) {
	t.Helper()
	for _, status := range want {
		if a.of[status] == 0 {
			t.Errorf("nobody was answered %v: %v", status, a.of)
		}
		delete(a.of, status)
	}
	if len(a.of) > 0 {
		t.Errorf("others were answered %v", a.of)
	}
}

// TestTransferWaitsForTheLastEntry verifies that leadership is handed over while an entry of raft's own is being written, by
// the leader or by its successor. The requests that raft would send until then leave no time for the disk.
func TestTransferWaitsForTheLastEntry(t *testing.T) {
	for _, ofLeader := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T) {
			c := newCluster(t, 3).startAll()
			leader := c.waitForReports()
			slow := leader
			if !ofLeader {
				slow = c.followers()[0]
			}
			slow.disk.takeTime(20 * time.Millisecond)
			leader.StoreBarrier()
			if err := leader.StepDown(t.Context()); err != nil {
				t.Error(err)
			}
			slow.disk.takeTime(0)
			c.eventually("another node leads", func() bool { l := c.leader(); return l != nil && l != leader })
		})
	}
}

// TestFailedTransferRefusesNoRequest verifies that commands that waited during a failed transfer are executed
// after it.
func TestFailedTransferRefusesNoRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		target := c.followers()[0]
		const way = 10 * time.Millisecond // as in TestExpirySurvivesAFailedTransfer
		c.net.Delay(leader.id, target.id, way)
		c.net.Delay(target.id, leader.id, way)
		time.AfterFunc(12*way+way/2, func() { c.net.Isolate(target.id, leader.id) })
		counts := &answers{of: map[wire.Status_Code]int{}}
		var clients sync.WaitGroup
		clients.Go(func() {
			for n := range 100 {
				counts.add(leader.do(openCommand(fmt.Sprint(n), time.Minute)))
				time.Sleep(5 * time.Millisecond)
			}
		})
		if err := leader.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: target.id, Reason: "test"}); !mentions(err, "leadership transfer timeout") {
			t.Errorf("raft's transfer did not fail: %v", err)
		}
		clients.Wait()
		counts.only(t, wire.Status_OK)
	})
}
