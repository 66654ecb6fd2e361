package disk_test

import (
	"path/filepath"
	"testing"

	"github.com/quorumlock/quorumlock/test/disk"
	"github.com/quorumlock/quorumlock/test/process"
)

// TestFailedWritesAndSyncs verifies that a node ends when a write or sync fails, and that the others
// continue.
func TestFailedWritesAndSyncs(t *testing.T) {
	for _, test := range []struct {
		name, calls, effect string
		leads               bool
		words               string
	}{
		{"sync of the leader", disk.Syncs, disk.FailIO, true, "input/output error"},
		{"write of a follower", disk.Writes, disk.FailIO, false, "input/output error"},
		{"no space for the leader", disk.Writes, disk.FailSpace, true, "no space left on device"},
		{"the third sync of a follower", disk.Syncs, disk.FailIO + ":when=3", false, "input/output error"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !full && !test.leads {
				t.Skip("takes long: set QUORUMLOCK_CHECK=1")
			}
			c := process.Start(t, programs, 3)
			s := fillSafe(t, c)
			victim := c.Leader()
			if !test.leads {
				victim = c.Others(victim)[0]
			}
			injection := c.Inject(victim, test.calls, test.effect)
			ended(t, c, victim, "halted: ", "a write to the data directory failed", test.words)
			if calls := injection.Lift(); calls == 0 {
				t.Error("no call failed")
			}
			s.await(20)
			c.Restart(victim)
			c.AwaitAll()
			s.complete()
		})
	}
}

// TestFullDisk verifies that a node that ended on a full disk continues once there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	volumes := map[string]*disk.Volume{}
	for _, id := range []string{"n1", "n2", "n3"} {
		volumes[id] = disk.Mount(t, filepath.Join(dir, id))
	}
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Dir: dir, Flags: []string{"--log-segment-bytes", "65536"}})
	s := fillSafe(t, c)
	victim := c.Leader()
	if err := volumes[victim].Fill(); err != nil {
		t.Fatal(err)
	}
	ended(t, c, victim, "no space left on device", "Make room on the disk, then start this node again")
	s.await(20)
	if err := volumes[victim].MakeRoom(); err != nil {
		t.Fatal(err)
	}
	c.Restart(victim)
	c.AwaitAll()
	s.complete()
}
