package process_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
)

var onlySeed = flag.Uint64("seed", 0, "run only this seed of the tests that have several")

// TestOldCopiesInAnyOrder copies, kills, starts, restores and replaces nodes in random order. No token is
// granted twice, and no node ends without a reason. To run many orders:
//
//	QUORUMLOCK_CHECK=1 go test ./test/process -run '^TestOldCopiesInAnyOrder$' -v
func TestOldCopiesInAnyOrder(t *testing.T) {
	beside(t)
	total := map[string]int{}
	var mu sync.Mutex // guards total
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds(12) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				did := orderOf(t, seed)
				mu.Lock()
				defer mu.Unlock()
				for what, n := range did {
					total[what] += n
				}
			})
		}
	})
	t.Log(total)
	if !full || *onlySeed != 0 {
		return
	}
	for _, needed := range []string{"put back", "went back", "replaced", "granted after a return"} {
		if total[needed] == 0 {
			t.Errorf("never %s", needed)
		}
	}
}

// seeds returns the requested seed, only the first in the short version, or n of them.
func seeds(n uint64) (all []uint64) {
	if *onlySeed != 0 {
		return []uint64{*onlySeed}
	}
	if !full {
		n = 1
	}
	for seed := range n {
		all = append(all, seed+1)
	}
	return all
}

// orderOf runs the order of a seed and returns what happened.
func orderOf(t *testing.T, seed uint64) map[string]int {
	steps := 4
	if full || *onlySeed != 0 {
		steps = 20
	}
	b := &anyOrder{
		t: t, c: process.Start(t, programs, 3+2*int(seed%4/3)), random: rand.New(rand.NewPCG(seed, 0)),
		copies: map[string]copyTaken{}, back: map[string]process.CopyOf{}, out: map[string]bool{}, moved: map[string]bool{}, did: map[string]int{},
	}
	defer func() {
		if t.Failed() {
			t.Logf("again: go test ./test/process -run '^TestOldCopiesInAnyOrder$' -seed %d", seed)
		}
	}()
	for _, id := range b.c.IDs() {
		b.copies[id] = copyTaken{b.c.Copy(id, process.Frozen), process.Frozen}
	}
	for range steps {
		b.step()
	}
	b.heal()
	t.Log(b.did)
	return b.did
}

// copyTaken is a copy and how it was made.
type copyTaken struct {
	dir string
	of  process.CopyOf
}

// anyOrder is one random order.
type anyOrder struct {
	t      *testing.T
	c      *process.Cluster
	random *rand.Rand
	copies map[string]copyTaken
	back   map[string]process.CopyOf // nodes whose data was replaced by an old copy
	out    map[string]bool           // nodes that ended for good
	moved  map[string]bool           // those of them whose data was moved away
	did    map[string]int
	served bool // whether the last try was granted a lock
	issued
}

// step does something to one node, or kills all, and lets a client work.
func (b *anyOrder) step() {
	ids := b.c.IDs()
	if b.random.IntN(8) == 0 {
		b.killAll()
	} else {
		b.hurt(ids[b.random.IntN(len(ids))])
	}
	b.c.Pass(time.Duration(b.random.Int64N(int64(time.Second))))
	b.try()
	b.reap()
}

// killAll kills all running nodes and restarts them, some of them with old copies.
func (b *anyOrder) killAll() {
	var up []string
	for _, id := range b.c.IDs() {
		if b.c.Running(id) {
			up = append(up, id)
		}
	}
	b.c.Perish(up...)
	for _, id := range up {
		if _, ok := b.copies[id]; ok && b.random.IntN(3) == 0 {
			b.putBack(id)
		}
	}
	b.c.Restart(up...)
	b.did["all restarted"]++
}

// hurt does something to a node that has not ended for good.
func (b *anyOrder) hurt(id string) {
	up, pick := b.c.Running(id), b.random.IntN(4)
	_, copied := b.copies[id]
	switch {
	case b.out[id]:
	case pick == 0:
		of := process.Ended
		if up {
			of = []process.CopyOf{process.Frozen, process.Live}[b.random.IntN(2)]
		}
		dir := b.c.Copy(id, of)
		if b.back[id] == process.Live {
			of = process.Live // it was torn already
		}
		b.copies[id] = copyTaken{dir, of}
	case up && pick == 1:
		b.c.Perish(id)
	case pick >= 2 && copied:
		if up {
			b.c.Perish(id)
		}
		b.putBack(id)
		b.c.Restart(id)
	case !up:
		b.c.Restart(id)
	}
}

func (b *anyOrder) putBack(id string) {
	b.c.PutBack(id, b.copies[id].dir)
	b.back[id] = b.copies[id].of
	b.did["put back"]++
}

// heal starts all nodes that are down and replaces those that ended for good, if possible.
func (b *anyOrder) heal() {
	for _, id := range b.c.IDs() {
		if !b.out[id] && !b.c.Running(id) {
			b.c.Restart(id)
		}
	}
	b.c.Pass(time.Second)
	b.try()
	b.reap()
}

// reap finds the nodes that have ended on their own, and replaces them if possible.
func (b *anyOrder) reap() {
	for _, id := range b.c.IDs() {
		if !b.out[id] && b.c.EndedItself(id) {
			b.stopped(id)
		}
		if b.out[id] && !b.c.Running(id) && b.served {
			b.replace(id)
		}
	}
}

// stopped fails the test unless a node that ended on its own had a valid reason.
func (b *anyOrder) stopped(id string) {
	b.out[id] = true
	if code := b.c.Ended(id); code != 70 {
		b.t.Errorf("%s: exit code %d, want 70", id, code)
	}
	words, reason := lastWords(b.c, id), "nothing"
	of, back := b.back[id]
	switch {
	case strings.Contains(words, "the data directory was rolled back") && back:
		reason = "went back"
	case strings.Contains(words, "the cluster's log has forked") && b.did["put back"] > 0:
		reason = "two courses"
	case strings.Contains(words, "damaged") && back && of == process.Live:
		reason = "torn"
	case strings.Contains(words, "is known to its cluster with another data directory") && b.did["replaced"] > 0:
		reason = "told by a node that went back" // it may be restarted
		delete(b.out, id)
	default:
		b.t.Errorf("%s ended with %q", id, words)
	}
	b.did[reason]++
}

// replace follows a node's advice, if all others are up: otherwise there may be no leader.
func (b *anyOrder) replace(id string) {
	others := b.c.Others(id)
	if b.t.Failed() || slices.ContainsFunc(others, func(other string) bool { return b.out[other] || !b.c.Running(other) }) {
		return
	}
	commands := replacement(b.t, id, lastWords(b.c, id))
	if !b.moved[id] {
		b.c.Drop(commands[0][2]) // of an earlier replacement
		run(b.t, commands[0])
		b.moved[id] = true
	}
	if !b.ask(commands[1]) {
		return
	}
	b.c.Restart(id)
	if !b.ask(commands[2]) {
		return
	}
	delete(b.out, id)
	delete(b.moved, id)
	delete(b.back, id)
	delete(b.copies, id)
	b.did["replaced"]++
}

// ask runs one of the commands until it succeeds. It may never succeed, since other nodes may end in the
// meantime.
func (b *anyOrder) ask(command []string) bool {
	ctx, cancel := context.WithTimeout(b.t.Context(), process.WaitTimeout/3)
	defer cancel()
	args := append([]string{"--endpoints", strings.Join(b.c.Endpoints(), ",")}, command[1:]...)
	for ctx.Err() == nil {
		if _, err := programs.Qlock(ctx, args...); err == nil {
			return true
		}
		b.c.Pass(50 * time.Millisecond)
	}
	return false
}

// try lets a client work, if that is possible.
func (b *anyOrder) try() {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
	defer cancel()
	before := len(b.tokens)
	_, _ = b.work(ctx, b.t, b.c, 8) // fails if most nodes are down
	b.served = len(b.tokens) > before
	b.did["granted"] += len(b.tokens) - before
	if b.did["put back"] > 0 {
		b.did["granted after a return"] += len(b.tokens) - before
	}
}
