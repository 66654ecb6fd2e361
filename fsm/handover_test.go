package fsm

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestHandOverNotifiesOneCaller checks that, however many wait, a release grants to one, emits no events about the
// others, and costs in proportion to the depth of the tables, not to the length of the queue.
func TestHandOverNotifiesOneCaller(t *testing.T) {
	costs := map[int]float64{}
	for _, waiters := range []int{10, 10_000} {
		m := machineWithWaiters(t, waiters)
		l, _ := m.GetLock(&wire.GetLockRequest{Name: "hot", QueueLimit: 1})
		h := l.Holders[0]
		data := entry(t, &wire.Command{SessionId: h.SessionId, Seq: 1 << 40, Op: &wire.Command_Release{Release: &wire.Release{HoldId: h.HoldId, Token: h.Token}}})
		applied, err := m.Fork().Apply(data)
		if err != nil || len(applied.Events) != 2 || applied.Events[1].Type != wire.Event_GRANTED || applied.Events[1].HoldId != l.Queue[0].WaitId {
			t.Fatalf("%d waiters: a release led to %v, %v", waiters, applied, err)
		}
		costs[waiters] = testing.AllocsPerRun(20, func() {
			if _, err := m.Fork().Apply(data); err != nil {
				t.Fatal(err)
			}
		})
	}
	if costs[10_000] > 3*costs[10] {
		t.Errorf("a hand-over takes %v allocations with 10 waiters and %v with 10,000", costs[10], costs[10_000])
	}
}

// machineWithWaiters returns a machine with some sessions that wait for one lock, many times each.
func machineWithWaiters(t *testing.T, waiters int) *Machine {
	m := New(Level)
	applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c"}))
	var id uint64
	for i := range waiters + 1 {
		if i%1_000 == 0 {
			id = openSession(t, m, fmt.Sprint(i))
		}
		applyOne(t, m, &wire.Command{SessionId: id, Seq: uint64(i%1_000) + 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "hot"}}, Owner: uint64(i), WaitForever: true, AllowDeadlock: i%2 == 0,
		}}})
	}
	return m
}
