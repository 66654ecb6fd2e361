package virtual_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// stubborn makes the first node believe in its leadership for much longer than the others need to elect
// another leader.
func stubborn(i int, cfg *server.Config) {
	if i == 0 {
		const long = 2400 * time.Millisecond
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = long, long, long
	}
}

// TestPartitionedLeaderServesNoStaleReads isolates a leader together with clients that reach only it, until the others elect a new
// one while it still serves. Its answers must not be older than what the new leader has acknowledged, and it
// must not prolong a session that the new leader lets expire.
func TestPartitionedLeaderServesNoStaleReads(t *testing.T) {
	total := eachSeed(t, 6, stubbornLeader)
	enough(t, total, counts{expiries: 1, leaderChanges: 2})
}

func stubbornLeader(t *testing.T, seed uint64) counts {
	c := newCluster(t, seed, 3, stubborn)
	c.leaderWithReports()
	old := c.nodes[0]
	c.lead(old)
	near, far := c.client("near", old), c.client("far")
	trapped := c.openFor(near, "trapped", 5*time.Second, false)
	writer, rival := c.open(far, "writer"), c.open(far, "rival")
	c.take(trapped, "contended")
	won := c.taking(rival, "contended")
	r := &register{c: c, hold: c.take(writer, "register", client.WithValue([]byte("0")))}
	r.write(t, 20)
	ctx, stop := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() { r.read(ctx, t, near) })
	t.Cleanup(func() { stop(); reading.Wait() })
	c.eventually("reads through the leader", func() bool { return r.fresh.Load() > 3 })
	pause(c.between(0, 2*time.Second))

	c.isolate(old.id, c.nodes...)
	for _, n := range c.except(old) {
		c.isolate("near", n)
	}
	c.isolate("far", old)
	for range 150 {
		r.write(t, 1)
		if old.replica().Serving() && c.serving() != old {
			r.beside++
		}
		pause(20 * time.Millisecond)
	}
	c.granted(won).drop()
	c.calm()
	seen := r.fresh.Load()
	c.eventually("reads go on", func() bool { return r.fresh.Load() > seen+3 })
	stop()
	reading.Wait()
	if r.beside < 10 || r.refused.Load() == 0 {
		t.Errorf("%d writes were acknowledged while the old leader served, %d reads refused: too few", r.beside, r.refused.Load())
	}
	r.hold.drop()
	c.closeClients()
	return c.verdict(nil)
}

// register is a counter in the value of a hold.
type register struct {
	c              *cluster
	hold           pin
	beside         int // writes acknowledged while the old leader served
	acked          atomic.Int64
	fresh, refused atomic.Int64 // reads
}

func (r *register) write(t *testing.T, n int) {
	for range n {
		next := r.acked.Load() + 1
		if err := r.hold.SetValue(t.Context(), []byte(strconv.FormatInt(next, 10))); err != nil {
			t.Errorf("write %d: %v", next, err)
		}
		r.acked.Store(next)
	}
}

// read reads continuously. No answer may be older than what was acknowledged before the read.
func (r *register) read(until context.Context, t *testing.T, through *client.Client) {
	for until.Err() == nil {
		floor := r.acked.Load()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		lock, err := wirecall.Of(through).GetLock(ctx, &wire.GetLockRequest{Name: "register"})
		cancel()
		switch {
		case err == nil && len(lock.GetHolders()) == 1:
			got, _ := strconv.ParseInt(string(lock.Holders[0].GetValue()), 10, 64)
			if got < floor {
				t.Errorf("%v: read %d, %d was acknowledged before", r.c.now(), got, floor)
			}
			r.fresh.Add(1)
		case errors.Is(err, context.DeadlineExceeded):
			r.refused.Add(1)
		default:
			t.Errorf("read: %v, %v", lock, err)
		}
		pause(20 * time.Millisecond)
	}
}
