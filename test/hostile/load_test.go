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
	// pace keeps the load from being all that the machine does.
	pace = 5 * time.Millisecond
)

var (
	// pauseBound is the longest that a lock and its release may take together. The machine that
	// runs the attackers runs the nodes as well, so it is much more than the attacks themselves cost.
	pauseBound = aloneOrShared(3*time.Second, timeout)

	sessionOptions = client.SessionOptions{TTL: aloneOrShared(10*time.Second, time.Minute), Name: "load"}
)

// load is the service that must not be hurt: workers that take and release locks, each
// its own and all of them one.
type load struct {
	t    testing.TB
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	rounds  int
	longest time.Duration
	errs    []error
}

// startLoad returns when the load is well under way.
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
		begun := time.Now()
		err := once(s, name)
		l.book(time.Since(begun), err)
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

func (l *load) book(took time.Duration, err error) {
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

// finish ends the load and says what it saw.
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
