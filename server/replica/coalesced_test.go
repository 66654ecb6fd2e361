package replica_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// drowsy is a logger that blocks once, if tired is set, when its node logs its election.
type drowsy struct {
	hclog.Logger
	tired  atomic.Bool
	asleep chan struct{}
	wake   chan struct{}
}

func makeDrowsy(n *node) *drowsy {
	d := &drowsy{Logger: n.cfg.Logger, asleep: make(chan struct{}), wake: make(chan struct{})}
	n.cfg.Logger = d
	return d
}

// Info implements hclog.Logger.
func (d *drowsy) Info(msg string, args ...any) {
	if msg == "elected, applying the barrier" && d.tired.CompareAndSwap(true, false) {
		close(d.asleep)
		<-d.wake
	}
	d.Logger.Info(msg, args...)
}

// TestLeadershipRegainedInOneNotice verifies that leadership counts as new if it was lost, held by another
// node and regained while nothing read raft's LeaderCh. LeaderCh coalesces, so the node gets only one notice:
// that it leads.
func TestLeadershipRegainedInOneNotice(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		loggers := map[string]*drowsy{}
		for id, n := range c.nodes {
			loggers[id] = makeDrowsy(n)
		}
		c.startAll().waitForReports()
		old := c.followers()[0]
		logger := loggers[old.id]
		wake := sync.OnceFunc(func() { close(logger.wake) })
		defer wake()
		logger.tired.Store(true)
		_ = c.leader().TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: old.id, Reason: "test"})
		<-logger.asleep
		c.net.Isolate(old.id, c.except(old)...)
		between := c.leader()
		const ttl = 10 * time.Second
		s := c.openSession("a", ttl)
		c.net.Heal()
		c.eventually("leadership goes back", func() bool {
			if between.Serving() {
				_ = between.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: old.id, Reason: "test"})
			}
			return between.Leader().GetId() == old.id
		})
		time.Sleep(ttl / 2)
		if old.Serving() {
			t.Fatal("it serves without having looked")
		}
		wake()
		c.within(time.Second, "the leadership begins", old.Serving)
		started := time.Now()
		if rest, ok := old.Remaining(s); !ok || rest < ttl-100*time.Millisecond {
			t.Errorf("%v remain after the barrier, want a full TTL", rest)
		}
		c.eventually("expired", func() bool { return !old.lives(s) })
		if took := time.Since(started); took < ttl-100*time.Millisecond || took > ttl+time.Second {
			t.Errorf("expired %v after the barrier, TTL %v", took, ttl)
		}
	})
}
