package process_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/workload"
)

// full enables the long version of every test.
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// brief are the nemeses of the short version: one of each kind that the other tests here do not cover. The
// others run in the long version, and all of them in package soak.
var brief = map[string]bool{
	"isolate the leader from the nodes": true,
	"let nobody hear the leader":        true,
	"refuse connections to the leader":  true,
	"lose packets":                      true,
	"delay between nodes":               true,
	"break connections":                 true,
	"hold a client back beyond its TTL": true,
	"greed":                             true,
}

// beside runs a test of the short version in parallel with others that call it: they wait most of the time.
func beside(t *testing.T) {
	if !full {
		t.Parallel()
	}
}

// TestNemeses injects every kind of fault into clusters of several kinds, under the full load. Each fault
// must take effect, and every request must be answered afterwards.
func TestNemeses(t *testing.T) {
	beside(t)
	for name, opts := range map[string]process.Options{
		"apart":          {Nodes: 3, Apart: true},
		"behind proxies": {Nodes: 3, Proxied: true},
		"bridge":         {Nodes: 5, Apart: true},
		"storms":         {Nodes: 3, Storms: true},
		"lean":           {Nodes: 3, Lean: true},
	} {
		t.Run(name, func(t *testing.T) {
			if !full && name != "apart" && name != "behind proxies" {
				t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
			}
			beside(t)
			strikeAll(t, opts)
		})
	}
}

func strikeAll(t *testing.T, opts process.Options) {
	c := process.StartWith(t, programs, opts)
	load := workload.Options{}
	if opts.Storms {
		load.TTL = time.Minute // the load is in the same process as the storm, and waits for its turn
	}
	trial := process.Try(t, c, 1, load)
	random := rand.New(rand.NewPCG(1, 1))
	struck := 0
	for _, n := range process.Nemeses() {
		if !n.Fits(opts) || !full && !brief[n.Name] || opts.Proxied && n.Fits(process.Options{Nodes: opts.Nodes}) {
			continue
		}
		struck++
		effect := trial.Strike(n, random)
		t.Logf("%s: %d", n.Name, effect)
		if effect == 0 {
			t.Errorf("%s took no effect", n.Name)
		}
		trial.Recover()
	}
	if struck == 0 {
		t.Error("no nemesis fits")
	}
	t.Log(trial.Finish())
	t.Log(trial.Judge())
}
