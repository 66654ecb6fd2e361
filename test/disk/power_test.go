package disk_test

import (
	"path/filepath"
	"testing"

	"github.com/quorumlock/quorumlock/test/disk"
	"github.com/quorumlock/quorumlock/test/process"
)

// TestPowerLoss verifies that what was acknowledged survives a simultaneous power loss of all nodes.
func TestPowerLoss(t *testing.T) {
	v := disk.Mount(t, filepath.Join(t.TempDir(), "mnt"))
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Dir: v.Dir})
	rounds := 1
	if full {
		rounds = 10
	}
	s := fillSafe(t, c)
	for range rounds {
		s.await(50)
		outage(t, c, v)
	}
	c.AwaitAll()
	s.complete()
}

// TestPowerLossWithoutSyncs verifies that nodes whose syncs do nothing lose acknowledged locks in the same
// outage. It shows that TestPowerLoss can fail.
func TestPowerLossWithoutSyncs(t *testing.T) {
	v := disk.Mount(t, filepath.Join(t.TempDir(), "mnt"))
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Dir: v.Dir})
	var injections []*disk.Injection
	for _, id := range c.IDs() {
		injections = append(injections, c.Inject(id, disk.Syncs, disk.Skip))
	}
	s := fillSafe(t, c)
	s.await(50)
	outage(t, c, v)
	for _, injection := range injections {
		if calls := injection.Lift(); calls == 0 {
			t.Error("a node did all its syncs")
		}
	}
	c.AwaitAll()
	lost := s.lost()
	t.Logf("%d of %d acknowledged locks are gone", lost, s.count())
	if lost == 0 {
		t.Error("nothing was lost: this outage proves nothing")
	}
}

// outage cuts the power and restores it.
func outage(t *testing.T, c *process.Cluster, v *disk.Volume) {
	t.Helper()
	if err := v.CutPower(); err != nil {
		t.Fatal(err)
	}
	c.Perish(c.IDs()...)
	if err := v.Remount(); err != nil {
		t.Fatal(err)
	}
	c.Restart(c.IDs()...)
}
