package replica_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// realCluster starts three nodes with real disks and sockets in this process and returns the leader.
func realCluster(b *testing.B) *replica.Replica {
	b.Helper()
	if testing.Short() {
		b.Skip("a whole cluster's allocations depend on the time: see make bench")
	}
	var peers []replica.Peer
	var cfgs []replica.Config
	for i := range 3 {
		l, err := transport.TCP{}.Listen(b.Context(), "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		id := fmt.Sprint("n", i+1)
		peers = append(peers, replica.Peer{ID: id, Addr: l.Addr().String()})
		cfgs = append(cfgs, replica.Config{ID: id, DataDir: b.TempDir(), PeerListener: l, Advertise: replica.Addresses{Peer: l.Addr().String()}})
	}
	nodes := make([]*replica.Replica, 3)
	var opened sync.WaitGroup
	for i, cfg := range cfgs {
		cfg.Cluster = peers
		opened.Go(func() {
			r, err := replica.Open(b.Context(), cfg)
			if err != nil {
				b.Error(err)
				return
			}
			nodes[i] = r
		})
	}
	opened.Wait()
	b.Cleanup(func() {
		for _, r := range nodes {
			_ = r.Close(context.Background())
		}
	})
	changed := make(chan struct{}, 16)
	for _, r := range nodes {
		r.OnLeader(func(*wire.LeaderHint) { changed <- struct{}{} })
	}
	for deadline := time.After(20 * time.Second); ; {
		for _, r := range nodes {
			if r.Serving() {
				return r
			}
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			b.Fatal("no leader within 20 s")
		}
	}
}

func call(r *replica.Replica, cmd *wire.Command) *wire.Result {
	done := make(chan *wire.Result, 1)
	r.Propose(cmd, func(result *wire.Result) { done <- result })
	return <-done
}

// BenchmarkPairs measures acquire and release by several callers, each with its own lock.
func BenchmarkPairs(b *testing.B) {
	for _, callers := range []int{1, 16, 128, 1024} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			r := realCluster(b)
			eachCaller(b, r, callers, func(caller int, session, seq uint64) {
				hold := call(r, acquireCommand(session, seq, fmt.Sprint("lock", caller), 0))
				release := releaseCommand(session, seq+1, hold)
				release.AckedBelow = seq
				if result := call(r, release); result.Status != wire.Status_OK {
					b.Errorf("%v after %v", result, hold)
				}
			})
		})
	}
}

// BenchmarkHandOver measures how often a hot lock changes hands while that many sessions wait for it. A
// session that releases it queues again immediately.
func BenchmarkHandOver(b *testing.B) {
	for _, waiters := range []int{1, 10, 100, 10_000} {
		b.Run(fmt.Sprint("waiters=", waiters), func(b *testing.B) {
			r := realCluster(b)
			grants, ended := make(chan struct{}), make(chan struct{})
			var queued, all sync.WaitGroup
			for i := range waiters + 1 {
				queued.Add(1)
				all.Go(func() { takeTurns(b, r, fmt.Sprint(b.Name(), i), queued.Done, grants, ended) })
			}
			queued.Wait()
			b.ResetTimer()
			for range b.N {
				<-grants
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handovers/s")
			b.StopTimer()
			close(ended)
			all.Wait()
		})
	}
}

// takeTurns runs a session that acquires and releases a hot lock until the benchmark ends. It calls queued
// when it is in the queue for the first time, and sends each grant to grants.
func takeTurns(b *testing.B, r *replica.Replica, name string, queued func(), grants chan<- struct{}, ended <-chan struct{}) {
	session := call(r, openCommand(name, time.Minute)).GetSession().GetSessionId()
	for seq := uint64(1); ; seq += 2 {
		hold := waitInLine(r, session, seq, queued, ended)
		if hold == nil {
			return
		}
		select {
		case grants <- struct{}{}:
		case <-ended:
			return
		}
		if result := call(r, releaseCommand(session, seq+1, hold)); result.Status != wire.Status_OK {
			b.Errorf("%v after %v", result, hold)
			return
		}
		queued = func() {}
	}
}

// waitInLine returns the grant, or nil if the benchmark ended first.
func waitInLine(r *replica.Replica, session, seq uint64, queued func(), ended <-chan struct{}) *wire.Result {
	results := make(chan *wire.Result, 2)
	defer r.Await(session, seq, func(result *wire.Result) { results <- result })()
	acquire := acquireCommand(session, seq, "hot", forever)
	acquire.AckedBelow = seq
	if first := call(r, acquire); first.Status != wire.Status_QUEUED {
		results <- first
	}
	queued()
	select {
	case hold := <-results:
		return hold
	case <-ended:
		return nil
	}
}

// eachCaller distributes b.N rounds over the callers and reports the rate per second.
func eachCaller(b *testing.B, r *replica.Replica, callers int, round func(caller int, session, seq uint64)) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	sessions := make([]uint64, callers)
	for i := range sessions {
		sessions[i] = call(r, openCommand(fmt.Sprint(b.Name(), i), time.Minute)).GetSession().GetSessionId()
	}
	b.ResetTimer()
	for i, s := range sessions {
		all.Go(func() {
			for seq := uint64(1); left.Add(-1) >= 0; seq += 2 {
				round(i, s, seq)
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rounds/s")
}
