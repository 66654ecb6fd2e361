package replica_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// drowsy is a logger that stands still, once, at a line of the first node that says it.
type drowsy struct {
	hclog.Logger
	id   string
	once *atomic.Bool
	// asleep is told who stands still, until wake is closed.
	asleep chan<- string
	wake   <-chan struct{}
}

// Info implements hclog.Logger.
func (d *drowsy) Info(msg string, args ...any) {
	if msg == "elected, applying the barrier" && d.once.CompareAndSwap(false, true) {
		d.asleep <- d.id
		<-d.wake
	}
	d.Logger.Info(msg, args...)
}

// Raft's notices of leadership coalesce: who looked away while it was lost, another led
// and it was regained, finds one notice, that it leads. It is a reign of its own all the
// same, which everything has to be begun anew for.
func TestLeadershipRegainedInOneNotice(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		asleep, wake, once := make(chan string, 1), make(chan struct{}), &atomic.Bool{}
		for id, n := range c.nodes {
			n.cfg.Logger = &drowsy{Logger: n.cfg.Logger, id: id, once: once, asleep: asleep, wake: wake}
		}
		c.startAll()
		old := c.nodes[<-asleep]
		c.net.Isolate(old.id, c.except(old)...)
		between := c.leader()
		const ttl = 10 * time.Second
		s := c.openSession("a", ttl)
		c.net.Heal()
		c.eventually("leadership goes back", func() bool {
			if between.Serving() {
				_ = between.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Id: old.id})
			}
			return between.Leader().GetId() == old.id
		})
		time.Sleep(ttl / 2)
		if old.Serving() {
			t.Fatal("it serves without having looked")
		}
		close(wake)
		c.within(time.Second, "the reign begins", old.Serving)
		begun := time.Now()
		if rest, ok := old.Remaining(s); !ok || rest < ttl-100*time.Millisecond {
			t.Errorf("%v remain after the barrier, want a full TTL", rest)
		}
		c.eventually("expired", func() bool { return !old.lives(s) })
		if took := time.Since(begun); took < ttl-100*time.Millisecond || took > ttl+time.Second {
			t.Errorf("expired %v after the barrier, TTL %v", took, ttl)
		}
	})
}
