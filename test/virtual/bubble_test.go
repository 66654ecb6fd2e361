package virtual_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

var onlySeed = flag.Uint64("seed", 0, "run only this seed of the tests that have several")

// full enables the long version of every test.
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// seeds returns the seeds to run: a third of n, many more in the long version, and fewer under the race detector.
func seeds(n uint64) []uint64 {
	if *onlySeed != 0 {
		return []uint64{*onlySeed}
	}
	if full {
		n *= 12
	} else {
		n = (n + 2) / 3
	}
	if raced {
		n = max(n/10, 1)
	}
	all := make([]uint64, n)
	for i := range all {
		all[i] = uint64(i) + 1
	}
	return all
}

// eachSeed runs a test in virtual time once for every seed, two at a time, and returns the sum of the counts.
func eachSeed(t *testing.T, n uint64, f func(t *testing.T, seed uint64) counts) counts {
	t.Helper()
	var mu sync.Mutex
	total := counts{}
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds(n) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				var did counts
				inVirtualTime(t, func(t *testing.T) { did = f(t, seed) })
				if t.Failed() {
					name, _, _ := strings.Cut(t.Name(), "/")
					t.Logf("again: go test ./test/virtual -run '^%s$' -seed %d", name, seed)
				}
				mu.Lock()
				defer mu.Unlock()
				total.Add(did)
			})
		}
	})
	t.Log(total)
	return total
}

// inVirtualTime runs a test in its own bubble, which ends once all its goroutines have ended: a leak shows up
// as a deadlock.
func inVirtualTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	bubble.Test(t, f)
}

// pause lets virtual time pass.
func pause(d time.Duration) { time.Sleep(d) }

// within waits for a condition, at most for limit in virtual time.
func within(limit time.Duration, ok func() bool) bool {
	for begin := time.Now(); !ok(); pause(10 * time.Millisecond) {
		if time.Since(begin) > limit {
			return false
		}
	}
	return true
}
