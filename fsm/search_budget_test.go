package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// hostileGraphs are built so that one more wait of owner 0, who holds "own", is expensive to search in
// both directions: from what it needs, and from what needs its owner.
var hostileGraphs = []struct {
	name  string
	build func(c *throng) []*wire.LockRequest
}{
	{"two chains", func(c *throng) []*wire.LockRequest {
		c.chain("ahead", 10, 5_000)
		c.chain("behind", 6_000, 5_000)
		c.acquire(6_000, &wire.LockRequest{Name: "own"})
		return oneName("ahead/4999")
	}},
	{"64 names", func(c *throng) []*wire.LockRequest {
		for i := range 300 {
			c.acquire(10+i, &wire.LockRequest{Name: fmt.Sprint("mine/", i)})
			c.acquire(10+i, manyNames("ahead", 64)...)
			c.acquire(5_000+i, append(manyNames("behind", 63), &wire.LockRequest{Name: "own"})...)
		}
		return manyNames("ahead", 64)
	}},
	{"permits of 64 semaphores", func(c *throng) []*wire.LockRequest {
		for i := range 200 {
			c.acquire(10+i, manyPermits("s", 64, 2)...)
		}
		c.acquire(10, &wire.LockRequest{Name: "own"})
		return manyPermits("s", 64, 2)
	}},
	{"shared holders", func(c *throng) []*wire.LockRequest {
		for i := range 5_000 {
			c.acquire(10+i, &wire.LockRequest{Name: "ahead", Mode: wire.Mode_SHARED})
			c.acquire(10+i, &wire.LockRequest{Name: "far", Mode: wire.Mode_EXCLUSIVE})
			c.acquire(10_000+i, &wire.LockRequest{Name: "own", Mode: wire.Mode_SHARED})
		}
		return oneName("ahead")
	}},
}

func oneName(name string) []*wire.LockRequest { return []*wire.LockRequest{{Name: name}} }

func manyNames(prefix string, n int) []*wire.LockRequest {
	var locks []*wire.LockRequest
	for i := range n {
		locks = append(locks, &wire.LockRequest{Name: fmt.Sprint(prefix, "/", i)})
	}
	return locks
}

func manyPermits(prefix string, n int, of uint64) []*wire.LockRequest {
	locks := manyNames(prefix, n)
	for _, l := range locks {
		l.Limit, l.Permits = 2*of-1, of
	}
	return locks
}

// chain makes n owners hold a lock each and wait for the lock of the owner before.
func (c *throng) chain(prefix string, from, n int) {
	for i := range n {
		c.acquire(from+i, &wire.LockRequest{Name: fmt.Sprint(prefix, "/", i)})
		if i > 0 {
			c.acquire(from+i, &wire.LockRequest{Name: fmt.Sprint(prefix, "/", i-1)})
		}
	}
}

// cancel ends the wait of the last request, which is owner 0's.
func (c *throng) cancel() {
	c.seq++
	applyOne(c.t, c.m, &wire.Command{
		SessionId: c.sessions[0], Seq: c.seq, AckedBelow: c.seq - 1,
		Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: c.seq - 1}},
	})
}

// save gives every session the largest allowance.
func (c *throng) save() { saveSearches(c.m, c.sessions...) }

func saveSearches(m *Machine, sessions ...uint64) {
	for _, id := range sessions {
		s, _ := m.editSession(id)
		s.searchAllowance = maxSearch
	}
	m.commit()
}

// overshoot is by how much the last step of a search may exceed its limit.
const overshoot = 200

// TestHostileGraphsDoNotCostEachEnqueue checks that no search uses more than maxSearch, and that a
// session that has searched a lot is left with what its requests add.
func TestHostileGraphsDoNotCostEachEnqueue(t *testing.T) {
	for _, graph := range hostileGraphs {
		c := newThrong(t, roomy(t))
		c.acquire(0, oneName("own")...)
		locks := graph.build(c)
		c.save()
		const enqueues = 300
		sum, most := 0, 0
		started := time.Now()
		for range enqueues {
			c.acquire(0, locks...)
			sum, most = sum+c.m.searched, max(most, c.m.searched)
			c.cancel()
		}
		t.Logf("%s: %d enqueues took %v, %d units, at most %d", graph.name, enqueues, time.Since(started), sum, most)
		if most < maxSearch/2 || most > maxSearch+overshoot {
			t.Errorf("%s: %d units for one enqueue", graph.name, most)
		}
		if bound := maxSearch + enqueues*(2*searchPerRequest+overshoot); sum > bound {
			t.Errorf("%s: %d units for %d enqueues, at most %d", graph.name, sum, enqueues, bound)
		}
	}
}

// TestEntriesBoundTheSearch checks the bound for all requests of an entry together, each of which has
// searchPerRequest.
func TestEntriesBoundTheSearch(t *testing.T) {
	c := newThrong(t, roomy(t))
	for i := range c.sessions {
		c.acquire(i, oneName(fmt.Sprint("own/", i))...)
	}
	c.chain("ahead", 10, 2_000)
	c.chain("behind", 6_000, 2_000)
	c.acquire(6_000, manyNames("own", len(c.sessions))...)
	c.save()
	var commands []*wire.Command
	for i, id := range c.sessions {
		c.seq++
		commands = append(commands, &wire.Command{SessionId: id, Seq: c.seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: oneName("ahead/1999"), Owner: uint64(i) + 1, WaitForever: true,
		}}})
	}
	if _, err := c.m.Apply(entry(t, commands...)); err != nil {
		t.Fatal(err)
	}
	if most := maxEntrySearch + len(commands)*(searchPerRequest+overshoot); c.m.searched < maxEntrySearch || c.m.searched > most {
		t.Errorf("%d units for one entry, at most %d", c.m.searched, most)
	}
}

// TestExpensiveSearchesOfOthersCostASessionNothing checks that, beside a session that has used up its
// allowance, another one in an ordinary queue is searched completely, and its deadlock is found.
func TestExpensiveSearchesOfOthersCostASessionNothing(t *testing.T) {
	c := newThrong(t, roomy(t))
	c.acquire(0, oneName("own")...)
	locks := hostileGraphs[0].build(c)
	honest := c.sessions[1]
	s, _ := c.m.editSession(honest)
	s.searchAllowance = 0
	c.m.commit()
	c.acquire(1, oneName("a")...)
	c.acquire(11, oneName("b")...)
	c.acquire(11, oneName("a")...)
	for range 100 {
		c.acquire(0, locks...)
		c.cancel()
	}
	if r := c.acquire(1, oneName("b")...); r.Status != wire.Status_DEADLOCK {
		t.Errorf("%v", r)
	}
	if s, _ := c.m.sessions.get(c.sessions[0]); s.searchAllowance > 2*searchPerRequest {
		t.Errorf("the other one has %d units left", s.searchAllowance)
	}
}

// TestSearchAllowanceIsState checks that a snapshot contains the allowance, and that an impossible
// allowance is refused.
func TestSearchAllowanceIsState(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "a")
	again := restored(t, snapshotOf(t, m))
	s, _ := again.sessions.get(id)
	if s.searchAllowance != firstSearchAllowance {
		t.Errorf("%d units restored", s.searchAllowance)
	}
	s, _ = m.editSession(id)
	s.searchAllowance = maxSearch + 1
	m.commit()
	if m.Check() == nil {
		t.Error("a session may have more than the most")
	}
}

// TestReductionIsPaidFor uses three owners of the family, two of which wait. It pins the cost of each
// step, so that a step that is no longer charged fails the test.
func TestReductionIsPaidFor(t *testing.T) {
	m := family(t)
	const plenty = 10_000
	left := plenty
	r := m.reduce(&left, node{release, 1, 0, 0}, node{release, 2, 0, 0}, node{release, 3, 0, 0})
	if r == nil || plenty-left != 89 {
		t.Errorf("%d units were paid", plenty-left)
	}
}
