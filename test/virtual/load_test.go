package virtual_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// steadyTTL is longer than any fault here lasts, so that whoever keeps its
	// heartbeats up must never lose its session; frailTTL is that of those who are cut
	// off.
	steadyTTL = 15 * time.Second
	frailTTL  = 5 * time.Second
	// answerBound is how long after healing every waiter has its answer: sessions of
	// clients that died have expired by then.
	answerBound = 2*steadyTTL + 10*time.Second

	hotLocks = 3
	lineUp   = 5
)

// load is the clients of one cluster and what they do.
type load struct {
	*ledger
	ctx    context.Context // ends what still waits when the test has failed
	cancel context.CancelFunc
	stop   context.Context // ended by end: actors finish what they are at
	end    context.CancelFunc
	wg     sync.WaitGroup
	seed   uint64
	actors uint64

	people  []*client.Client
	steady  []*client.Session
	checker *client.Client

	pinned []pin
	// line is the order in which those who wait in line were enqueued, then granted.
	line, served []uint64

	busyMu sync.Mutex
	busy   map[string]int // actors under way, for messages
}

// pin is a hold that lasts as long as the load.
type pin struct {
	hold  *client.Hold
	entry *held
}

// startLoad opens the clients and starts every actor.
func startLoad(c *cluster, seed uint64) *load {
	c.t.Helper()
	l := &load{ledger: newLedger(c), seed: seed, busy: map[string]int{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.stop, l.end = context.WithCancel(context.Background())
	c.t.Cleanup(func() {
		l.end()
		l.cancel()
		c.closeClients()
		l.wg.Wait()
	})
	for i := range 3 {
		cl := c.client(host(i))
		l.people = append(l.people, cl)
		for range 2 {
			l.steady = append(l.steady, l.mustOpen(cl, "steady", steadyTTL, true))
		}
	}
	l.checker = c.client(host(7))
	for i := range 2 {
		l.pin(i, fmt.Sprint("pinned/", i))
	}
	l.pin(0, "line")
	l.startLine()
	for i := range 3 {
		l.start("fast", func(r *rand.Rand) { l.fast(l.steady[i], r) })
	}
	l.start("timed", func(r *rand.Rand) { l.timed(l.steady[4], r) })
	l.start("cancelling", func(r *rand.Rand) { l.cancelling(l.steady[5], r) })
	l.start("trying", func(r *rand.Rand) { l.trying(l.steady[0], r) })
	l.start("closing", func(r *rand.Rand) { l.closing(l.people[1], r) })
	for i := range 2 {
		l.start("frail", func(r *rand.Rand) { l.frail(c.client(host(3)), i, r) })
	}
	l.start("dying", func(r *rand.Rand) { l.dying(r) })
	return l
}

func (l *load) mustOpen(cl *client.Client, name string, ttl time.Duration, steady bool) *client.Session {
	l.c.t.Helper()
	s, err := l.open(l.ctx, cl, name, ttl, steady)
	if err != nil {
		l.c.t.Fatal("open a session: ", err)
	}
	return s
}

// start runs an actor with a generator of its own.
func (l *load) start(name string, act func(*rand.Rand)) {
	l.actors++
	r := rand.New(rand.NewPCG(l.seed, 100+l.actors))
	l.count(name, 1)
	l.wg.Go(func() {
		defer l.count(name, -1)
		act(r)
	})
}

func (l *load) count(name string, by int) {
	l.busyMu.Lock()
	defer l.busyMu.Unlock()
	if l.busy[name] += by; l.busy[name] == 0 {
		delete(l.busy, name)
	}
}

func (l *load) stopping() bool { return l.stop.Err() != nil }

func (l *load) pin(i int, name string) {
	l.c.t.Helper()
	h, entry, err := l.locking(l.steady[i], name, func() (*client.Hold, error) { return l.steady[i].Lock(l.ctx, name) })
	if err != nil {
		l.c.t.Fatalf("lock %s: %v", name, err)
	}
	l.pinned = append(l.pinned, pin{h, entry})
}

// startLine has sessions queue up one after the other.
func (l *load) startLine() {
	l.c.t.Helper()
	for i := range lineUp {
		s := l.steady[i+1]
		l.start("waiting in line", func(*rand.Rand) {
			h, entry, err := l.locking(s, "line", func() (*client.Hold, error) { return s.Lock(l.ctx, "line") })
			if err != nil {
				l.fault("waiting in line: %v", err)
				return
			}
			l.mu.Lock()
			l.served = append(l.served, h.ID())
			l.mu.Unlock()
			pause(20 * time.Millisecond)
			l.must("unlock line", l.unlock(h, entry))
		})
		if !within(time.Minute, func() bool { return len(l.queue("line")) == i+1 }) {
			l.c.t.Fatalf("%d of %d wait in line", len(l.queue("line")), i+1)
		}
	}
	l.line = l.queue("line")
}

// queue are those who wait for a lock, in order, read through the SDK.
func (l *load) queue(name string) (ids []uint64) {
	ctx, cancel := context.WithTimeout(l.ctx, 30*time.Second)
	defer cancel()
	lock, err := l.checker.GetLock(ctx, &wire.GetLockRequest{Name: name})
	if err != nil {
		l.fault("read %s: %v", name, err)
	}
	for _, w := range lock.GetQueue() {
		ids = append(ids, w.GetWaitId())
	}
	return ids
}

// checkLine checks in the middle of things that nobody lost a place or a pinned hold.
func (l *load) checkLine(when string) {
	l.c.t.Helper()
	if queue := l.queue("line"); !slices.Equal(queue, l.line) {
		l.fault("after %s the queue is %v, it was %v", when, queue, l.line)
	}
	for _, p := range l.pinned {
		if err := p.hold.Context().Err(); err != nil {
			l.fault("after %s %s is lost: %v", when, p.hold.Name(), context.Cause(p.hold.Context()))
		}
	}
}

// finish ends the load in calm weather: every waiter is answered in time, nothing is
// held but what is known, places were kept, and everything is given back.
func (l *load) finish() {
	l.c.t.Helper()
	l.end()
	l.must("line", l.unlock(l.pinned[2].hold, l.pinned[2].entry))
	done := make(chan struct{})
	go func() { l.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(answerBound):
		l.busyMu.Lock()
		l.fault("not answered %v after healing: %v", answerBound, l.busy)
		l.busyMu.Unlock()
		l.cancel()
		l.c.closeClients()
		<-done
		return
	}
	if !slices.Equal(l.served, l.line) {
		l.fault("in line were %v, they were served as %v", l.line, l.served)
	}
	var found []string
	want := []string{l.known(0), l.known(1)}
	if !within(2*steadyTTL, func() bool { found = l.held(); return slices.Equal(found, want) }) {
		l.fault("held silently: found %v, known %v", found, want)
	}
	for _, p := range l.pinned[:2] {
		l.must("unlock "+p.hold.Name(), l.unlock(p.hold, p.entry))
	}
	l.leave()
}

func (l *load) known(i int) string {
	p := l.pinned[i].hold
	return fmt.Sprintf("%s: %d token %d", p.Name(), p.ID(), p.Token())
}

// held lists all locks with their holders, read through the SDK.
func (l *load) held() (found []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	all, err := l.checker.ListLocks(ctx, &wire.ListLocksRequest{})
	if err != nil {
		l.fault("list locks: %v", err)
	}
	for _, lock := range all.GetLocks() {
		var holders []string
		for _, h := range lock.GetHolders() {
			holders = append(holders, fmt.Sprintf("%d token %d", h.GetHoldId(), h.GetToken()))
		}
		found = append(found, lock.GetName()+": "+strings.Join(holders, ", "))
	}
	return found
}

// leave closes everything; no session stays longer than two TTLs.
func (l *load) leave() {
	l.c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, s := range l.steady {
		l.must("close a session", s.Close(ctx))
	}
	left := map[uint64]bool{}
	if !within(2*steadyTTL, func() bool {
		clear(left)
		l.c.leader().replica().Fork().EachSession(collect(left))
		return len(left) == 0
	}) {
		l.fault("sessions that never expired: %v", slices.Sorted(maps.Keys(left)))
	}
	l.c.closeClients()
	l.cancel()
}
