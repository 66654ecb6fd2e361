package process_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/process"
)

const (
	// heldTTL is the maximum TTL by default: these sessions get no heartbeats.
	heldTTL = 10 * time.Minute
	// heldBySession is the number of locks per session.
	heldBySession = 1_000
	// backWithin bounds the restart of a node in the long version.
	backWithin = 10 * time.Second
	// snapshotsWithin bounds the wait until all nodes have written a snapshot under load: raft checks every
	// 30 to 60 s whether one is due.
	snapshotsWithin = 3 * time.Minute
)

// TestRestartWithAMillionLocks measures how soon a node with a million locks is back after a restart, with
// default settings except for the number of locks. The short version uses a few thousand. On a quiet machine:
//
//	QUORUMLOCK_CHECK=1 go test ./test/process -run '^TestRestartWithAMillionLocks$' -v
func TestRestartWithAMillionLocks(t *testing.T) {
	sessions, within := 2, process.WaitTimeout
	if full {
		sessions, within = 1_000, backWithin
	}
	c := process.Start(t, programs, 3, "--snapshot-threshold", "0", "--trailing-logs", "0", "--max-locks", "2000000", "--log-level", "debug") // which has raft's snapshots
	hold(t, c, sessions)
	restarts := func(place string) {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			serving, caughtUp, cpu := back(t, c, c.Others(c.Leader())[0], sig)
			t.Logf("%d held locks in the %s, %v: serving after %v, caught up after %v and %.1f s of CPU", sessions*heldBySession, place, sig,
				serving.Round(10*time.Millisecond), caughtUp.Round(10*time.Millisecond), cpu)
			if caughtUp > within {
				t.Errorf("more than %v", within)
			}
		}
	}
	restarts("log")
	if full {
		writeSnapshots(t, c)
		restarts("snapshot and the log behind it")
	}
	c.AwaitMetrics("all locks are still held", c.IDs(), map[string]float64{"quorumlock_holds": float64(sessions * heldBySession)})
}

// hold lets sessions acquire locks, each one after the other, and then closes their clients, so that only the
// locks remain.
func hold(t *testing.T, c *process.Cluster, sessions int) {
	t.Helper()
	const clients = 16
	var all [clients]*client.Client
	for i := range all {
		all[i] = c.NewClient()
	}
	each(sessions, func(i int) {
		s, err := all[i%clients].NewSession(t.Context(), client.SessionOptions{TTL: heldTTL})
		for n := 0; n < heldBySession && err == nil; n++ {
			_, err = s.Lock(t.Context(), fmt.Sprintf("held/%d/%d", n, i))
		}
		if err != nil {
			t.Errorf("session %d: %v", i, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	for _, cl := range all {
		wirecall.Crash(cl) // no session is closed
	}
	c.AwaitCaughtUp()
}

// back ends a node and restarts it. It returns the time from its start until it answered, the time until it
// had applied everything that was committed at its start, and the CPU seconds used until then.
func back(t *testing.T, c *process.Cluster, id string, sig syscall.Signal) (serving, caughtUp time.Duration, cpu float64) {
	t.Helper()
	c.Signal(sig, id)
	c.Ended(id)
	committed := c.AwaitLeaderIndex()
	started := time.Now()
	c.Restart(id)
	c.Await(id+" caught up", 6*backWithin, func(ctx context.Context) error {
		metrics, err := c.Metrics(ctx, id)
		if err != nil {
			return err
		}
		if serving == 0 {
			serving = time.Since(started)
		}
		if applied := metrics["quorumlock_applied_index"]; applied < committed {
			return fmt.Errorf("at entry %v of %v", applied, committed)
		}
		cpu = metrics["process_cpu_seconds_total"]
		return nil
	})
	caughtUp = time.Since(started)
	c.AwaitAll()
	return serving, caughtUp, cpu
}

// writeSnapshots lets a client lock and unlock until every node has written a snapshot.
func writeSnapshots(t *testing.T, c *process.Cluster) {
	t.Helper()
	g := &grants{session: open(t, c.NewClient(), heldTTL)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.keepOn(ctx, t) })
	defer running.Wait()
	defer cancel()
	started := time.Now()
	c.Await("a snapshot of every node", snapshotsWithin, func(context.Context) error {
		for _, id := range c.IDs() {
			if !strings.Contains(c.Log(id), "snapshot complete") {
				return errors.New("none of " + id)
			}
		}
		return nil
	})
	t.Logf("three snapshots were written in %v; longest time without a grant %v", time.Since(started).Round(time.Second), g.longest(started).Round(time.Millisecond))
}
