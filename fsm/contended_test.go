package fsm

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// BenchmarkListContended lists the contended locks beside many locks that nobody waits for: one lock with 10,000
// waiters, and then as many locks with one waiter each.
func BenchmarkListContended(b *testing.B) {
	for _, held := range []int{1_000, 1_000_000} {
		m := queued(b, 10_000)
		fill(b, m, held)
		list := func(contended int) {
			for _, order := range []wire.ListContendedRequest_Order{wire.ListContendedRequest_QUEUE_LENGTH, wire.ListContendedRequest_OLDEST_WAIT} {
				b.Run(fmt.Sprintf("held=%d/contended=%d/order=%v", held, contended, order), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if got := m.Fork().ListContended(&wire.ListContendedRequest{Order: order, Limit: 1_000}, nil); int(got.Contended) != contended {
							b.Fatalf("%d locks are contended, want %d", got.Contended, contended)
						}
					}
				})
			}
		}
		list(1)
		contend(b, m, 9_999)
		list(10_000)
	}
}

// contend makes so many locks held, each with one waiter.
func contend(t tester, m *Machine, n int) {
	t.Helper()
	for i := range n {
		request := func(session uint64) *wire.Command {
			return &wire.Command{SessionId: session, Seq: 1_000_000 + uint64(i), Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
				Locks: []*wire.LockRequest{{Name: fmt.Sprintf("hot/%05d", i)}}, WaitForever: true,
			}}}
		}
		applyOne(t, m, request(1))
		applyOne(t, m, request(2))
	}
}

// TestListContendedDoesNotVisitLocks checks that the work does not grow with the locks that nobody waits for, nor with
// the length of a queue.
func TestListContendedDoesNotVisitLocks(t *testing.T) {
	allocations := func(locks, waiters int) float64 {
		m := spacious(t)
		a := newAsker(t, m, "holder", "waiter")
		for i := range locks {
			a.acquire("holder", &wire.Acquire{Locks: []*wire.LockRequest{{Name: fmt.Sprintf("quiet/%d", i)}}}, wire.Status_GRANTED)
		}
		a.acquire("holder", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "hot"}}}, wire.Status_GRANTED)
		for i := range waiters {
			a.acquire("waiter", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "hot"}}, Owner: uint64(i)}, wire.Status_QUEUED)
		}
		visited := 0
		m.eachAwaited(func(*lock) { visited++ })
		if visited != 1 {
			t.Errorf("beside %d locks, %d are visited", locks, visited)
		}
		return testing.AllocsPerRun(10, func() { m.ListContended(&wire.ListContendedRequest{}, nil) })
	}
	if few, many := allocations(10, 10), allocations(5_000, 500); few != many {
		t.Errorf("%v allocations, and %v beside many locks and waiters", few, many)
	}
}

// TestListContendedShowsTheFirstWait checks a wait to become exclusive: it counts although the queue is empty, and
// the head of the queue is the oldest wait if it began first.
func TestListContendedShowsTheFirstWait(t *testing.T) {
	m := bootstrapped(t)
	a := newAsker(t, m, "ann", "bob", "cid", "dan")
	read := a.acquire("ann", &wire.Acquire{Locks: shared("late")}, wire.Status_GRANTED)
	a.acquire("bob", &wire.Acquire{Locks: shared("late")}, wire.Status_GRANTED)
	early := a.acquire("bob", &wire.Acquire{Locks: shared("only")}, wire.Status_GRANTED)
	a.acquire("cid", &wire.Acquire{Locks: shared("only")}, wire.Status_GRANTED)
	at := func(wall int64, who string, cmd *wire.Command) {
		a.seqs[who]++
		cmd.SessionId, cmd.Seq = a.ids[who], a.seqs[who]
		if r := applyAt(t, m, wall, cmd).Results[0]; r.Status != wire.Status_QUEUED {
			t.Fatalf("%s: %v", who, r)
		}
	}
	upgrade := func(held *wire.Result) *wire.Command {
		return &wire.Command{Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: held.HoldId, Token: held.Token, WaitForever: true}}}
	}
	at(100, "dan", &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "late"}}, WaitForever: true}}})
	at(200, "bob", upgrade(early))
	at(300, "ann", upgrade(read))
	for order, want := range map[wire.ListContendedRequest_Order]string{
		wire.ListContendedRequest_QUEUE_LENGTH: "late 2 2 false 100, only 1 2 true 200, ",
		wire.ListContendedRequest_OLDEST_WAIT:  "late 2 2 false 100, only 1 2 true 200, ",
	} {
		for what, m := range map[string]*Machine{"the state": m, "a fork": m.Fork(), "a restored one": restored(t, snapshotOf(t, m))} {
			got := ""
			for _, l := range m.ListContended(&wire.ListContendedRequest{Order: order}, nil).Locks {
				got += fmt.Sprint(l.Name, " ", l.QueueLength, " ", l.HolderCount, " ", l.Oldest.Upgrade, " ", l.Oldest.QueuedUnixMs, ", ")
			}
			if got != want {
				t.Errorf("%s, %v: %s", what, order, got)
			}
		}
	}
}

// TestContention checks the longest queue and the oldest wait, which may be of two locks, and that a wait to become
// exclusive counts although the queue is empty.
func TestContention(t *testing.T) {
	m := bootstrapped(t)
	want := func(when string, longest uint64, oldest int64) {
		t.Helper()
		for what, m := range map[string]*Machine{"the state": m, "a fork": m.Fork(), "a restored one": restored(t, snapshotOf(t, m))} {
			if gotLongest, gotOldest := m.Contention(); gotLongest != longest || gotOldest != oldest {
				t.Errorf("%s, %s: %d wait, the first since %d, want %d and %d", when, what, gotLongest, gotOldest, longest, oldest)
			}
		}
	}
	want("at the start", 0, 0)
	a := newAsker(t, m, "ann", "bob", "cid", "dan")
	for _, name := range []string{"early", "long"} {
		a.acquire("ann", &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}}, wire.Status_GRANTED)
	}
	read := a.acquire("ann", &wire.Acquire{Locks: shared("read")}, wire.Status_GRANTED)
	a.acquire("bob", &wire.Acquire{Locks: shared("read")}, wire.Status_GRANTED)
	want("nothing waits", 0, 0)
	at := func(wall int64, who string, cmd *wire.Command) {
		a.seqs[who]++
		cmd.SessionId, cmd.Seq = a.ids[who], a.seqs[who]
		if r := applyAt(t, m, wall, cmd).Results[0]; r.Status != wire.Status_QUEUED {
			t.Fatalf("%s: %v", who, r)
		}
	}
	waits := func(wall int64, who, name string) {
		at(wall, who, &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true}}})
	}
	waits(200, "bob", "long")
	want("one waits", 1, 200)
	waits(100, "cid", "early")
	waits(300, "cid", "long")
	waits(400, "dan", "long")
	want("four wait", 3, 100)
	at(50, "ann", &wire.Command{Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: read.HoldId, Token: read.Token, WaitForever: true, AllowDeadlock: true}}})
	want("a hold waits to become exclusive", 3, 50)
}
