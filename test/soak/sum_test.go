package soak_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/judge"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/workload"
)

// struck is one use of a nemesis and how often it took effect.
type struck struct {
	nemesis string
	effect  uint64
}

// outcome is the result of an episode.
type outcome struct {
	plan          plan
	started       time.Time
	struck        []struck
	did           workload.Counts
	judged        judge.Counts
	before, after map[string]size
}

// size is a node's resource use.
type size struct {
	goroutines int
	memory     int // bytes of resident memory
}

func sizes(t *testing.T, c *process.Cluster) map[string]size {
	t.Helper()
	all := map[string]size{}
	for _, id := range c.IDs() {
		c.Await("the metrics of "+id, process.WaitTimeout, func(ctx context.Context) error {
			m, err := c.Metrics(ctx, id)
			all[id] = size{int(m["go_goroutines"]), int(m["process_resident_memory_bytes"])}
			if err == nil && (all[id].goroutines == 0 || all[id].memory == 0) {
				err = errors.New("it says nothing of its size")
			}
			return err
		})
	}
	return all
}

// Bounds for a node that is not used any more: goroutines beyond those at its start, for the connections that
// raft keeps open, up to three to and from each of four peers; and memory.
const (
	moreGoroutines = 30
	mostMemory     = 400 << 20 // bytes
)

// largest returns the maximum of each resource.
func largest(all map[string]size) (most size) {
	for _, s := range all {
		most = size{max(most.goroutines, s.goroutines), max(most.memory, s.memory)}
	}
	return most
}

func (s size) String() string { return fmt.Sprintf("%d goroutines %d MiB", s.goroutines, s.memory>>20) }

// sum is the sum of all episodes.
type sum struct {
	mu       sync.Mutex // guards the fields below
	episodes int
	virtual  int
	failed   []uint64
	did      workload.Counts
	judged   judge.Counts
	strikes  map[string]int // by nemesis
	effects  map[string]uint64
	had      map[string]int // number of strikes that took effect
	before   size
	after    size
}

func newSum() *sum {
	return &sum{did: workload.Counts{}, strikes: map[string]int{}, effects: map[string]uint64{}, had: map[string]int{}}
}

// add adds an episode and prints its line.
func (s *sum) add(t *testing.T, e *outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.episodes++
	s.did.Add(e.did)
	s.judged.Add(e.judged)
	word := "ok"
	if t.Failed() {
		word = "FAILED"
		s.failed = append(s.failed, e.plan.seed)
	}
	var faults []string
	for _, one := range e.struck {
		faults = append(faults, fmt.Sprintf("%s (%d)", one.nemesis, one.effect))
		s.strikes[one.nemesis]++
		s.effects[one.nemesis] += one.effect
		if one.effect > 0 {
			s.had[one.nemesis]++
		}
	}
	before, after := largest(e.before), largest(e.after)
	s.before = size{max(s.before.goroutines, before.goroutines), max(s.before.memory, before.memory)}
	s.after = size{max(s.after.goroutines, after.goroutines), max(s.after.memory, after.memory)}
	if after.goroutines > before.goroutines+moreGoroutines || after.memory > mostMemory {
		t.Errorf("a node has %v with nobody left to serve", after)
	}
	fmt.Printf("%-6s seed %d, %v, %v: %s; %v; nodes %v, then %v\n", word, e.plan.seed, time.Since(e.started).Round(time.Second),
		e.plan, strings.Join(faults, ", "), e.judged, before, after)
}

// addVirtual adds a run of the clusters in virtual time.
func (s *sum) addVirtual(t *testing.T, seed uint64, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.virtual++
	word := "ok"
	if t.Failed() {
		word = "FAILED"
		s.failed = append(s.failed, seed)
	}
	fmt.Printf("%-6s seed %d, %v, in virtual time\n", word, seed, took.Round(time.Second))
}

// least is what an episode must reach on average.
var least = judge.Counts{Operations: 1_000, Commands: 1_000, Grants: 300, Contended: 50, Expiries: 1, Leaders: 1, Reads: 10, Holds: 300}

// leastDid is what the load must have encountered in total, in runs of more than someTime: the unfenced
// resource lost writes, so there was something to fence.
var leastDid = workload.Counts{workload.StaleWrites: 1, workload.LostUpdates: 1, workload.Deadlocks: 1}

const someTime = 15 * time.Minute

// report prints the summary, and fails the test if it is too little.
func (s *sum) report(t *testing.T, took time.Duration) {
	var want judge.Counts
	fmt.Printf("\n%d episodes and %d of virtual time in %v; failed: %d\n", s.episodes, s.virtual, took.Round(time.Second), s.failed)
	fmt.Println(s.judged)
	for _, what := range slices.Sorted(maps.Keys(s.did)) {
		fmt.Printf("  %9d %s\n", s.did[what], what)
	}
	fmt.Println("faults: how often, how often with effect, and how much of it")
	for _, name := range slices.Sorted(maps.Keys(s.strikes)) {
		fmt.Printf("  %4d %4d %9d  %s\n", s.strikes[name], s.had[name], s.effects[name], name)
		if s.had[name] == 0 {
			t.Errorf("%q never took effect in %d times", name, s.strikes[name])
		}
	}
	fmt.Printf("largest node: %v at the beginning of an episode, %v after its load\n", s.before, s.after)
	if *duration == 0 {
		return // a single episode shows what went wrong in it, and proves nothing
	}
	for range s.episodes {
		want.Add(least)
	}
	if err := s.judged.Enough(want); err != nil && s.episodes > 0 {
		t.Error(err)
	}
	if missing := s.did.Missing(leastDid); took > someTime && len(missing) > 0 {
		t.Error(missing)
	}
}
