package process

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/test/disk"
)

// Pid returns the process ID of a node, that of its last process if it has ended.
func (c *Cluster) Pid(id string) int { c.t.Helper(); return c.node(id).running.cmd.Process.Pid }

// DataDir returns a node's data directory.
func (c *Cluster) DataDir(id string) string { c.t.Helper(); return c.node(id).dir }

// Inject applies an effect to some system calls of a node's process, as disk.Inject does. It skips the test
// if the machine does not allow that.
func (c *Cluster) Inject(id, calls, effect string) *disk.Injection {
	c.t.Helper()
	if err := disk.NoInjection(); err != nil {
		c.t.Skip(err)
	}
	i, err := disk.Inject(c.Pid(id), calls, effect)
	if err != nil {
		c.t.Fatalf("%s: %v", id, err)
	}
	return i
}

// diskNemeses break the disk of a node, which then ends on its own, or slow it down.
var diskNemeses = []Nemesis{
	{Name: "hang the leader's disk", needs: injectable, strike: hangLeader},
	{Name: "fail the leader's syncs", needs: injectable, strike: func(s *strike) uint64 {
		return s.broken(s.Leader(), disk.Syncs, disk.FailIO)
	}},
	{Name: "fail a follower's writes", needs: injectable, strike: func(s *strike) uint64 {
		return s.broken(s.one(s.Others(s.Leader())), disk.Writes, disk.FailIO)
	}},
	{Name: "fill a disk", needs: injectable, strike: func(s *strike) uint64 {
		return s.broken(s.one(s.IDs()), disk.Writes, disk.FailSpace)
	}},
	{Name: "slow a disk", needs: injectable, strike: func(s *strike) uint64 {
		i := s.Inject(s.one(s.IDs()), disk.Syncs, disk.Slow(s.between(20*time.Millisecond, 400*time.Millisecond)))
		s.last()
		return i.Lift()
	}},
}

func injectable(o Options) bool { return !o.Lean && disk.NoInjection() == nil }

// hangs is a node's message about such a disk. The node logs it once, and prints it once more as its final
// message.
const hangs = "the disk hangs: "

// hangLeader waits for another leader, and then for the node's watchdog, while the disk still hangs. The
// process ends only when the kernel completes its calls.
func hangLeader(s *strike) uint64 {
	s.t.Helper()
	old := s.Leader()
	before := strings.Count(s.Log(old), hangs)
	i := s.Inject(old, disk.Syncs+","+disk.Writes, disk.Hang)
	s.AwaitLeader(old)
	s.Await("the watchdog of "+old, WaitTimeout, func(context.Context) error {
		if strings.Count(s.Log(old), hangs) == before {
			return errors.New("it has not given its disk up")
		}
		return nil
	})
	i.Lift()
	s.gaveUp(old)
	return uint64(strings.Count(s.Log(old), hangs) - before)
}

// broken injects an effect, waits until the node has ended because of its disk, and restarts it.
func (s *strike) broken(id, calls, effect string) uint64 {
	s.t.Helper()
	i := s.Inject(id, calls, effect)
	s.gaveUp(id)
	return i.Lift()
}

// gaveUp waits until a node has ended on its own, and restarts it.
func (s *strike) gaveUp(id string) {
	s.t.Helper()
	if code := s.Ended(id); code != 70 {
		s.t.Errorf("%s, whose disk was broken, ended with code %d: %s", id, code, lastWords(s.Log(id)))
	}
	s.Restart(id)
}

func lastWords(log string) string { return log[max(0, len(log)-500):] }
