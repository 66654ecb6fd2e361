package judge

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
)

// ErrCompacted is returned if no node has the beginning of the log, and no snapshot connects to what is left.
var ErrCompacted = errors.New("the beginning of the log is gone: have the nodes keep more of it")

// ErrForked is returned if two nodes have different entries where both must be committed, which raft promises
// never to happen.
var ErrForked = errors.New("two nodes have committed different entries")

// ReadLogs reads the committed log from the data directories of all nodes of a cluster, which must have
// stopped. It changes nothing. An entry counts as committed if a majority has it or a snapshot includes it.
// dirs are those of all voters, at least one. If the log was compacted everywhere, it begins after the oldest
// snapshot from which it is complete, and that snapshot is returned as well. ReadLogs returns ErrForked,
// ErrCompacted, or an error of a file.
func ReadLogs(dirs ...string) (entries []Entry, snapshot []byte, err error) {
	var nodes []remains
	for _, dir := range dirs {
		n, err := readDir(dir)
		if err != nil {
			return nil, nil, err
		}
		nodes = append(nodes, n)
	}
	all, last, err := committed(nodes)
	if err != nil {
		return nil, nil, err
	}
	first := last + 1
	for first > 1 && all[first-1] != nil {
		first--
	}
	if first > 1 {
		from, err := joining(first, last, nodes)
		if err != nil {
			return nil, nil, err
		}
		if snapshot, err = from.read(); err != nil {
			return nil, nil, err
		}
		first = from.index + 1
	}
	for i := first; i <= last; i++ {
		if l := all[i]; l.Type == raft.LogCommand {
			entries = append(entries, Entry{Index: l.Index, Term: l.Term, Data: l.Data})
		}
	}
	return entries, snapshot, nil
}

// joining returns the oldest snapshot that a log from first to last continues.
func joining(first, last uint64, nodes []remains) (savedState, error) {
	var found []savedState
	for _, n := range nodes {
		for _, s := range n.snapshots {
			if s.index+1 >= first && s.index <= last {
				found = append(found, s)
			}
		}
	}
	if len(found) == 0 {
		return savedState{}, fmt.Errorf("%w: it begins at entry %d", ErrCompacted, first)
	}
	return slices.MinFunc(found, func(a, b savedState) int { return cmp.Compare(a.index, b.index) }), nil
}

// committed merges the nodes' logs into one, and returns up to where it is committed.
//
// The newest log, by the term of its last entry and then by its length, contains everything that was
// committed: any majority would elect its node. The other logs are equal to it up to the last entry that they
// share with it, since two logs with one entry in common are identical up to there. What another log has
// beyond that was never committed, whatever its term: a later leader may have committed entries of an older
// term in its place.
func committed(nodes []remains) (all map[uint64]*raft.Log, last uint64, err error) {
	if err := oneLeaderInATerm(nodes); err != nil {
		return nil, 0, err
	}
	newest := slices.MaxFunc(nodes, func(a, b remains) int {
		ta, ia := a.lastEntry()
		tb, ib := b.lastEntry()
		return cmp.Or(cmp.Compare(ta, tb), cmp.Compare(ia, ib))
	})
	j := joined{log: map[uint64]*raft.Log{}, terms: map[uint64]uint64{}}
	term, end := newest.lastEntry()
	j.terms[end] = term
	for _, n := range nodes {
		for _, s := range n.snapshots {
			last = max(last, s.index)
			if err := j.know(s.index, s.term); err != nil {
				return nil, 0, err
			}
		}
	}
	shared := []uint64{}
	for _, n := range append([]remains{newest}, nodes...) {
		upTo, err := j.add(n)
		if err != nil {
			return nil, 0, err
		}
		shared = append(shared, upTo)
	}
	shared = shared[1:] // the newest log was added twice
	slices.Sort(shared)
	last = max(last, shared[(len(shared)-1)/2])
	return j.log, last, j.lacksNothing(nodes, end)
}

// joined is one log merged from several.
type joined struct {
	log map[uint64]*raft.Log
	// terms are the terms of its entries, including some that only snapshots know.
	terms map[uint64]uint64
}

func (j joined) know(index, term uint64) error {
	if known, ok := j.terms[index]; ok && known != term {
		return fmt.Errorf("%w: index %d, terms %d and %d", ErrForked, index, known, term)
	}
	j.terms[index] = term
	return nil
}

// add merges the part that a node shares with the log, and returns where that part ends.
func (j joined) add(n remains) (upTo uint64, err error) {
	for i, l := range n.log {
		if term, ok := j.terms[i]; ok && term == l.Term {
			upTo = max(upTo, i)
		}
	}
	for i, l := range n.log {
		if i > upTo {
			continue
		}
		if err := j.know(i, l.Term); err != nil {
			return 0, err
		}
		j.log[i] = l
	}
	return upTo, nil
}

// lacksNothing returns ErrForked unless the merged log, which ends at end, contains all that a majority has.
// There is an exception that it does not consider: entries of older terms that a new leader was replicating,
// without an entry of its own yet, when all nodes stopped at the same moment. None of these was ever
// acknowledged.
func (j joined) lacksNothing(nodes []remains, end uint64) error {
	votes := map[[2]uint64]int{}
	for _, n := range nodes {
		for i, l := range n.log {
			votes[[2]uint64{i, l.Term}]++
		}
	}
	for key, n := range votes {
		known, ok := j.terms[key[0]]
		if n > len(nodes)/2 && (ok && known != key[1] || key[0] > end) {
			return fmt.Errorf("%w: index %d, term %d is on %d nodes and not in the newest log", ErrForked, key[0], key[1], n)
		}
	}
	return nil
}

// oneLeaderInATerm returns ErrForked unless entries with the same index and term are identical.
func oneLeaderInATerm(nodes []remains) error {
	seen := map[[2]uint64]*raft.Log{}
	for _, n := range nodes {
		for i, l := range n.log {
			key := [2]uint64{i, l.Term}
			if known := seen[key]; known != nil && (known.Type != l.Type || !bytes.Equal(known.Data, l.Data)) {
				return fmt.Errorf("%w: index %d, term %d", ErrForked, i, l.Term)
			}
			seen[key] = l
		}
	}
	return nil
}
