package process_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
)

// Disks that are rolled back: a node's data directory is replaced by an old copy.

// writtenDown is the time within which nodes write down what they know about others. This is not observable
// from outside.
const writtenDown = time.Second

// oldCopies is one order in which copies are made and restored, while a reachable node knows better.
type oldCopies struct {
	name string
	long bool // only in the long version
	// nodes is the number of nodes, back the number of those whose disks go back.
	nodes, back int
	of          process.CopyOf
	leads       bool // the leader's disk goes back
	snapshot    bool // each node takes a snapshot before the copies are made, and another one afterwards
	members     bool // another node is replaced between copy and restore
	together    bool // all nodes are killed and restarted together
}

func (o oldCopies) String() string {
	return fmt.Sprintf("%d of %d nodes, copied %s, leader %v, snapshots %v, members change %v, all at once %v",
		o.back, o.nodes, [...]string{"when ended", "frozen", "live"}[o.of], o.leads, o.snapshot, o.members, o.together)
}

// TestOldCopiesAreFoundOut restores old copies under load. Nothing that was granted is lost, nodes whose
// disks went back end with advice, the others continue to serve, and the advice replaces those nodes.
func TestOldCopiesAreFoundOut(t *testing.T) {
	beside(t)
	for _, o := range []oldCopies{
		{name: "follower", nodes: 3, back: 1, of: process.Ended},
		{name: "leader", nodes: 3, back: 1, of: process.Live, leads: true},
		{name: "all restarted at once while members change", nodes: 3, back: 1, of: process.Frozen, members: true, together: true},
		{name: "two of five", long: true, nodes: 5, back: 2, of: process.Live},
		// Only the leader knows what followers acknowledge, but all nodes know of their restarts.
		{name: "two of five and one leads, all restarted at once", long: true, nodes: 5, back: 2, of: process.Ended, leads: true, together: true},
		{name: "between snapshots", long: true, nodes: 3, back: 1, of: process.Frozen, snapshot: true},
		{name: "between snapshots, live", long: true, nodes: 3, back: 1, of: process.Live, snapshot: true, leads: true, together: true},
	} {
		t.Run(o.name, func(t *testing.T) {
			if o.long && !full {
				t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
			}
			beside(t)
			o.test(t)
		})
	}
}

func (o oldCopies) test(t *testing.T) {
	t.Log(o)
	c := process.Start(t, programs, o.nodes)
	l := startLoad(t, c)
	back := o.choose(c)
	old := map[string]string{}
	o.snapshots(t, c)
	for _, id := range back {
		old[id] = copied(c, id, o.of)
	}
	o.snapshots(t, c)
	l.AwaitGrants(l.Log.Now(), afterFault)
	if o.members {
		replaceAnother(t, c, back)
		l.AwaitGrants(l.Log.Now(), afterFault)
	}
	down := back
	if o.together {
		c.Pass(writtenDown)
		down = c.IDs()
	}
	c.Kill9(down...)
	for _, id := range back {
		c.PutBack(id, old[id])
	}
	c.Restart(down...)
	said := map[string][][]string{}
	for _, id := range back {
		said[id] = wentBack(t, c, id, o.of)
	}
	l.AwaitGrants(l.Log.Now(), afterFault)
	for _, id := range back {
		c.Restart(id) // as a supervisor would
		if again := wentBack(t, c, id, o.of); !slices.EqualFunc(again, said[id], slices.Equal) {
			t.Errorf("first %s said %q, then %q", id, said[id], again)
		}
		exchange(t, c, id, said[id])
	}
	c.AwaitAll()
	if o.nodes == 3 {
		votesAgain(t, c, l, back[0])
	}
	l.finish()
}

// choose returns the nodes whose disks go back.
func (o oldCopies) choose(c *process.Cluster) []string {
	leader := c.Leader()
	ids := c.Others(leader)
	if o.leads {
		ids = slices.Insert(ids, 0, leader)
	}
	return ids[:o.back]
}

// snapshots waits until each node has a later snapshot, if o.snapshot is set.
func (o oldCopies) snapshots(t *testing.T, c *process.Cluster) {
	t.Helper()
	if !o.snapshot {
		return
	}
	newest := func(id string) string {
		found := snapshotsIn(t, c.DataDir(id))
		return strings.Join(found[max(0, len(found)-1):], "")
	}
	before := map[string]string{}
	for _, id := range c.IDs() {
		before[id] = newest(id)
	}
	for _, id := range c.IDs() {
		c.Await("a snapshot of "+id, firstSnapshot, func(context.Context) error {
			if newest(id) == before[id] {
				return errors.New("there is none")
			}
			return nil
		})
	}
}

// copied copies a node's data, and leaves the node running.
func copied(c *process.Cluster, id string, of process.CopyOf) (dir string) {
	if of != process.Ended {
		return c.Copy(id, of)
	}
	c.Kill9(id)
	dir = c.Copy(id, of)
	c.Restart(id)
	c.AwaitAll()
	return dir
}

// replaceAnother replaces a node that is not among the given ones by a new one.
func replaceAnother(t *testing.T, c *process.Cluster, but []string) {
	t.Helper()
	gone := slices.DeleteFunc(c.Others(c.Leader()), func(id string) bool { return slices.Contains(but, id) })[0]
	qlock(t, c, "cluster", "add", "n9", c.Add("n9"), "--reason", "test")
	c.AwaitAll()
	qlock(t, c, "cluster", "remove", gone, "--reason", "test")
	c.Kill9(gone)
	c.Retire(gone)
	c.AwaitAll()
}

// wentBack waits until a node has ended on its own because of the restored copy, and returns the commands
// that it printed at the end. A live copy may also be damaged.
func wentBack(t *testing.T, c *process.Cluster, id string, of process.CopyOf) (commands [][]string) {
	t.Helper()
	if code := c.Ended(id); code != 70 {
		t.Errorf("%s: exit code %d, want 70", id, code)
	}
	last := lastWords(c, id)
	if torn := of == process.Live && strings.Contains(last, "damaged"); !torn && !strings.Contains(last, "the data directory was rolled back") {
		t.Errorf("the last words of %s: %s", id, last)
	}
	return replacement(t, id, last)
}

// lastWords returns the final messages of a node's last process.
func lastWords(c *process.Cluster, id string) string {
	log := c.Log(id)
	return log[max(0, strings.LastIndex(log, "\nqlockd: ")):]
}

// replacement returns the three commands that replace a node.
func replacement(t *testing.T, id, words string) (commands [][]string) {
	t.Helper()
	for _, found := range advised.FindAllStringSubmatch(words, -1) {
		commands = append(commands, strings.Fields(found[1]))
	}
	if len(commands) != 3 {
		t.Fatalf("%s does not say what to run: %q", id, words)
	}
	return commands
}

// TestOldCopyOfAReplacedNode restores a copy from before the node's own replacement. Its incarnation was
// removed, so it may not participate.
func TestOldCopyOfAReplacedNode(t *testing.T) {
	beside(t)
	if !full {
		t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
	}
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	id := c.Others(c.Leader())[0]
	old := c.Copy(id, process.Frozen)
	addr := member(t, c, id).GetPeerAddr()
	qlock(t, c, "cluster", "remove", id, "--reason", "test")
	c.Kill9(id)
	c.Wipe(id)
	c.Restart(id)
	qlock(t, c, "cluster", "add", id, addr, "--reason", "test")
	c.AwaitAll()
	c.Kill9(id)
	c.PutBack(id, old)
	c.Restart(id)
	commands := refused(t, c, id)
	l.AwaitGrants(l.Log.Now(), afterFault)
	qlock(t, c, commands[0]...)
	c.Wipe(id)
	c.Restart(id)
	qlock(t, c, commands[1]...)
	c.AwaitAll()
	votesAgain(t, c, l, id)
	l.finish()
}
