package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// roomy returns a machine with limits that no test reaches.
func roomy(t tester) *Machine {
	m := New(Level)
	applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "test", Settings: &wire.Settings{
		MaxSessions: 1 << 20, MaxLocks: 1 << 21, MaxWaitersPerLock: 1 << 20, MaxClaimsPerSession: 1 << 21, MaxWindow: 1 << 21,
	}}))
	return m
}

// throng acquires on behalf of many owners in a few sessions.
type throng struct {
	t        tester
	m        *Machine
	sessions []uint64
	seq      uint64
}

func newThrong(t tester, m *Machine) *throng {
	c := &throng{t: t, m: m}
	for i := range 10 {
		c.sessions = append(c.sessions, openSession(t, m, fmt.Sprint("crowd", i)))
	}
	return c
}

func (c *throng) acquire(owner int, locks ...*wire.LockRequest) *wire.Result {
	c.seq++
	return applyOne(c.t, c.m, &wire.Command{
		SessionId: c.sessions[owner%10], Seq: c.seq, AckedBelow: c.seq,
		Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: locks, Owner: uint64(owner) + 1, WaitForever: true}},
	}).Results[0]
}

// queue makes n+1 owners acquire a lock: the first one holds it, the others wait.
func (c *throng) queue(name string, from, n int) {
	for i := range n + 1 {
		c.acquire(from+i, &wire.LockRequest{Name: name})
	}
}

// situations are what an owner may have when it begins to wait for "hot".
var situations = []struct {
	name string
	set  func(c *throng)
}{
	{"nothing", func(*throng) {}},
	{"uncontended", func(c *throng) { c.acquire(0, &wire.LockRequest{Name: "own"}) }},
	{"one waiter", func(c *throng) {
		c.acquire(0, &wire.LockRequest{Name: "own"})
		c.acquire(1, &wire.LockRequest{Name: "own"})
	}},
	{"one waiter for permits", func(c *throng) {
		c.acquire(0, &wire.LockRequest{Name: "own", Limit: 3, Permits: 2})
		c.acquire(1, &wire.LockRequest{Name: "own", Limit: 3, Permits: 2})
	}},
	{"one reader", func(c *throng) {
		c.acquire(0, &wire.LockRequest{Name: "own"})
		c.acquire(1, &wire.LockRequest{Name: "own", Mode: wire.Mode_SHARED})
	}},
}

// TestLongQueuesAreNotSearched checks that an owner with few waiters behind it finds in a few steps that
// it closes no cycle, however many wait ahead, and the other way round.
func TestLongQueuesAreNotSearched(t *testing.T) {
	for _, situation := range situations {
		var steps []int
		for _, waiters := range []int{10, 10_000} {
			m := roomy(t)
			c := newThrong(t, m)
			c.queue("hot", 10, waiters)
			situation.set(c)
			r := c.acquire(0, &wire.LockRequest{Name: "hot"})
			steps = append(steps, spent(t, m, r))
		}
		if steps[1] > steps[0] || steps[0] > 50 {
			t.Errorf("%s: %d steps behind 10, %d behind 10,000", situation.name, steps[0], steps[1])
		}
	}
	m := roomy(t)
	c := newThrong(t, m)
	c.acquire(0, &wire.LockRequest{Name: "one"})
	c.queue("hot", 10, 10_000)
	r := c.acquire(10, &wire.LockRequest{Name: "one"})
	if steps := spent(t, m, r); steps > 50 {
		t.Errorf("%d steps behind one, with 10,000 waiting for the owner", steps)
	}
}

// spent returns how many units it takes to find that a wait closes no cycle.
func spent(t tester, m *Machine, r *wire.Result) int {
	t.Helper()
	c, ok := m.claims.get(r.HoldId)
	left := maxSearch
	if path := m.cycleOf(c, &left); !ok || r.Status != wire.Status_QUEUED || path != nil {
		t.Fatalf("%v, cycle %v", r, path)
	}
	return maxSearch - left
}

// ring makes each owner hold one lock and wait for the next one's. The last wait would close the cycle.
func ring(t tester, n int) (*throng, *wire.Result) {
	c := newThrong(t, roomy(t))
	for i := range n {
		c.acquire(i, &wire.LockRequest{Name: fmt.Sprint(i)})
	}
	for i := range n - 1 {
		c.acquire(i, &wire.LockRequest{Name: fmt.Sprint(i + 1)})
	}
	c.save()
	return c, c.acquire(n-1, &wire.LockRequest{Name: "0"})
}

// TestLongCyclesAreTruncated checks that a long cycle is reported up to a maximum length, starting
// with the request.
func TestLongCyclesAreTruncated(t *testing.T) {
	for _, n := range []int{2, 3, 32, 33, 250} {
		c, r := ring(t, n)
		if r.Status != wire.Status_DEADLOCK || len(r.Cycle) != min(n, maxSteps) || len(r.Message) > 2_000 {
			t.Fatalf("a ring of %d: %v", n, r)
		}
		for i, step := range r.Cycle {
			wait, _ := c.m.claims.get(step.WaitId)
			if owner := (n - 1 + i) % n; step.Owner != uint64(owner)+1 || step.Lock != fmt.Sprint((owner+1)%n) ||
				(i == 0) != (wait == nil) || wait != nil && wait.owner != step.Owner {
				t.Errorf("a ring of %d, step %d: %v", n, i, step)
			}
		}
	}
}

// TestSearchIsBounded checks that a request whose search would be too long is queued quickly, and that
// the resulting deadlock is listed.
func TestSearchIsBounded(t *testing.T) {
	c, r := ring(t, 12_000)
	if r.Status != wire.Status_QUEUED {
		t.Fatalf("a ring of 12,000: %v", r)
	}
	wait, _ := c.m.claims.get(r.HoldId)
	left := maxSearch
	started := time.Now()
	if path := c.m.cycleOf(wait, &left); path != nil || left > 0 {
		t.Errorf("found %d nodes with %d steps left", len(path), left)
	}
	t.Logf("%d units took %v", maxSearch, time.Since(started))
	told := c.m.ListDeadlocks(&wire.ListDeadlocksRequest{}).Deadlocks
	if len(told) != 1 || len(told[0].Cycle) != maxSteps {
		t.Errorf("listed: %v", told)
	}
	left = 1 << 30
	if path := c.m.cycleOf(wait, &left); path == nil {
		t.Error("with more steps, it is not found either")
	}
}

// TestReductionIsBounded checks the same for permits, behind many waits.
func TestReductionIsBounded(t *testing.T) {
	m := roomy(t)
	c := newThrong(t, m)
	semaphore := func() *wire.LockRequest { return &wire.LockRequest{Name: "s", Limit: 3, Permits: 2} }
	c.acquire(0, &wire.LockRequest{Name: "own"})
	c.acquire(1, semaphore())
	for i := range 200 {
		c.acquire(10+i, semaphore())
	}
	c.acquire(1, &wire.LockRequest{Name: "own"})
	c.save()
	r := c.acquire(0, semaphore())
	if r.Status != wire.Status_DEADLOCK || len(r.Cycle) < 2 {
		t.Fatalf("%v", r)
	}
	c.seq++
	r = applyOne(t, m, &wire.Command{SessionId: c.sessions[0], Seq: c.seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{semaphore()}, Owner: 1, WaitForever: true, AllowDeadlock: true,
	}}}).Results[0]
	wait, _ := m.claims.get(r.HoldId)
	for _, limit := range []int{1, 100, 1_000} {
		left := limit
		if path := m.cycleOf(wait, &left); path != nil || left > 0 && limit < 1_000 {
			t.Errorf("with %d steps: %d left, found %v", limit, left, path)
		}
	}
}

// TestUpgradeBehindReaders checks an upgrade that closes a cycle through a reader with nothing but its
// place in the queue.
func TestUpgradeBehindReaders(t *testing.T) {
	m := roomy(t)
	a := newAsker(t, m, "ann", "bob", "cid", "dan", "eve")
	hold := a.acquire("ann", &wire.Acquire{Locks: shared("a")}, wire.Status_GRANTED)
	a.acquire("bob", &wire.Acquire{Locks: shared("a")}, wire.Status_GRANTED)
	for i := range 30 {
		a.acquire("eve", &wire.Acquire{Locks: []*wire.LockRequest{{Name: fmt.Sprint(i)}}}, wire.Status_GRANTED)
	}
	a.acquire("eve", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "z"}}}, wire.Status_GRANTED)
	a.acquire("cid", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}}, wire.Status_QUEUED)
	a.acquire("dan", &wire.Acquire{Locks: shared("a")}, wire.Status_QUEUED)
	a.acquire("eve", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}}, wire.Status_QUEUED)
	a.acquire("ann", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "z"}}, AllowDeadlock: true}, wire.Status_QUEUED)
	upgrade := &wire.Upgrade{HoldId: hold.HoldId, Token: hold.Token, WaitForever: true}
	r := a.ask("ann", &wire.Command{Op: &wire.Command_Upgrade{Upgrade: upgrade}}, wire.Status_DEADLOCK)
	var locks []string
	for _, step := range r.Cycle {
		locks = append(locks, step.ClientName+" "+step.Lock)
	}
	if fmt.Sprint(locks) != "[ann z eve a dan a]" {
		t.Errorf("cycle %v", locks)
	}
}

// BenchmarkEnqueueBehind adds a waiter behind few or many, for owners that have something already,
// and cancels it.
func BenchmarkEnqueueBehind(b *testing.B) {
	for _, situation := range situations {
		for _, waiters := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%s/behind=%d", situation.name, waiters), func(b *testing.B) {
				m := roomy(b)
				c := newThrong(b, m)
				c.queue("hot", 10, waiters)
				situation.set(c)
				entries := make([][2][]byte, b.N)
				for i := range entries {
					n := c.seq + 1 + 2*uint64(i)
					acquire := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "hot"}}, Owner: 1, WaitForever: true}
					entries[i][0] = entry(b, &wire.Command{SessionId: c.sessions[0], Seq: n, AckedBelow: n, Op: &wire.Command_Acquire{Acquire: acquire}})
					entries[i][1] = entry(b, &wire.Command{SessionId: c.sessions[0], Seq: n + 1, AckedBelow: n + 1, Acked: []uint64{n - 2}, Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: n}}})
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range entries {
					mustApply(b, m, entries[i][0], wire.Status_QUEUED)
					mustApply(b, m, entries[i][1], wire.Status_CANCELLED)
				}
			})
		}
	}
}

// BenchmarkSearch measures the largest search.
func BenchmarkSearch(b *testing.B) {
	c, r := ring(b, 12_000)
	wait, _ := c.m.claims.get(r.HoldId)
	b.ReportAllocs()
	for b.Loop() {
		left := maxSearch
		c.m.cycleOf(wait, &left)
	}
}
