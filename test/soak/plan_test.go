package soak_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/quorumlock/quorumlock/test/process"
)

// plan is the content of an episode.
type plan struct {
	seed    uint64
	random  *rand.Rand
	opts    process.Options
	nemeses []process.Nemesis
}

// Percentages of the episodes whose cluster is of a kind, and bounds for the number of nemeses.
const (
	fives, leans, storms, walls, aparts, proxies = 25, 8, 8, 15, 55, 45
	leastNemeses, mostNemeses                    = 4, 7
)

// draw makes a plan. Consecutive episodes begin with consecutive nemeses, so that each has its turn. Clusters
// are drawn until one suits the first nemesis.
func draw(seed uint64, apart bool) plan {
	p := plan{seed: seed, random: rand.New(rand.NewPCG(seed, 0))}
	var all []process.Nemesis
	for _, n := range process.Nemeses() {
		if apart || n.Fits(process.Options{Nodes: 5, Proxied: true, Storms: true, Walls: true}) || n.Fits(process.Options{Lean: true}) {
			all = append(all, n)
		}
	}
	first := all[seed%uint64(len(all))]
	for p.opts = p.shape(apart); !first.Fits(p.opts); {
		p.opts = p.shape(apart)
	}
	p.nemeses = []process.Nemesis{first}
	count := leastNemeses + p.random.IntN(mostNemeses-leastNemeses+1)
	if p.opts.Lean || p.opts.Storms {
		count = 2 // each of them takes long
	}
	for len(p.nemeses) < count {
		if n := all[p.random.IntN(len(all))]; n.Fits(p.opts) {
			p.nemeses = append(p.nemeses, n)
		}
	}
	return p
}

func (p plan) shape(apart bool) process.Options {
	chance := func(percent int) bool { return p.random.IntN(100) < percent }
	o := process.Options{Nodes: 3}
	if chance(fives) {
		o.Nodes = 5
	}
	o.Lean, o.Storms = chance(leans), chance(storms)
	o.Walls, o.Apart, o.Proxied = chance(walls), chance(aparts) && apart, chance(proxies)
	if o.Storms {
		o.Walls, o.Proxied, o.Nodes = false, false, 3
	}
	return o
}

// String describes the kind of cluster.
func (p plan) String() string {
	words := []string{fmt.Sprintf("%d nodes", p.opts.Nodes)}
	for word, is := range map[string]bool{"apart": p.opts.Apart, "behind proxies": p.opts.Proxied,
		"lean": p.opts.Lean, "stormy": p.opts.Storms, "with moved clocks": p.opts.Walls} {
		if is {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}
