package virtual_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/judge"
	"github.com/quorumlock/quorumlock/test/workload"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// counts are the counts of a run. A run that did too little proves nothing.
type counts = workload.Counts

// Counts in addition to those of the load.
const (
	ran           = "clusters"
	operations    = "operations"
	expiries      = "sessions expired"
	leaderChanges = "leader changes"
	repeated      = "requests repeated"
	contended     = "grants after a wait"
	localGrants   = "local grants"
	recalls       = "cached holds recalled"
)

// settling is how long the followers of an idle leader may not know yet that the last entry is committed.
const settling = 500 * time.Millisecond

// stampRound is the precision of the log's timestamps, which are whole milliseconds.
const stampRound = time.Millisecond

// enough fails a test whose runs did too little, on average, to prove anything.
func enough(t *testing.T, did, least counts) {
	t.Helper()
	if raced || *onlySeed != 0 || t.Failed() { // few clusters prove little
		return
	}
	total := counts{}
	for range did[ran] {
		total.Add(least)
	}
	if missing := did.Missing(total); len(missing) > 0 {
		t.Errorf("too little happened: %v", missing)
	}
}

// verdict checks what the clients saw against the committed log with package judge, once the cluster is idle.
// It also checks what is only accessible within the nodes' process.
func (c *cluster) verdict(did counts) counts {
	c.t.Helper()
	var logged []*raft.Log
	var over map[uint64]time.Duration
	var differs []string
	if !within(30*time.Second, func() bool {
		pause(settling)
		for _, later := range []bool{true, false} {
			logged = c.committed(later)
			if over, differs = c.replay(logged); len(differs) == 0 {
				return true
			}
		}
		return false
	}) {
		c.log.Fault("these nodes have not the state that the log makes: %v", differs)
	}
	c.lifetimes(over)
	v := judge.Run(judge.Input{History: c.log.History(), Entries: entries(logged), Bounds: judge.Bounds{Stamps: true, Answer: 40 * time.Second}})
	for i, f := range v.Faults {
		if i == 10 {
			c.t.Errorf("and %d more", len(v.Faults)-i)
			break
		}
		c.t.Error(f)
	}
	n := counts{
		ran: 1, operations: v.Counts.Operations, contended: v.Counts.Contended, expiries: v.Counts.Expiries,
		leaderChanges: v.Counts.Leaders, repeated: v.Counts.Repeated,
		localGrants: v.Counts.Local, recalls: v.Counts.Recalls,
	}
	n.Add(did)
	return n
}

// committed returns the service's entries of the log, from all disks together, since a snapshot leaves a gap.
// If two different entries were on equally many nodes, later selects the one of the later or of the earlier
// term: only the resulting state shows which one was committed.
func (c *cluster) committed(later bool) (logged []*raft.Log) {
	newest := c.newestLog()
	end, _ := newest.disk.LastIndex()
	for i := uint64(1); i <= end; i++ {
		var own raft.Log
		entry := &own
		if newest.disk.GetLog(i, &own) != nil {
			entry = c.mostKept(i, later)
		}
		if entry != nil && entry.Type == raft.LogCommand {
			logged = append(logged, entry)
		}
	}
	return logged
}

// newestLog returns the node that would win an election against all others. Its log contains everything that
// was committed, and by now nothing else.
func (c *cluster) newestLog() *node {
	rank := func(n *node) (r [2]uint64) {
		last, _ := n.disk.LastIndex()
		if l := n.disk.at(last); l != nil {
			r = [2]uint64{l.Term, last}
		}
		return r
	}
	return slices.MaxFunc(c.nodes, func(a, b *node) int {
		x, y := rank(a), rank(b)
		return slices.Compare(x[:], y[:])
	})
}

// mostKept returns the entry with that index that most nodes ever had; if there are two, later selects by
// term. A node that was sent a snapshot may have kept an entry that was never committed, even of a later term
// than the committed one.
func (c *cluster) mostKept(i uint64, later bool) (most *raft.Log) {
	kept, side := map[uint64]int{}, 1
	if !later {
		side = -1
	}
	for _, n := range c.all {
		l := n.disk.at(i)
		if l == nil {
			continue
		}
		kept[l.Term]++
		if most == nil || cmp.Or(cmp.Compare(kept[l.Term], kept[most.Term]), side*cmp.Compare(l.Term, most.Term)) > 0 {
			most = l
		}
	}
	return most
}

func entries(logged []*raft.Log) (all []judge.Entry) {
	for _, l := range logged {
		all = append(all, judge.Entry{Index: l.Index, Term: l.Term, Data: l.Data})
	}
	return all
}

// replay returns the running nodes whose state differs from that of the log, which must be equal to the byte.
// over contains the sessions that expired in the log, with the leaders' timestamps.
func (c *cluster) replay(logged []*raft.Log) (over map[uint64]time.Duration, differs []string) {
	over = map[uint64]time.Duration{}
	machine := fsm.NewReplicated(fsm.Level, func(error) {})
	for _, l := range logged {
		applied, ok := machine.Apply(l).(*fsm.Applied)
		if !ok {
			return over, []string{fmt.Sprintf("none: entry %d was not applied", l.Index)}
		}
		entry := &wire.Entry{}
		c.must("decode an entry", proto.Unmarshal(l.Data, entry))
		for _, e := range applied.Events {
			if e.Type == wire.Event_SESSION_EXPIRED {
				over[e.SessionId] = time.Duration(entry.WallUnixMs-c.begin.UnixMilli()) * time.Millisecond
			}
		}
	}
	var want bytes.Buffer
	c.must("write the replayed state", machine.Fork().WriteSnapshot(&want))
	for _, n := range c.nodes {
		if up := n.replica(); up != nil {
			var got bytes.Buffer
			c.must("write the state of "+n.id, up.Fork().WriteSnapshot(&got))
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				differs = append(differs, n.id)
			}
		}
	}
	return over, differs
}

// lifetimes checks when the SDK gave sessions up: at their deadline according to the frames, not later, and
// not earlier unless they had expired. Steady sessions must not be given up at all.
func (c *cluster) lifetimes(ends map[uint64]time.Duration) {
	sessions := c.log.History().Sessions()
	for _, l := range c.sessions() {
		s, known := sessions[l.ID]
		over, expired := ends[l.ID]
		gaveUp := errors.Is(l.Why, client.ErrExpired)
		switch {
		case !known:
			c.log.Fault("session %d was opened and never seen", l.ID)
		case errors.Is(l.Why, client.ErrRolledBack):
			c.log.Fault("session %d ended at %v, since the cluster was rolled back: it was not", l.ID, l.Lost)
		case l.Steady && (expired || gaveUp):
			c.log.Fault("session %d kept its heartbeats up and was lost at %v (expired: %v)", l.ID, l.Lost, over)
		case l.Unguarded || !gaveUp:
		case l.Lost > s.Deadline()+stampRound:
			c.log.Fault("session %d was given up at %v, after its deadline %v", l.ID, l.Lost, s.Deadline())
		case l.Lost < s.Deadline()-s.TTL/3 && (!expired || l.Lost < over):
			c.log.Fault("session %d was given up at %v, before its deadline %v, and lives", l.ID, l.Lost, s.Deadline())
		}
	}
}

// sessions returns the sessions of the test and of the load.
func (c *cluster) sessions() []workload.Life {
	c.mu.Lock()
	var all []workload.Life
	for _, l := range c.lives {
		all = append(all, *l)
	}
	c.mu.Unlock()
	if c.run != nil {
		all = slices.Concat(all, c.run.Lives())
	}
	return all
}

// TestEntryBehindASnapshotIsNotCommitted: n3 alone had an entry of a later term that was never
// committed, then got a snapshot, and never learned the committed entry.
func TestEntryBehindASnapshotIsNotCommitted(t *testing.T) {
	c := &cluster{t: t}
	for id, terms := range map[string][]uint64{"n1": {1, 2, 4}, "n2": {1, 2, 4}, "n3": {1, 3, 4}} {
		n := &node{c: c, id: id, disk: newDisk()}
		n.disk.power(true)
		for i, term := range terms {
			c.must("store an entry", n.disk.StoreLog(&raft.Log{Index: uint64(i + 1), Term: term, Type: raft.LogCommand}))
		}
		c.must("compact", n.disk.DeleteRange(1, 2))
		c.nodes, c.all = append(c.nodes, n), append(c.all, n)
	}
	var terms []uint64
	for _, l := range c.committed(true) {
		terms = append(terms, l.Term)
	}
	if want := []uint64{1, 2, 4}; !slices.Equal(terms, want) {
		t.Errorf("entries of terms %v, want %v", terms, want)
	}
}
