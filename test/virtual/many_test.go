package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// names is the number of locks in a multi-lock acquire, which is the maximum.
const names = 64

// TestAllAgainstEach lets one client repeatedly acquire 64 locks in one request, while 64 clients lock one
// each. It may wait at most for the longest of the holds ahead of it and three commits, and no later request
// may overtake it in any queue.
func TestAllAgainstEach(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1, 3, nil)
		c.leaderWithReports()
		lasts := 10 * time.Second
		if raced && !full {
			lasts = 2 * time.Second
		}
		race := newRace(c, lasts)
		for i := range names {
			race.run(i, func(s *client.Session, random *rand.Rand) { race.one(s, i, random) })
		}
		race.run(names, race.all)
		race.run(names+1, race.probe)
		race.wg.Wait()
		c.closeClients()

		h := passing(t, c)
		seconds := int(lasts / time.Second)
		if race.waits < 5*seconds || race.singles < seconds*names || h.overtaken != 0 {
			t.Errorf("%d acquires of all, %d of one, %d passed one that was there before", race.waits, race.singles, h.overtaken)
		}
		bound := race.longest + 3*race.commit
		t.Logf("%d acquires of all, the longest wait %v; %d of one, the longest hold %v; a commit %v at most", race.waits, race.worst, race.singles, race.longest, race.commit)
		if race.worst > bound {
			t.Errorf("it waited %v, more than the longest hold %v and three commits of %v", race.worst, race.longest, race.commit)
		}
	})
}

// TestAllAgainstAll lets clients acquire many locks at once, in different orders, while they hold one of the
// others' locks. All must make progress all the time.
func TestAllAgainstAll(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 2, 3, nil)
		c.leaderWithReports()
		race := newRace(c, 3*time.Second)
		for i := range 6 {
			race.run(i, race.all)
		}
		for i := range 8 {
			race.run(6+i, func(s *client.Session, random *rand.Rand) { race.one(s, 8*i, random) })
		}
		race.wg.Wait()
		c.closeClients()
		h := passing(t, c)
		t.Logf("%d acquires of many, the longest wait %v; %d of one", race.waits, race.worst, race.singles)
		if race.waits < 60 || h.overtaken != 0 || race.worst > 2*time.Second {
			t.Errorf("%d acquires of many, %d of one, %d overtaken, the longest wait %v", race.waits, race.singles, h.overtaken, race.worst)
		}
	})
}

// race is a set of clients that contend until a given time.
type race struct {
	c   *cluster
	end time.Duration
	wg  sync.WaitGroup

	mu                     sync.Mutex // guards the fields below
	singles, waits         int
	longest, worst, commit time.Duration
}

func newRace(c *cluster, lasts time.Duration) *race {
	return &race{c: c, end: c.now() + lasts}
}

// run calls f with a new client.
func (r *race) run(i int, f func(*client.Session, *rand.Rand)) {
	cl := r.c.client(fmt.Sprint("c", i%8))
	r.wg.Go(func() {
		s, err := cl.NewSession(r.c.t.Context(), client.SessionOptions{Name: fmt.Sprint("client ", i)})
		if err != nil {
			r.c.t.Error(err)
			return
		}
		f(s, rand.New(rand.NewPCG(7, uint64(i))))
		if err := s.Close(r.c.t.Context()); err != nil {
			r.c.t.Error(err)
		}
	})
}

func lockName(i int) string { return fmt.Sprintf("all/%02d", i) }

// one repeatedly locks a single name.
func (r *race) one(s *client.Session, i int, random *rand.Rand) {
	for r.c.now() < r.end {
		hold, err := s.Lock(r.c.t.Context(), lockName(i))
		if err != nil {
			r.c.t.Error(err)
			return
		}
		held := r.c.now()
		pause(time.Duration(1+random.IntN(50)) * time.Millisecond)
		if err := hold.Unlock(r.c.t.Context()); err != nil {
			r.c.t.Error(err)
			return
		}
		r.note(func() { r.singles, r.longest = r.singles+1, max(r.longest, r.c.now()-held) })
	}
}

// all repeatedly locks every name, in its own order.
func (r *race) all(s *client.Session, random *rand.Rand) {
	var specs []client.LockSpec
	for _, i := range random.Perm(names) {
		specs = append(specs, client.LockSpec{Name: lockName(i)})
	}
	for r.c.now() < r.end {
		asked := r.c.now()
		hold, err := s.LockAll(r.c.t.Context(), specs)
		if err != nil {
			r.c.t.Error(err)
			return
		}
		waited := r.c.now() - asked
		pause(time.Duration(1+random.IntN(10)) * time.Millisecond)
		if err := hold.Unlock(r.c.t.Context()); err != nil {
			r.c.t.Error(err)
			return
		}
		r.note(func() { r.waits, r.worst = r.waits+1, max(r.worst, waited) })
		pause(time.Duration(random.IntN(20)) * time.Millisecond)
	}
}

// probe measures the duration of a commit under this load.
func (r *race) probe(s *client.Session, _ *rand.Rand) {
	for r.c.now() < r.end {
		asked := r.c.now()
		hold, err := s.Lock(r.c.t.Context(), "probe", client.WithTry())
		if err != nil {
			r.c.t.Error(err)
			return
		}
		took := r.c.now() - asked
		if err := hold.Unlock(r.c.t.Context()); err != nil {
			r.c.t.Error(err)
			return
		}
		r.note(func() { r.commit = max(r.commit, took) })
	}
}

func (r *race) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// queues is the result of checking the committed log for overtaking.
type queues struct {
	waiting   map[uint64][]string // multi-lock acquires, by ID
	overtaken int
}

// passing replays the log. While a multi-lock acquire waits, no request with a later place may be granted any
// of its locks.
func passing(t *testing.T, c *cluster) *queues {
	leader := c.leader()
	machine := fsm.NewReplicated(fsm.Level, func(error) {})
	q := &queues{waiting: map[uint64][]string{}}
	last, _ := leader.disk.LastIndex()
	for i := uint64(1); i <= last; i++ {
		logged := leader.disk.at(i)
		if logged == nil || logged.Type != raft.LogCommand {
			continue
		}
		for _, e := range machine.Apply(logged).(*fsm.Applied).Events {
			q.event(e)
		}
	}
	return q
}

func (q *queues) event(e *wire.Event) {
	switch e.Type {
	case wire.Event_QUEUED:
		if len(e.Locks) > 1 {
			q.waiting[e.HoldId] = e.Locks
		}
	case wire.Event_CANCELLED:
		delete(q.waiting, e.HoldId)
	case wire.Event_GRANTED:
		delete(q.waiting, e.HoldId)
		for id, locks := range q.waiting {
			if id < e.HoldId && slices.ContainsFunc(locks, func(name string) bool { return name == e.Lock || slices.Contains(e.Locks, name) }) {
				q.overtaken++
			}
		}
	}
}
