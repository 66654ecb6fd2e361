package replica_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup/schedule"
	"github.com/quorumlock/quorumlock/server/internal/backup/store"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestLeaderMakesBackups verifies that whoever leads makes the backups, that all nodes know the last one, also after a
// restart, and that a restore starts again.
func TestLeaderMakesBackups(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir, err := store.OpenDirectory(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, 3)
		for _, n := range c.nodes {
			n.cfg.Backups = schedule.Config{Schedule: "@every 10s", Stores: []store.Store{dir}, Keep: 2}
			n.cfg.SnapshotThreshold, n.cfg.TrailingLogs = 8, 1
		}
		c.startAll()
		s := c.openSession("ann", time.Minute)
		c.expect(c.must(acquireCommand(s, 1, "door", 0)), wire.Status_GRANTED)
		c.eventually("the first backup is recorded", func() bool { return c.statusOf(c.leader()).LastBackup != nil })
		for range 3 {
			old := c.leader()
			last := c.statusOf(old).LastBackup
			if last.NodeId != old.id || c.statusOf(old).BackupSchedule.GetSchedule() != "@every 10s" {
				t.Errorf("%s leads, the last backup is %v", old.id, last)
			}
			if err := old.TransferLeadership(t.Context(), &wire.TransferLeadershipRequest{Reason: "test"}); err != nil {
				t.Fatal(err)
			}
			c.eventually("another node leads", func() bool { return c.serving() != nil && c.serving() != old })
			time.Sleep(10 * time.Second)
			c.eventually("it has made a backup", func() bool {
				next := c.statusOf(c.leader()).LastBackup
				return next.GetUnixMs() > last.UnixMs && next.NodeId == c.leader().id
			})
		}
		last := c.statusOf(c.leader()).LastBackup
		c.stopAll()
		c.startAll()
		if got := c.statusOf(c.leader()).LastBackup; got.GetName() != last.Name {
			t.Errorf("after a restart the last backup is %v, want %v", got, last)
		}
		files, err := dir.List(t.Context())
		if err != nil || len(files) != 2 || files[1].Name != last.Name {
			t.Errorf("%v are kept, %v", files, err)
		}
		read := func(r io.Reader) error {
			m, err := fsm.Restore(r, fsm.Level)
			if err == nil && m.Revision() != last.Revision {
				err = errors.New("another revision")
			}
			return err
		}
		if err := dir.Read(t.Context(), last.Name, read); err != nil {
			t.Error(err)
		}
	})
}

// TestDryRun verifies that a dry run of a restore is refused like the restore, answers with its tokens, and changes
// nothing.
func TestDryRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		c.openSession("ann", time.Minute)
		_, backup := c.backup()
		c.waitForReports()
		leader := c.leader()
		backup.DryRun = true
		if _, err := leader.Restore(t.Context(), backup); !errors.Is(err, status.ErrPrecondition) {
			t.Errorf("without the cluster's id: %v", err)
		}
		before := c.statusOf(leader)
		backup.ClusterId = before.ClusterId
		dry, err := leader.Restore(t.Context(), backup)
		if err != nil || dry.TokenFloor < backup.Backup.Token+1<<32 {
			t.Errorf("%v, %v", dry, err)
		}
		if after := c.statusOf(leader); after.Lineage != before.Lineage || after.Revision != before.Revision || after.Sessions != 1 {
			t.Errorf("the dry run changed %v to %v", before, after)
		}
		backup.DryRun = false
		if done, err := leader.Restore(t.Context(), backup); err != nil || done.TokenFloor < dry.TokenFloor {
			t.Errorf("%v, %v", done, err)
		}
		if after := c.statusOf(leader); after.Sessions != 0 || after.LastBackup != nil {
			t.Errorf("the restore left %v", after)
		}
	})
}
