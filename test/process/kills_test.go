package process_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
)

var errNotYet = errors.New("not every client has had an answer")

// caller is a client that makes one call after the other.
type caller struct {
	hold *client.Hold

	mu    sync.Mutex
	since time.Time     // the event after which a call is awaited
	took  time.Duration // from the event to the first answer to a call that began after it; 0 if there was none yet
}

// keepOn writes the value of its lock until ctx ends. Calls wait for the next leader and do not fail.
func (k *caller) keepOn(ctx context.Context, t *testing.T) {
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		if err := k.hold.SetValue(ctx, []byte("here")); err != nil {
			if ctx.Err() == nil {
				t.Error("set a value: ", err)
			}
			return
		}
		k.mu.Lock()
		if k.took == 0 && !k.since.IsZero() && !began.Before(k.since) {
			k.took = time.Since(k.since)
		}
		k.mu.Unlock()
		<-pace.C
	}
}

// await begins to measure.
func (k *caller) await(event time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.since, k.took = event, 0
}

// after returns the time from the event to the first answer, or 0 if there was none yet.
func (k *caller) after() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.took
}

// TestLeaderIsKilledAgainAndAgain kills the leader under thirty clients with sessions of the shortest TTL. None may be
// lost, and on a quiet machine each client goes on within a second:
//
//	QUORUMLOCK_CHECK=1 go test ./test/process -run '^TestLeaderIsKilledAgainAndAgain$' -v
func TestLeaderIsKilledAgainAndAgain(t *testing.T) {
	kills, within := 3, shortestTTL
	if full {
		kills, within = 200, time.Second
	}
	c := process.StartWith(t, programs, process.Options{Nodes: 3})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var callers []*caller
	for i := range 30 {
		hold, err := open(t, c.NewClient(), shortestTTL).Lock(ctx, fmt.Sprintf("killed/%d", i))
		if err != nil {
			t.Fatal(err)
		}
		k := &caller{hold: hold}
		callers = append(callers, k)
		running.Go(func() { k.keepOn(ctx, t) })
	}
	var slowest []time.Duration
	for range kills {
		c.AwaitCaughtUp()
		leader := c.Leader()
		took := make([]time.Duration, len(callers))
		killed := time.Now()
		c.Kill9(leader)
		for _, k := range callers {
			k.await(killed)
		}
		c.Await("answers to all clients", process.WaitTimeout, func(context.Context) error {
			for i, k := range callers {
				if took[i] = k.after(); took[i] == 0 {
					return errNotYet
				}
			}
			return nil
		})
		slowest = append(slowest, slices.Max(took))
		c.Restart(leader)
		c.AwaitAll()
	}
	cancel()
	running.Wait()
	for _, k := range callers {
		if err := context.Cause(k.hold.Context()); err != nil {
			t.Error("a hold was lost: ", err)
		}
	}
	slices.Sort(slowest)
	median, worst := slowest[len(slowest)/2], slowest[len(slowest)-1]
	t.Logf("%d kills: the slowest of %d clients goes on after %v in the median, %v at worst", kills, len(callers), median, worst)
	if worst > within {
		t.Errorf("the slowest client went on after %v, want %v", worst, within)
	}
}
