package replica_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestMajorityBeginsAndTheLateNodeJoins verifies that a majority begins the cluster, and that the missing
// node joins once the leader has recorded it, and remembers its cluster.
func TestMajorityBeginsAndTheLateNodeJoins(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes["n1"].start()
		time.Sleep(20 * time.Second)
		if c.serving() != nil {
			t.Fatal("one of three began a cluster")
		}
		c.nodes["n2"].start()
		leader := c.leader()
		s := c.openSession("a", time.Minute)
		c.expect(leader.do(acquireCommand(s, 1, "l", 0)), wire.Status_GRANTED)
		late := c.nodes["n3"].start()
		c.waitForReports()
		c.eventually("the late node follows", func() bool { return late.holder("l") == s })
		leader.crash()
		c.within(5*time.Second, "the late node votes", func() bool { return c.serving() != nil })
		c.expect(c.must(acquireCommand(s, 2, "m", 0)), wire.Status_GRANTED)
	})
}

// TestSimultaneousBeginningsAreOne starts all nodes at the same time, with their lists in different order and
// on slow networks.
func TestSimultaneousBeginningsAreOne(t *testing.T) {
	for _, slow := range []time.Duration{0, 30 * time.Millisecond, 400 * time.Millisecond} {
		inVirtualTime(t, func(t *testing.T) {
			c := newCluster(t, 5)
			for i, p := range c.peers {
				n := c.nodes[p.ID]
				n.cfg.Cluster = append(append([]replica.Peer{}, c.peers[i:]...), c.peers[:i]...)
				c.net.Delay(p.ID, c.peers[(i+1)%5].ID, slow)
			}
			c.startAll()
			c.waitForReports()
			ids := map[string]bool{}
			for _, n := range c.nodes {
				c.eventually("it knows its cluster", func() bool { return c.statusOf(n).ClusterId != "" })
				ids[c.statusOf(n).ClusterId] = true
			}
			if len(ids) != 1 {
				t.Errorf("%d clusters: %v", len(ids), ids)
			}
		})
	}
}

// slowLog is a log that blocks when raft opens it.
type slowLog struct {
	*disk
	opened chan struct{}
}

func (l slowLog) GetLog(index uint64, entry *raft.Log) error {
	<-l.opened
	return l.disk.GetLog(index, entry)
}

// TestNodeThatOpensItsLogIsNotEmpty verifies that a node that is up but has not opened its log yet does not
// count as empty. Otherwise two wiped nodes would form a majority with it and begin a new cluster.
func TestNodeThatOpensItsLogIsNotEmpty(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.waitForReports()
		for _, n := range c.nodes {
			n.crash()
		}
		slow := c.nodes["n1"]
		opened := make(chan struct{})
		slow.cfg.Stores.Log = slowLog{slow.disk, opened}
		up := make(chan error, 1)
		go func() { up <- slow.open() }()
		synctest.Wait()
		for _, id := range []string{"n2", "n3"} {
			c.nodes[id].wipe()
			if err := c.nodes[id].open(); !errors.Is(err, status.ErrReplaced) {
				t.Errorf("wiped %s: %v", id, err)
			}
		}
		close(opened)
		if err := <-up; err != nil {
			t.Error(err)
		}
	})
}

func TestNodeOfAnotherClusterIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			n.cfg.ClusterID = "payments"
		}
		c.startAll()
		c.waitForReports()
		if id := c.statusOf(c.leader()).ClusterId; id != "payments" {
			t.Errorf("the cluster is %q", id)
		}
		stray := c.machine("n4")
		stray.cfg.ClusterID = "orders"
		stray.cfg.Cluster = append(c.peers, replica.Peer{ID: "n4", Addr: "n4:7401"})
		if err := stray.open(); !errors.Is(err, status.ErrOtherCluster) || !mentions(err, "payments", "orders") {
			t.Errorf("opened into another cluster: %v", err)
		}
	})
}

func TestTokensBeginAboveTheFloor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.nodes["n1"].cfg.TokenFloor = 1 << 56
		c.startAll()
		c.leader().View(func(m *fsm.Machine) {
			if m.Token() != 1<<56 {
				t.Errorf("token %d below the operator's floor", m.Token())
			}
		})
		c.nodes["n1"].stop()
		time.Sleep(30 * 365 * 24 * time.Hour) // virtual time starts in 2000, tokens in 2024
		c.nodes["n1"].wipe()
		c.nodes["n1"].cfg.TokenFloor = 5
		c.startAll()
		c.leader().View(func(m *fsm.Machine) {
			if now := uint64(time.Now().Unix() - 1704067200); m.Token()>>32 < now-10 || m.Token()>>32 > now {
				t.Errorf("token %d, that is second %d of %d", m.Token(), m.Token()>>32, now)
			}
		})
	})
}
