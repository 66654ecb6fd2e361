package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// clientNemeses are clients in trouble, and clients that cause it.
var clientNemeses = []Nemesis{
	{Name: "cut frail clients off", strike: func(s *strike) uint64 {
		before := s.frail.waited()
		s.frail.cut("")
		defer s.frail.heal("")
		s.Pass(s.between(time.Second, 9*time.Second))
		return s.frail.waited() - before
	}},
	{Name: "hold a client back beyond its TTL", strike: holdBack},
	{Name: "storm of sessions", needs: direct, strike: func(s *strike) uint64 { return s.storm(1_000) }},
	{Name: "storm of 10,000 sessions", needs: func(o Options) bool { return o.Storms && !o.Lean && direct(o) }, strike: func(s *strike) uint64 { return s.storm(10_000) }},
	{Name: "greed", strike: greed},
}

// direct reports whether nodes are connected without proxies. Proxies run in the test's process, where the
// nodes' traffic would queue behind that of the crowd.
func direct(o Options) bool { return !o.Proxied }

// frailTTL is the TTL of the sessions of frail clients.
const frailTTL = 5 * time.Second

// holdBack stalls one client between its last check of a hold and what it does under it, until another client
// has had the time to acquire the lock.
func holdBack(s *strike) (caught uint64) {
	t := s.frail.lay()
	defer s.frail.lift(t)
	late := time.NewTimer(WaitTimeout)
	defer late.Stop()
	select {
	case client := <-t.caught:
		defer s.frail.heal(client)
		s.Pass(frailTTL + s.between(time.Second, 3*time.Second))
		return 1
	case <-late.C:
		return 0
	}
}

const (
	// stormTTL is longer than any storm, so that a lost session indicates a defect.
	stormTTL = time.Minute
	// stormTimeout is how long opening a storm's sessions may take, and how long their recovery may take.
	stormTimeout = 45 * time.Second
	// maxGroupConns is the maximum number of clients in a crowd: each opens several connections while it looks
	// for the next leader, and a process may have 20,000 open files.
	maxGroupConns = 2_500
	// atOnce is the concurrency of a crowd.
	atOnce = 512
)

// clientGroup is a set of sessions with one lock each, on many connections.
type clientGroup struct {
	clients  []*client.Client
	sessions []*client.Session
	holds    []*client.Hold
}

// storm kills the leader of a crowd, so that all clients connect to the next one at the same time, and
// verifies that every session still holds its lock. It returns how many did.
func (s *strike) storm(size int) (back uint64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*stormTimeout)
	defer cancel()
	k, err := s.openSessions(ctx, size)
	defer k.leave()
	if err != nil {
		s.t.Error("gathering a storm: ", err)
		return 0
	}
	old := s.Leader()
	started := time.Now()
	s.Kill9(old)
	var count atomic.Uint64
	if err := many(size, func(i int) error {
		if err := k.holds[i].Unlock(ctx); err != nil {
			return err
		}
		count.Add(1)
		return nil
	}); err != nil {
		s.t.Errorf("%d of %d are back: %v", count.Load(), size, err)
	}
	s.t.Logf("a storm of %d sessions is back %v after its leader was killed", size, time.Since(started).Round(time.Millisecond))
	s.Restart(old)
	s.AwaitAll()
	if err := many(size, func(i int) error { return k.sessions[i].Close(ctx) }); err != nil {
		s.t.Error("closing a storm: ", err)
	}
	return count.Load()
}

// openSessions opens the sessions of a crowd.
func (s *strike) openSessions(ctx context.Context, size int) (*clientGroup, error) {
	k := &clientGroup{make([]*client.Client, min(size, maxGroupConns)), make([]*client.Session, size), make([]*client.Hold, size)}
	for i := range k.clients {
		var err error
		if k.clients[i], err = client.New(client.Config{Endpoints: s.Endpoints(), Agent: "storm", Dial: s.Dialer()}); err != nil {
			return k, err
		}
	}
	return k, many(size, func(i int) (err error) {
		if k.sessions[i], err = k.clients[i%len(k.clients)].NewSession(ctx, client.SessionOptions{TTL: stormTTL, Name: "storm"}); err != nil {
			return err
		}
		k.holds[i], err = k.sessions[i].Lock(ctx, fmt.Sprintf("storm/%d", i))
		return err
	})
}

func (k *clientGroup) leave() {
	_ = many(len(k.clients), func(i int) error {
		if k.clients[i] == nil {
			return nil
		}
		return k.clients[i].Close()
	})
}

// many calls do for 0 to count-1, concurrently, and returns the first error.
func many(count int, do func(i int) error) error {
	var next atomic.Int64
	var first error
	var once sync.Once
	var wg sync.WaitGroup
	for range min(count, atOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					once.Do(func() { first = fmt.Errorf("%d: %w", i, err) })
				}
			}
		})
	}
	wg.Wait()
	return first
}

// greed requests more of everything than a session may have, and is refused.
func greed(s *strike) (refused uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*WaitTimeout)
	defer cancel()
	cl := s.NewClient()
	defer cl.Close()
	session, err := cl.NewSession(ctx, client.SessionOptions{TTL: stormTTL, Name: "greedy"})
	if err != nil {
		s.t.Error("greed: ", err)
		return 0
	}
	const more = 1_500 // more than the 1,024 claims and requests that a session may have
	var refusals atomic.Uint64
	err = many(more, func(i int) error {
		_, err := session.Lock(ctx, fmt.Sprintf("greed/%d", i), client.WithTry(), client.WithValue(make([]byte, 1_000)))
		if errors.Is(err, client.ErrResourceExhausted) {
			refusals.Add(1)
			return nil
		}
		return err
	})
	if err != nil {
		s.t.Error("greed for locks: ", err)
	}
	if _, err := session.Lock(ctx, "greed/value", client.WithTry(), client.WithValue(make([]byte, 100_000))); err == nil {
		s.t.Error("a value of 100,000 bytes was taken")
	} else {
		refusals.Add(1)
	}
	if err := session.Close(ctx); err != nil {
		s.t.Error("greed: ", err)
	}
	return refusals.Load()
}
