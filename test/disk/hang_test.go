package disk_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/disk"
	"github.com/quorumlock/quorumlock/test/process"
)

// TestHungDiskOfTheLeader freezes the leader's file system. The writer is in uninterruptible sleep, so the
// process cannot exit, although it tries. The others must replace it anyway, before a session is lost.
func TestHungDiskOfTheLeader(t *testing.T) {
	const bound, shortest = 4 * time.Second, 5 * time.Second
	dir := t.TempDir()
	volumes := map[string]*disk.Volume{}
	for _, id := range []string{"n1", "n2", "n3"} {
		volumes[id] = disk.Mount(t, filepath.Join(dir, id))
	}
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Dir: dir})
	s := fillSafe(t, c)
	short, err := c.NewClient().NewSession(t.Context(), client.SessionOptions{TTL: shortest})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := short.Lock(t.Context(), "held/shortest"); err != nil {
		t.Fatal(err)
	}
	old := c.Leader()
	if err := volumes[old].Freeze(); err != nil {
		t.Fatal(err)
	}
	hung := time.Now()
	c.Await("a write that hangs", process.WaitTimeout, func(context.Context) error { return sleeps(c.Pid(old)) })
	held := s.count()
	c.Await("a lock of the next leader", process.WaitTimeout, func(context.Context) error {
		if s.count() < held+3 {
			return errWaiting
		}
		return nil
	})
	took := time.Since(hung)
	t.Logf("%s led with a hung disk, %s leads; locks were granted again after %v", old, c.AwaitLeader(old), took.Round(time.Millisecond))
	if took > bound {
		t.Errorf("that is more than %v", bound)
	}
	c.Await("the node with the hung disk is given up", process.WaitTimeout, func(ctx context.Context) error {
		if _, err := c.Metrics(ctx, old); err == nil {
			return errWaiting
		}
		return nil
	})
	if err := short.Err(); err != nil {
		t.Errorf("a session of %v was lost: %v", shortest, err)
	}
	if err := sleeps(c.Pid(old)); err != nil {
		t.Errorf("the write came back before the disk did: %v", err)
	}
	if err := volumes[old].Thaw(); err != nil {
		t.Fatal(err)
	}
	ended(t, c, old, "the disk hangs: ", " has not returned for ") // an append to the log, or the member list
	c.Restart(old)
	c.AwaitAll()
	s.complete()
}

// sleeps returns nil if a thread of the process is in uninterruptible sleep.
func sleeps(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if _, state, ok := strings.Cut(string(stat), ") "); err == nil && ok && strings.HasPrefix(state, "D") {
			return nil
		}
	}
	return fmt.Errorf("none of %d threads sleeps", len(threads))
}

// TestSlowDiskOfTheLeader verifies that a slow disk does not end the node, and that it costs the leadership only
// if a write, which may take several syncs, exceeds the time after which a leader hands over.
func TestSlowDiskOfTheLeader(t *testing.T) {
	onlyInFull(t)
	for name, c := range map[string]struct {
		takes time.Duration
		leads bool
	}{"slow": {150 * time.Millisecond, true}, "too slow to lead": {time.Second, false}} {
		t.Run(name, func(t *testing.T) { slowDiskOfTheLeader(t, c.takes, c.leads) })
	}
}

func slowDiskOfTheLeader(t *testing.T, takes time.Duration, leads bool) {
	c := process.Start(t, programs, 3)
	s := fillSafe(t, c)
	leader, term := c.Leader(), c.AwaitAll().GetTerm()
	injection := c.Inject(leader, disk.Syncs, disk.Slow(takes))
	s.await(4)
	if calls := injection.Lift(); calls == 0 || leads && calls < 3 {
		t.Errorf("only %d syncs were slow", calls)
	}
	if now := c.AwaitAll(); (now.GetTerm() == term && now.GetLeaderId() == leader) != leads {
		t.Errorf("%s led in term %d, now %s in %d", leader, term, now.GetLeaderId(), now.GetTerm())
	}
	s.complete()
}
