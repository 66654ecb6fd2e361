package virtual_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestTwoLeadersOfOneTerm produces two histories of the log with the same term, which begins at the same
// revision in both; n3 must end before it serves. n1 leads, n2 is copied, n1 stops; n2 and n3 elect a leader
// of the next term and commit; n2 gets its old copy back while n3 is down; n1 and n2 elect a leader of that
// term again. Raft assumes that entries of one term come from one leader, so only the nodes' states
// distinguish the two histories.
func TestTwoLeadersOfOneTerm(t *testing.T) {
	for name, c := range map[string]courses{
		"the lost course has more entries":  {lost: 5 * time.Second, written: time.Second, later: time.Second},
		"the later course has more entries": {lost: time.Second, written: time.Second, later: 5 * time.Second},
		"the lost course ends at once":      {later: 5 * time.Second},
		"nothing of it was written down":    {lost: time.Second, later: 5 * time.Second, unwritten: true},
		"all are restarted at the end":      {lost: 5 * time.Second, later: time.Second, unwritten: true, restart: true},
	} {
		t.Run(name, func(t *testing.T) {
			did := eachSeed(t, 6, c.test)
			for range 4 { // the result of an election also depends on the scheduler
				if *onlySeed == 0 && did["one term"] == 0 && !t.Failed() {
					did = eachSeed(t, 6, c.test)
				}
			}
			if *onlySeed == 0 && did["one term"] == 0 {
				t.Errorf("no two leaders had one term: %v", did)
			}
		})
	}
}

// courses are how long each history is worked on, and how long nothing happens before the nodes of the lost
// one are killed.
type courses struct {
	lost, written, later time.Duration
	// unwritten makes n3 forget what it had written down about the log and the others.
	unwritten bool
	// restart lets n3 start while n1 and n2 are restarted, so that n3 may become the leader.
	restart bool
}

func (times courses) test(t *testing.T, seed uint64) counts {
	in2026()
	c := newCluster(t, seed, 3, nil)
	var g grants
	c.leaderWithReports()
	n1, n2, n3 := c.nodes[0], c.nodes[1], c.nodes[2]
	c.lead(n1)
	g.work(c, "before", time.Second, 10)
	pause(10 * time.Second)
	old, known := n2.disk.copy(), n3.remembers()
	n1.crash()
	g.work(c, "lost", times.lost, 1)
	pause(times.written)
	was := lastStart(n3)
	n2.crash()
	n3.crash()
	n2.putBack(old)
	n1.start()
	n2.start()
	g.work(c, "afterwards", times.later, 1)
	is := lastStart(n1)
	if times.unwritten {
		n3.forgets(known)
	}
	if times.restart {
		n1.crash()
		n2.crash()
		var starting sync.WaitGroup
		defer starting.Wait()
		starting.Go(n1.start)
		starting.Go(n2.start)
	}
	started := time.Now()
	err := n3.ended()
	took := time.Since(started)
	did := counts{}
	switch {
	case was.GetTerm() == is.GetTerm() && was.GetRevision() == is.GetRevision():
		did["one term"]++
	case times.unwritten:
		return did // its entries are truncated, like others that it does not know to be committed
	}
	if !errors.Is(err, status.ErrForked) || took > 3*time.Second {
		t.Errorf("n3 ended after %v with %v", took, err)
	}
	c.alarmed(fmt.Sprintf("n3 came back with %v beside %v and ended with %v", was, is, err), n1, n2)
	g.work(c, "at last", time.Second, 10)
	g.check(t)
	return did
}

// lastStart returns where the last term began, according to a node.
func lastStart(n *node) (start *wire.TermStart) {
	n.replica().View(func(m *fsm.Machine) { start = m.TermStarts()[len(m.TermStarts())-1] })
	return start
}

// memoryKey is the key under which nodes store what they know about the log and the others.
var memoryKey = []byte("quorumlock.peers")

// remembers returns what a node has written down about the log and the others.
func (n *node) remembers() []byte {
	known, err := n.disk.Get(memoryKey)
	if err != nil {
		n.c.t.Fatal(err)
	}
	return known
}

// forgets replaces what a node that is down has written down by an earlier version.
func (n *node) forgets(but []byte) {
	if err := n.disk.Set(memoryKey, but); err != nil {
		n.c.t.Fatal(err)
	}
}
