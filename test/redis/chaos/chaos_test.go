package chaos_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/judge"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/redis/chaos"
	"github.com/quorumlock/quorumlock/test/workload"
)

// full enables the long version.
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// programs are the binaries under test, built once.
var programs process.Programs

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quorumlock-chaos-")
	if err == nil {
		defer os.RemoveAll(dir)
		programs, err = process.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// brief are the nemeses of the short version.
var brief = map[string]bool{"kill the leader": true, "freeze the leader": true, "break connections": true}

// least is what a run must reach for each nemesis, on average.
var (
	least = judge.Counts{KeyRequests: 50, KeyHolds: 10, KeyWaits: 1, KeyExpiries: 1, Grants: 20, Contended: 2}
	// leastDid is the same for what the load counts.
	leastDid = chaos.Counts{
		Mutexes: 10, Waits: 2, Holds: 2, Refused: 2, Extended: 1, Released: 10, Abandoned: 1, Writes: 10, Kept: 1,
	}
)

// TestNemeses injects every kind of fault while Redis clients and SDK clients contend for the same locks. Each fault
// must take effect while keys are held, and a key that is held longer must survive it.
func TestNemeses(t *testing.T) {
	for name, opts := range map[string]process.Options{
		"apart":          {Nodes: 3, Apart: true},
		"behind proxies": {Nodes: 3, Proxied: true},
		"bridge":         {Nodes: 5, Apart: true},
		"storms":         {Nodes: 3, Storms: true},
		"lean":           {Nodes: 3, Lean: true},
	} {
		t.Run(name, func(t *testing.T) {
			if !full && name != "behind proxies" {
				t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
			}
			opts.Redis = true
			strikeAll(t, opts)
		})
	}
}

// parts are what some nemeses and the final checks need besides the load of this package.
var parts = []workload.Part{workload.Line, workload.Frail, workload.Fenced}

func strikeAll(t *testing.T, opts process.Options) {
	c := process.StartWith(t, programs, opts)
	base := workload.Options{Parts: parts}
	if opts.Storms {
		base.TTL = time.Minute // the load is in the same process as the storm, and waits for its turn
	}
	trial := process.Try(t, c, 1, base)
	load := chaos.Start(t, trial, 1)
	random := rand.New(rand.NewPCG(1, 1))
	struck := 0
	for _, n := range process.Nemeses() {
		if !n.Fits(opts) || !full && !brief[n.Name] {
			continue
		}
		struck++
		strike(t, trial, load, n, random)
	}
	if struck == 0 {
		t.Fatal("no nemesis fits")
	}
	did := load.Finish()
	t.Logf("%+v", did)
	t.Log(trial.Finish())
	judged := trial.Judge()
	t.Log(judged)
	want, wantDid := judge.Counts{}, chaos.Counts{}
	for range struck {
		want.Add(least)
		wantDid.Add(leastDid)
	}
	if full {
		wantDid.Stale = 1 // a write too late, so there was something to fence
	}
	if err := errors.Join(judged.Enough(want), did.Enough(wantDid)); err != nil {
		t.Error(err)
	}
}

// attempts bounds how often a fault is injected until a Redis client holds a lock meanwhile: some faults are over in
// milliseconds.
const attempts = 5

// strike injects a fault while keys are held.
func strike(t *testing.T, trial *process.Trial, load *chaos.Load, n process.Nemesis, random *rand.Rand) {
	t.Helper()
	for range attempts {
		still := load.Keep()
		load.AwaitHeld()
		began := trial.Log.Now()
		effect := trial.Strike(n, random)
		ended := trial.Log.Now()
		t.Logf("%s: %d", n.Name, effect)
		if effect == 0 {
			t.Errorf("%s took no effect", n.Name)
		}
		trial.Recover()
		still()
		if heldDuring(trial.Log.History(), began, ended) > 0 {
			return
		}
	}
	t.Errorf("%s: no Redis client held a lock, %d times", n.Name, attempts)
}

// heldDuring counts the holds of Redis clients at some time of an interval, without the key that is held through a
// fault.
func heldDuring(h *history.History, began, ended time.Duration) (count int) {
	for _, hold := range h.Holds() {
		if hold.Value != "" && hold.Client != "kept" && hold.Granted < ended && hold.Ended > began {
			count++
		}
	}
	return count
}
