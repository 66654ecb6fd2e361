package process_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	workers     = 16
	hotLocks    = 4
	longHolds   = 8
	loadClients = 2
	perClient   = 2 // sessions

	// loadTTL is much longer than a fail-over, so that whoever loses a session has met a
	// defect and not a slow machine.
	loadTTL = 20 * time.Second
	// pace keeps the load from being all that the machine does.
	pace = 2 * time.Millisecond
)

// load is what the cluster is used for while it is hurt: workers that lock and unlock a
// few names, holds that last, and a queue that waits behind one of them.
type load struct {
	t        *testing.T
	c        *process.Cluster
	ledger   *ledger
	sessions []*client.Session
	clients  []*client.Client
	long     []*client.Hold
	queue    *queue
	stop     chan struct{}
	wg       sync.WaitGroup
}

// startLoad starts the load and returns when it is well under way.
func startLoad(t *testing.T, c *process.Cluster) *load {
	t.Helper()
	l := &load{t: t, c: c, ledger: newLedger(), stop: make(chan struct{})}
	for range loadClients {
		cl := c.NewClient()
		l.clients = append(l.clients, cl)
		for range perClient {
			l.sessions = append(l.sessions, open(t, cl, loadTTL))
		}
	}
	for i := range longHolds {
		l.long = append(l.long, l.take(i, fmt.Sprintf("long/%d", i)))
	}
	l.queue = l.lineUp("line")
	for i := range workers {
		l.wg.Go(func() { l.work(i) })
	}
	l.awaitGrants(0, 200)
	return l
}

func open(t *testing.T, cl *client.Client, ttl time.Duration) *client.Session {
	t.Helper()
	s, err := cl.NewSession(t.Context(), client.SessionOptions{TTL: ttl, Name: "load"})
	if err != nil {
		t.Fatal("open a session: ", err)
	}
	return s
}

// session is one of the load's, the same for the same i.
func (l *load) session(i int) *client.Session { return l.sessions[i%len(l.sessions)] }

// take locks a name for as long as the load lasts.
func (l *load) take(i int, name string) *client.Hold {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), process.Patience)
	defer cancel()
	called := l.ledger.now()
	h, err := l.session(i).Lock(ctx, name)
	if err != nil {
		l.t.Fatalf("lock %s: %v", name, err)
	}
	l.ledger.book(grant{lock: name, hold: h.ID(), token: h.Token(), revision: h.Revision(), called: called, granted: l.ledger.now()})
	return h
}

// work locks and unlocks until it is told to stop.
func (l *load) work(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	rest := time.NewTicker(pace)
	defer rest.Stop()
	for round := i; ; round++ {
		select {
		case <-l.stop:
			return
		case <-rest.C:
		}
		name := fmt.Sprintf("hot/%d", round%hotLocks)
		called := l.ledger.now()
		h, err := l.session(i).Lock(ctx, name)
		if err != nil {
			l.ledger.fault("lock %s: %w", name, err)
			return
		}
		if err := l.giveBack(ctx, h, called); err != nil {
			l.ledger.fault("unlock %s, token %d: %w", name, h.Token(), err)
			return
		}
	}
}

// giveBack books a hold and unlocks it. An acknowledged hold that the cluster does not
// know any more answers with an error.
func (l *load) giveBack(ctx context.Context, h *client.Hold, called time.Duration) error {
	g := grant{lock: h.Name(), hold: h.ID(), token: h.Token(), revision: h.Revision(), called: called, granted: l.ledger.now()}
	held := h.Context().Err()
	g.ended = l.ledger.now()
	l.ledger.book(g)
	if held != nil {
		return fmt.Errorf("lost at once: %w", context.Cause(h.Context()))
	}
	return h.Unlock(ctx)
}

// awaitGrants waits for so many grants since a moment.
func (l *load) awaitGrants(since time.Duration, count int) {
	l.t.Helper()
	l.c.Await(fmt.Sprintf("%d grants", count), process.Patience, func(context.Context) error {
		if n := l.ledger.since(since); n < count {
			return fmt.Errorf("%d so far: %w", n, l.ledger.check())
		}
		return nil
	})
}

// finish stops the workers, checks what was promised and tidies up, after which no node
// may know of anything.
func (l *load) finish() {
	l.t.Helper()
	close(l.stop)
	l.wg.Wait()
	l.stillHeld()
	l.queue.serve()
	ctx, cancel := context.WithTimeout(l.t.Context(), process.Patience)
	defer cancel()
	for _, h := range l.long {
		if err := h.Unlock(ctx); err != nil {
			l.t.Errorf("unlock %s: %v", h.Name(), err)
		}
	}
	for _, s := range l.sessions {
		if err := s.Close(ctx); err != nil {
			l.t.Errorf("close a session: %v", err)
		}
	}
	for _, cl := range l.clients {
		_ = cl.Close()
	}
	if err := l.ledger.check(); err != nil {
		l.t.Error(err)
	}
	l.t.Logf("%d grants", l.ledger.since(0))
}

// stillHeld compares the long holds with what the cluster says of them.
func (l *load) stillHeld() {
	l.t.Helper()
	for i, s := range l.sessions {
		if s.State() == client.Lost {
			l.t.Errorf("session %d of the load was lost: %v", i, s.Err())
		}
	}
	for i, h := range l.long {
		lock := l.c.Lock(h.Name())
		if len(lock.GetHolders()) != 1 {
			l.t.Errorf("%s has %d holders", h.Name(), len(lock.GetHolders()))
			continue
		}
		holder := lock.GetHolders()[0]
		if holder.GetHoldId() != h.ID() || holder.GetToken() != h.Token() || holder.GetSessionId() != l.session(i).ID() {
			l.t.Errorf("%s is held by %v, acknowledged were hold %d, token %d", h.Name(), holder, h.ID(), h.Token())
		}
		if h.Context().Err() != nil {
			l.t.Errorf("%s was lost: %v", h.Name(), context.Cause(h.Context()))
		}
	}
}

// queue is a lock with waiters in a known order.
type queue struct {
	l     *load
	head  *client.Hold
	order []uint64 // wait ids
	wg    sync.WaitGroup

	mu     sync.Mutex
	served []uint64 // hold ids, which are the ids of the waits before
}

const queueLength = 6

// lineUp takes a lock and puts waiters behind it one by one.
func (l *load) lineUp(name string) *queue {
	l.t.Helper()
	q := &queue{l: l, head: l.take(0, name)}
	for i := range queueLength {
		q.wg.Go(func() { q.wait(i) })
		l.c.Await("a place in the queue", process.Patience, func(context.Context) error {
			q.order = q.waiting()
			if len(q.order) != i+1 {
				return fmt.Errorf("%d wait", len(q.order))
			}
			return nil
		})
	}
	return q
}

// waiting are the wait ids in the queue, as the cluster says.
func (q *queue) waiting() (ids []uint64) {
	return waitIDs(q.l.c.Lock(q.head.Name()))
}

func waitIDs(lock *wire.GetLockResponse) (ids []uint64) {
	for _, w := range lock.GetQueue() {
		ids = append(ids, w.GetWaitId())
	}
	return ids
}

func (q *queue) wait(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	called := q.l.ledger.now()
	h, err := q.l.session(i).Lock(ctx, q.head.Name())
	if err != nil {
		q.l.ledger.fault("waiter %d: %w", i, err)
		return
	}
	q.mu.Lock()
	q.served = append(q.served, h.ID())
	q.mu.Unlock()
	if err := q.l.giveBack(ctx, h, called); err != nil {
		q.l.ledger.fault("waiter %d: %w", i, err)
	}
}

// serve compares the queue with what it was, and lets it go.
func (q *queue) serve() {
	t := q.l.t
	t.Helper()
	if now := q.waiting(); !slices.Equal(now, q.order) {
		t.Errorf("the queue was %d and is %d", q.order, now)
	}
	q.l.ledger.endOf(q.head.ID())
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	if err := q.head.Unlock(ctx); err != nil {
		t.Errorf("unlock the head of the queue: %v", err)
	}
	q.wg.Wait()
	if !slices.Equal(q.served, q.order) {
		t.Errorf("waiters were served in the order %d, queued in %d", q.served, q.order)
	}
}

// endOf books the end of a hold that was booked as held still.
func (l *ledger) endOf(hold uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.grants {
		if l.grants[i].hold == hold {
			l.grants[i].ended = time.Since(l.begun)
		}
	}
}
