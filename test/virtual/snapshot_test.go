package virtual_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/server"
)

// TestFollowerFromASnapshotLeads stops a follower until the log that it lacks is gone, so
// that it gets a snapshot, and makes it the leader: holds and waiters are intact.
func TestFollowerFromASnapshotLeads(t *testing.T) {
	eachSeed(t, 3, followerFromASnapshotLeads)
}

func followerFromASnapshotLeads(t *testing.T, seed uint64) counts {
	c := newCluster(t, seed, 3, func(_ int, cfg *server.Config) { cfg.SnapshotThreshold, cfg.TrailingLogs = 64, 8 })
	leader := c.settled()
	l := newLedger(c)
	cl := c.client(host(0))
	a, b := open(l, cl, "a"), open(l, cl, "b")
	lagging := c.except(leader)[c.random.IntN(2)]
	lagging.crash()

	kept, head := l.take(a, "kept"), l.take(a, "line")
	var waiting []<-chan pin
	for i := range 6 {
		waiting = append(waiting, l.taking([]*client.Session{a, b}[i%2], "line"))
		c.eventually("queued", func() bool { return len(c.line("line")) == i+1 })
	}
	places := c.line("line")
	for range 60 {
		p := l.take(b, "churn")
		l.must("unlock", l.unlock(p.hold, p.entry))
	}
	has, _ := lagging.disk.LastIndex()
	if !within(3*time.Minute, func() bool { first, _ := leader.disk.FirstIndex(); return first > has+1 }) {
		t.Fatal("the leader made no snapshot")
	}
	lagging.start()
	c.eventually("the snapshot is installed", func() bool {
		all, _ := lagging.disk.snapshots.List()
		return len(all) > 0 && all[0].Index > has && lagging.replica().Fork().Revision() == leader.replica().Fork().Revision()
	})
	if lagging.disk.at(has+1) != nil {
		t.Error("the follower got the log, not a snapshot")
	}
	c.lead(lagging)
	if now := c.line("line"); !slices.Equal(now, places) {
		t.Errorf("the queue is %v, it was %v", now, places)
	}
	lagging.crash()
	lagging.start()
	c.lead(lagging)
	served := []uint64{}
	for _, w := range waiting {
		l.must("unlock", l.unlock(head.hold, head.entry))
		head = l.granted(w)
		served = append(served, head.hold.ID())
	}
	if !slices.Equal(served, places) {
		t.Errorf("served %v, they stood as %v", served, places)
	}
	if h := c.holder("kept"); h.GetToken() != kept.hold.Token() || kept.hold.Context().Err() != nil {
		t.Errorf("the hold with token %d became %v", kept.hold.Token(), h)
	}
	for _, p := range []pin{head, kept} {
		l.must("unlock", l.unlock(p.hold, p.entry))
	}
	c.closeClients()
	return judge(c, l)
}
