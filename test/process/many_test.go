package process_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
)

const (
	manySessions = 1_000
	// heapGrowth is how much the heap may grow, once everything is closed: a tenth of what the sessions took.
	heapGrowth = 128 << 10 // bytes
	// nodeGoroutines is how many more goroutines a node may have than before, for its communication with
	// other nodes.
	nodeGoroutines = 10
)

// TestManySessions opens 1,000 sessions with one lock each, from one process.
func TestManySessions(t *testing.T) {
	c := process.Start(t, programs, 3)
	for _, clients := range []int{1, 16} {
		t.Run(fmt.Sprintf("clients=%d", clients), func(t *testing.T) {
			// The first run is a rehearsal: the runtime then has allocated what it keeps for so many
			// goroutines.
			useMany(t, c, clients, manySessions)
			c.AwaitMetrics("nothing kept", c.IDs(), process.Idle)
			before := nodesGoroutines(t, c)
			heap, goroutines := heapInUse(), goleak.IgnoreCurrent()

			started := time.Now()
			peak := useMany(t, c, clients, manySessions)
			took := time.Since(started)
			c.AwaitMetrics("nothing kept", c.IDs(), process.Idle)
			goleak.VerifyNone(t, goroutines)
			after := heapInUse()
			t.Logf("%d sessions in %v; heap %d KiB before, %d KiB with all open, %d KiB after", manySessions,
				took.Round(time.Millisecond), heap>>10, peak>>10, after>>10)
			if after > heap+heapGrowth {
				t.Errorf("%d bytes of heap before, %d after", heap, after)
			}
			backTo(t, c, before)
		})
	}
}

// heapInUse returns the number of reachable bytes.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // frees what finalizers and pools referenced
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// nodesGoroutines returns the nodes' goroutine counts while they are unused.
func nodesGoroutines(t *testing.T, c *process.Cluster) map[string]float64 {
	t.Helper()
	counts := map[string]float64{}
	for _, id := range c.IDs() {
		c.Await("the metrics of "+id, process.WaitTimeout, func(ctx context.Context) error {
			metrics, err := c.Metrics(ctx, id)
			if counts[id] = metrics["go_goroutines"]; err == nil && counts[id] == 0 {
				err = fmt.Errorf("no go_goroutines")
			}
			return err
		})
	}
	return counts
}

// backTo waits until the nodes have as many goroutines as before.
func backTo(t *testing.T, c *process.Cluster, before map[string]float64) {
	t.Helper()
	after := map[string]float64{}
	c.Await("the nodes' goroutines", process.WaitTimeout, func(ctx context.Context) error {
		for _, id := range c.IDs() {
			metrics, err := c.Metrics(ctx, id)
			if err != nil {
				return err
			}
			if now := metrics["go_goroutines"]; now > before[id]+nodeGoroutines {
				return fmt.Errorf("%s had %v and has %v", id, before[id], now)
			} else {
				after[id] = now
			}
		}
		return nil
	})
	t.Logf("goroutines of the nodes: %v before, %v after", before, after)
}

// useMany opens sessions concurrently, each with one lock, reads them, and closes them concurrently, every
// other one with its lock still held. It returns the heap size with all sessions open.
func useMany(t *testing.T, c *process.Cluster, clients, count int) (heap uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.WaitTimeout)
	defer cancel()
	var all []*client.Client
	for range clients {
		cl, err := client.New(client.Config{Endpoints: c.Endpoints()})
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		all = append(all, cl)
	}
	holds, sessions := make([]*client.Hold, count), make([]*client.Session, count)
	each(count, func(i int) {
		var err error
		if sessions[i], err = all[i%clients].NewSession(ctx, client.SessionOptions{TTL: loadTTL}); err != nil {
			t.Errorf("session %d: %v", i, err)
		} else if holds[i], err = sessions[i].Lock(ctx, fmt.Sprintf("many/%d", i)); err != nil {
			t.Errorf("lock %d: %v", i, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	n := float64(count)
	c.AwaitMetrics("all of them", c.IDs(), map[string]float64{
		"quorumlock_sessions": n, "quorumlock_locks": n, "quorumlock_holds": n, "quorumlock_waiters": 0,
	})
	heap = heapInUse()
	each(count, func(i int) {
		if i%2 == 0 {
			if err := holds[i].Unlock(ctx); err != nil {
				t.Errorf("unlock %d: %v", i, err)
			}
		}
		if err := sessions[i].Close(ctx); err != nil {
			t.Errorf("close %d: %v", i, err)
		}
	})
	return heap
}

// each calls do for 0 to count-1, all concurrently.
func each(count int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}
