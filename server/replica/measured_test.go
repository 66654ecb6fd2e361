package replica_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup/schedule"
	"github.com/quorumlock/quorumlock/server/internal/backup/store"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// measured is a cluster whose nodes have metrics.
func measured(t *testing.T, n int) *cluster {
	c := newCluster(t, n)
	for _, n := range c.nodes {
		n.cfg.Registry = prometheus.NewRegistry()
	}
	return c
}

func (n *node) values() map[string]float64 {
	return scrape.Values(n.c.t, n.cfg.Registry.(*prometheus.Registry))
}

func (n *node) histograms() map[string]*dto.Histogram {
	return scrape.Histograms(n.c.t, n.cfg.Registry.(*prometheus.Registry))
}

// moveLeader makes another node lead, and returns it.
func (c *cluster) moveLeader() *node {
	c.t.Helper()
	former := c.leader()
	former.mustAdmin(func(n *node) error {
		return n.TransferLeadership(c.t.Context(), &wire.TransferLeadershipRequest{Reason: "test"})
	})
	c.eventually("another node leads", func() bool { return c.serving() != nil && c.serving() != former })
	return c.serving()
}

// about reports whether a measurement is the expected one, but for the time that entries and rounds of probes take.
func about(got, want float64) bool { return got >= want && got < want+0.5 }

// TestWaitsAndHoldsAreMeasured verifies the histograms of a leader, those of a follower, and that a new leader observes
// only what began under it.
func TestWaitsAndHoldsAreMeasured(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := measured(t, 3).startAll()
		leader := c.waitForReports()
		s, other := c.openSession("a", 5*time.Minute), c.openSession("b", 5*time.Minute)
		waiting := &wire.Acquire{WaitForever: true}
		want := func(n *node, waits, holds uint64, waited, held float64) {
			t.Helper()
			wait, hold := n.histograms()["wait_seconds"], n.histograms()["hold_seconds"]
			if wait.GetSampleCount() != waits || hold.GetSampleCount() != holds || !about(wait.GetSampleSum(), waited) || !about(hold.GetSampleSum(), held) {
				t.Errorf("%s: %d waits of %v s and %d holds of %v s, want %d of %v and %d of %v", n.id,
					wait.GetSampleCount(), wait.GetSampleSum(), hold.GetSampleCount(), hold.GetSampleSum(), waits, waited, holds, held)
			}
		}
		held := c.expect(leader.do(acquire(s, 1, "a", &wire.Acquire{})), wire.Status_GRANTED)
		time.Sleep(2 * time.Second)
		c.expect(leader.do(acquire(other, 1, "a", waiting)), wire.Status_QUEUED)
		time.Sleep(3 * time.Second)
		want(leader, 0, 0, 0, 0)
		c.expect(leader.do(releaseCommand(s, 2, held)), wire.Status_OK)
		want(leader, 1, 1, 3, 5)
		for _, n := range c.followers() {
			want(n, 0, 0, 0, 0)
		}

		c.expect(leader.do(acquire(s, 3, "a", waiting)), wire.Status_QUEUED)
		next := c.moveLeader()
		for i, session := range []uint64{s, other} {
			c.expect(next.do(attachCommand(session, string(rune('a'+i)))), wire.Status_OK)
		}
		time.Sleep(time.Second)
		hold := next.lockOf("a").Holders[0]
		c.expect(next.do(releaseCommand(other, 2, &wire.Result{HoldId: hold.HoldId, Token: hold.Token})), wire.Status_OK)
		want(next, 0, 0, 0, 0)
		time.Sleep(4 * time.Second)
		hold = next.lockOf("a").Holders[0]
		c.expect(next.do(releaseCommand(s, 4, &wire.Result{HoldId: hold.HoldId, Token: hold.Token})), wire.Status_OK)
		want(next, 0, 1, 0, 4)
		want(leader, 1, 1, 3, 5)
	})
}

// TestQueuesAreMeasured verifies the longest queue and the oldest wait, which continues under the next leader, and that
// only the leader has them.
func TestQueuesAreMeasured(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := measured(t, 3).startAll()
		leader := c.waitForReports()
		want := func(n *node, longest, oldest float64) {
			t.Helper()
			if got := n.values(); got["longest_queue"] != longest || !about(got["oldest_wait_seconds"], oldest) {
				t.Errorf("%s: the longest queue has %v, the oldest wait %v s, want %v and %v", n.id, got["longest_queue"], got["oldest_wait_seconds"], longest, oldest)
			}
			for _, other := range c.nodes {
				if got := other.values(); other != n && (hasKey(got, "longest_queue") || hasKey(got, "oldest_wait")) {
					t.Errorf("%s does not lead, and has %v", other.id, got)
				}
			}
		}
		s := c.openSession("a", 5*time.Minute)
		c.expect(leader.do(acquire(s, 1, "early", &wire.Acquire{})), wire.Status_GRANTED)
		c.expect(leader.do(acquire(s, 2, "long", &wire.Acquire{})), wire.Status_GRANTED)
		want(leader, 0, 0)
		other := c.openSession("b", 5*time.Minute)
		c.expect(leader.do(acquire(other, 1, "early", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
		time.Sleep(3 * time.Second)
		c.expect(leader.do(acquire(other, 2, "long", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
		c.expect(leader.do(acquire(c.openSession("c", 5*time.Minute), 1, "long", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
		time.Sleep(4 * time.Second)
		want(leader, 2, 7)
		began := time.Now()
		next := c.moveLeader()
		want(next, 2, 7+time.Since(began).Seconds())
	})
}

// TestMembersAreMeasured verifies how far the members are behind, that a leader has no such series for itself, and that
// others have none at all.
func TestMembersAreMeasured(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := measured(t, 3).startAll()
		leader := c.waitForReports()
		away, near := c.followers()[0], c.followers()[1]
		c.eventually("both follow", func() bool {
			got := leader.values()
			return got["member_healthy "+away.id] == 1 && got["member_healthy "+near.id] == 1
		})
		away.crash()
		s := c.openSession("a", 5*time.Minute)
		for i := range 50 {
			c.expect(leader.do(acquireCommand(s, uint64(i+1), string(rune('A'+i)), 0)), wire.Status_GRANTED)
		}
		time.Sleep(10 * time.Second)
		got := leader.values()
		if lag, silent := got["member_lag_entries "+away.id], got["member_last_contact_seconds "+away.id]; lag < 50 || lag > 200 || silent < 7 || silent > 12 {
			t.Errorf("the member that is away lacks %v entries, its last contact was %v s ago", lag, silent)
		}
		if lag, silent := got["member_lag_entries "+near.id], got["member_last_contact_seconds "+near.id]; lag > 2 || silent != 0 {
			t.Errorf("the other one lacks %v entries, its last contact was %v s ago", lag, silent)
		}
		if hasKey(got, "member_lag_entries "+leader.id) || hasKey(got, "member_last_contact_seconds "+leader.id) || !hasKey(got, "member_lag_entries "+near.id) {
			t.Errorf("the series of the members are %v", got)
		}
		if got := near.values(); hasKey(got, "member_") {
			t.Errorf("a follower has %v", got)
		}
	})
}

// TestLeaderIsKnown verifies that a node without a leader shows it.
func TestLeaderIsKnown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := measured(t, 3).startAll()
		leader := c.waitForReports()
		left, other := c.followers()[0], c.followers()[1]
		for _, n := range c.nodes {
			c.eventually(n.id+" knows the leader", func() bool { return n.values()["leader_known"] == 1 })
		}
		leader.crash()
		other.crash()
		c.eventually("the last one knows none", func() bool { return left.values()["leader_known"] == 0 })
	})
}

// TestNextBackupIsShown verifies when the next backup is due, on every node of a cluster with a schedule and on none
// without.
func TestNextBackupIsShown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		dir, err := store.OpenDirectory(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		c := measured(t, 3)
		for _, n := range c.nodes {
			n.cfg.Backups = schedule.Config{Schedule: "@every 1h", Stores: []store.Store{dir}, Keep: 2}
		}
		none := c.nodes["n3"]
		none.cfg.Backups = schedule.Config{}
		c.startAll()
		if c.leader() == none {
			c.moveLeader()
		}
		c.eventually("there is a backup", func() bool { return c.leader().values()["last_backup_timestamp_seconds"] > 0 })
		for _, n := range c.nodes {
			c.eventually(n.id+" knows of it", func() bool { return n.values()["last_backup_timestamp_seconds"] > 0 })
			got := n.values()
			if n == none && !hasKey(got, "backup_due") {
				continue
			}
			if due := got["backup_due_timestamp_seconds"]; math.Abs(due-got["last_backup_timestamp_seconds"]-3600) > 1 {
				t.Errorf("%s: the next backup is due %v, the last one was made %v", n.id, due, got["last_backup_timestamp_seconds"])
			}
		}
	})
}

// TestLimitsAndBuildAreShown verifies that every setting of the cluster is shown, and which program runs.
func TestLimitsAndBuildAreShown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := measured(t, 1)
		c.nodes["n1"].cfg.Commit, c.nodes["n1"].cfg.Settings = "abc", &wire.Settings{MaxLocks: 12_345, NoCachedHolds: true}
		got := c.startAll().waitForReports().values()
		settings := fsm.DefaultSettings().ProtoReflect()
		for i := range settings.Descriptor().Fields().Len() {
			f := settings.Descriptor().Fields().Get(i)
			want := 0.0
			switch f.Name() {
			case "max_locks":
				want = 12_345
			case "no_cached_holds":
				want = 1
			default:
				want = float64(settings.Get(f).Uint())
			}
			if got["limit "+string(f.Name())] != want {
				t.Errorf("%s is %v, want %v", f.Name(), got["limit "+string(f.Name())], want)
			}
		}
		if key := fmt.Sprint("build_info abc ", fsm.Level, " ") + runtime.Version() + " test"; got[key] != 1 {
			t.Errorf("no build_info among %v", got)
		}
	})
}

// TestDisksAreMeasured verifies that a write to the log is observed with the time that the disk takes, on every node, and
// that the entries have a size.
func TestDisksAreMeasured(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := measured(t, 3)
		for _, n := range c.nodes {
			n.disk.takeTime(5 * time.Millisecond)
		}
		leader := c.startAll().waitForReports()
		s := c.openSession("a", 5*time.Minute)
		c.expect(leader.do(acquireCommand(s, 1, "a", 0)), wire.Status_GRANTED)
		for _, n := range c.nodes {
			syncs := n.histograms()["disk_sync_seconds"]
			if mean := syncs.GetSampleSum() / float64(syncs.GetSampleCount()); syncs.GetSampleCount() < 3 || math.Abs(mean-0.005) > 1e-6 {
				t.Errorf("%s: %d syncs of %v s", n.id, syncs.GetSampleCount(), mean)
			}
		}
		got := leader.histograms()
		if bytes, commands := got["entry_bytes"], got["entry_commands"]; bytes.GetSampleCount() != commands.GetSampleCount() || bytes.GetSampleSum() < 100 {
			t.Errorf("%d entries have %v bytes; %d have commands", bytes.GetSampleCount(), bytes.GetSampleSum(), commands.GetSampleCount())
		}
	})
}
