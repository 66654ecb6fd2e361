package peerport_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/peerport"
)

var (
	someEntries = &raft.AppendEntriesRequest{RPCHeader: ofA, Term: 1, PrevLogEntry: 7}
	heartbeat   = &raft.AppendEntriesRequest{RPCHeader: ofA, Term: 1}
)

// TestEntriesWaitForADisconnectedNode ends the wait in each possible way.
func TestEntriesWaitForADisconnectedNode(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, m *memory, from *peerport.Transport, awaited *atomic.Bool){
		"it is back": func(t *testing.T, m *memory, _ *peerport.Transport, _ *atomic.Bool) {
			b := start(t, knows("b", "a"), on(m))
			to := peerport.NewTransport(b, peerport.TransportConfig{})
			t.Cleanup(func() { _ = to.Close() })
		},
		"nobody wants it any more": func(_ *testing.T, _ *memory, _ *peerport.Transport, awaited *atomic.Bool) { awaited.Store(false) },
		"the node closes":          func(_ *testing.T, _ *memory, from *peerport.Transport, _ *atomic.Bool) { _ = from.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m := newMemory()
				var awaited atomic.Bool
				awaited.Store(true)
				from := peerport.NewTransport(start(t, knows("a", "b"), on(m)), peerport.TransportConfig{
					Awaited: func(raft.ServerID) bool { return awaited.Load() },
				})
				t.Cleanup(func() { _ = from.Close() })
				sent := make(chan error, 1)
				go func() { sent <- from.AppendEntries("b", "b", someEntries, &raft.AppendEntriesResponse{}) }()
				elapse(time.Minute)
				select {
				case err := <-sent:
					t.Fatalf("raft was told at once, and counts: %v", err)
				default:
				}
				begin := time.Now()
				end(t, m, from, &awaited)
				if err := <-sent; err == nil || time.Since(begin) > 100*time.Millisecond {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
			})
		})
	}
}

// TestHeartbeatsDoNotWait checks that heartbeats fail immediately: they detect that a node is back.
func TestHeartbeatsDoNotWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		from := peerport.NewTransport(start(t, knows("a", "b"), on(newMemory())), peerport.TransportConfig{
			Awaited: func(raft.ServerID) bool { return true },
		})
		begin := time.Now()
		if err := from.AppendEntries("b", "b", heartbeat, &raft.AppendEntriesResponse{}); err == nil || time.Since(begin) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		_ = from.Close()
	})
}
