package hostile

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

const (
	workers = 4
	// pace keeps the load from using the whole machine.
	pace = 5 * time.Millisecond
)

var (
	// pauseBound bounds the time for a lock and its release. The attackers run on the same machine as the
	// nodes, so it is much larger than the cost of the attacks.
	pauseBound = aloneOrShared(3*time.Second, timeout)

	sessionOptions = client.SessionOptions{TTL: aloneOrShared(10*time.Second, time.Minute), Name: "load"}
)

// load is the use that attacks must not affect: workers that acquire and release locks, each its own and a
// common one.
type load struct {
	t    testing.TB
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	rounds  int
	longest time.Duration
	errs    []error
}

// startLoad returns once the load is well in progress.
func startLoad(t testing.TB, c *cluster) *load {
	t.Helper()
	l := &load{t: t, stop: make(chan struct{})}
	cl := c.client()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for i := range workers {
		s, err := cl.NewSession(ctx, sessionOptions)
		if err != nil {
			t.Fatal(err)
		}
		l.wg.Go(func() { l.work(s, i) })
	}
	await(t, "the load", timeout, func(context.Context) error {
		if rounds, _, errs := l.seen(); rounds < 100 {
			return fmt.Errorf("%d rounds, %v", rounds, errs)
		}
		return nil
	})
	return l
}

func (l *load) work(s *client.Session, i int) {
	rest := time.NewTicker(pace)
	defer rest.Stop()
	for round := 0; ; round++ {
		select {
		case <-l.stop:
			return
		case <-rest.C:
		}
		name := fmt.Sprintf("own/%d", i)
		if round%4 == 0 {
			name = "shared"
		}
		started := time.Now()
		err := once(s, name)
		l.add(time.Since(started), err)
		if err != nil {
			return
		}
	}
}

func once(s *client.Session, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	hold, err := s.Lock(ctx, name)
	if err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	if err := hold.Unlock(ctx); err != nil {
		return fmt.Errorf("unlock %s: %w", name, err)
	}
	return nil
}

func (l *load) add(took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rounds++
	l.longest = max(l.longest, took)
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

func (l *load) seen() (rounds int, longest time.Duration, errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rounds, l.longest, l.errs
}

// finish ends the load and reports what it saw.
func (l *load) finish() {
	l.t.Helper()
	close(l.stop)
	l.wg.Wait()
	rounds, longest, errs := l.seen()
	l.t.Logf("the load: %d locks taken and released, longest pause %v", rounds, longest.Round(time.Millisecond))
	for _, err := range errs {
		l.t.Error("the load: ", err)
	}
	if longest > pauseBound {
		l.t.Errorf("the load paused for %v, more than %v", longest, pauseBound)
	}
}
