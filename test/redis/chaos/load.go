package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/redis/system"
)

const (
	// prefix is the prefix of the names of all locks.
	prefix = "keys/"
	// locks is the number of locks that everybody contends for.
	locks = 3
	// pace is roughly how long an actor rests between rounds.
	pace = 150 * time.Millisecond
	// requestTimeout bounds a request of a Redis client: it is longer than a node waits for a leader.
	requestTimeout = 5 * time.Second
)

// Load is a load in progress. Violations are recorded as faults in the history.
type Load struct {
	cluster  *process.Cluster
	log      *history.Log
	entries  []string // addresses of the Redis ports, and of the balancer
	balancer *system.Balancer
	counters []*counter // of the locks that everybody contends for
	own      []*counter // of a lock for each entry

	stop   context.Context // when done, actors finish their round
	end    context.CancelFunc
	acting sync.WaitGroup
	alive  atomic.Int64 // keys that actors hold
	kept   *redis.Client
	keeps  int // keys that Keep has asked for

	mu      sync.Mutex // guards the fields below
	clients []*redis.Client
	did     Counts
}

// Start starts the load. It ends with Finish, or with the test.
func Start(t testing.TB, trial *process.Trial, seed uint64) *Load {
	t.Helper()
	l := &Load{cluster: trial.Cluster, log: trial.Log}
	l.stop, l.end = context.WithCancel(context.Background())
	for _, id := range trial.IDs() {
		l.entries = append(l.entries, trial.Redis(id))
	}
	l.balancer = system.BalanceFrom(t, trial.Dialer(), l.entries...)
	l.entries = append(l.entries, l.balancer.Addr)
	for i := range locks {
		l.counters = append(l.counters, &counter{name: fmt.Sprint(prefix, i)})
	}
	for i := range l.entries {
		l.own = append(l.own, &counter{name: fmt.Sprint(prefix, "own/", i)})
	}
	l.kept = l.open("kept", l.balancer.Addr)
	l.startMutexes(seed)
	l.startQueue(seed)
	l.startSessions(seed)
	t.Cleanup(l.abandon)
	return l
}

// open opens a Redis client, which is closed at the end.
func (l *Load) open(name, addr string) *redis.Client {
	dial := l.cluster.Dialer()
	if addr == l.balancer.Addr {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	dial = l.log.TapRedis(name, dial)
	c := redis.NewClient(&redis.Options{
		Addr: addr, ClientName: name, ContextTimeoutEnabled: true, ReadTimeout: requestTimeout,
		DialTimeout: time.Second, DialerRetries: 1,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) },
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients = append(l.clients, c)
	return c
}

// AwaitHeld waits until an actor holds a key.
func (l *Load) AwaitHeld() {
	l.cluster.Await("a key that is held", process.WaitTimeout, func(context.Context) error {
		if l.alive.Load() == 0 {
			return fmt.Errorf("none is")
		}
		return nil
	})
}

// Finish ends the load after all faults have been healed. It verifies that every Redis client is served, and that no
// write to a counter was lost.
func (l *Load) Finish() Counts {
	l.end()
	l.acting.Wait()
	l.serve()
	for _, c := range slices.Concat(l.counters, l.own) {
		accepted, stale, lost := c.counts()
		if lost != 0 {
			l.log.Fault("%s: %d of %d accepted writes were lost", c.name, lost, accepted)
		}
		l.count(func(did *Counts) { did.Writes += accepted; did.Stale += stale })
	}
	l.abandon()
	return l.did
}

// serve lets every Redis client acquire a lock of its own, and release it.
func (l *Load) serve() {
	l.mu.Lock()
	clients := l.clients
	l.mu.Unlock()
	for i, c := range clients {
		l.cluster.Await("a Redis client that is served", process.WaitTimeout, func(ctx context.Context) error {
			m := l.mutex(c, fmt.Sprint(prefix, "served/", i), time.Minute)
			if err := m.TryLockContext(ctx); err != nil {
				return err
			}
			_, err := m.UnlockContext(ctx)
			return err
		})
	}
}

// abandon ends the load as it is. It may be called repeatedly.
func (l *Load) abandon() {
	l.end()
	l.acting.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		_ = c.Close()
	}
	l.clients = nil
}

func (l *Load) count(add func(*Counts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add(&l.did)
}

// actor is one goroutine, with its own random generator.
type actor struct {
	*Load
	name string
	rand *rand.Rand
}

func (l *Load) actor(name string, seed, number uint64) *actor {
	return &actor{l, name, rand.New(rand.NewPCG(seed, number))}
}

// act plays rounds in a goroutine until the load ends.
func (l *Load) act(name string, seed, number uint64, round func(*actor)) {
	a := l.actor(name, seed, number)
	l.acting.Go(func() {
		for a.stop.Err() == nil {
			round(a)
			a.pause(a.upTo(2 * pace))
		}
	})
}

// pause waits, or until the load ends.
func (a *actor) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.stop.Done():
	}
}

func (a *actor) upTo(d time.Duration) time.Duration { return time.Duration(a.rand.Int64N(int64(d))) }

// oneIn reports true once in n times, on average.
func (a *actor) oneIn(n int) bool { return a.rand.IntN(n) == 0 }

// counter returns one of the counters, whose name is also that of its lock.
func (a *actor) counter() *counter { return a.counters[a.rand.IntN(len(a.counters))] }
