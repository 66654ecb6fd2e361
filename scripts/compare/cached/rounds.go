package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/report"
	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// clients is the number of clients whose cost the servers' CPU shows.
const clients = 128

// rangeGrowth is more than clients need for their first three ranges of tokens, which have 4,672 in all.
const rangeGrowth = 5 * time.Second

// measurement is a run of the program.
type measurement struct {
	*options
	temp    string
	figures figures
}

// measure measures round after round, and prints the table.
func measure(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp(o.dir, "quorumlock-cached-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	m := &measurement{options: o, temp: temp, figures: figures{}}
	for round := range o.rounds {
		if err := m.round(ctx, round); err != nil {
			return fmt.Errorf("round %d of %d: %w", round+1, o.rounds, err)
		}
	}
	missed := m.table(os.Stdout)
	fmt.Printf("\nRounds: %d, of which the medians count; %v each after %v of warm-up. Not cached: beside %s, in turns of %v, %v for each version.\n%s\n",
		o.rounds, o.window, o.warmUp, o.against, turn, ofBoth/2*o.window, report.ThisMachine())
	if missed > 0 && !o.smoke {
		return fmt.Errorf("goals missed: %d of %d", missed, len(goals))
	}
	return nil
}

// say reports the progress.
func (m *measurement) say(round int, what string) {
	fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, m.rounds, what)
}

// round measures every figure once. The order of what is compared alternates.
func (m *measurement) round(ctx context.Context, round int) error {
	sides := []bool{false, true}
	if round%2 == 1 {
		slices.Reverse(sides)
	}
	err := m.onCluster(ctx, m.bin, func(ctx context.Context, c *system.Cluster) error {
		m.say(round, "cached holds")
		if err := errors.Join(m.alone(ctx, c), m.many(ctx, c)); err != nil {
			return err
		}
		for _, cached := range sides {
			m.say(round, map[bool]string{false: "two processes, not cached", true: "two processes, cached"}[cached])
			if err := errors.Join(m.contended(ctx, c, cached), m.turns(ctx, c, cached)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.say(round, "not cached")
	return m.uncached(ctx, round%2 == 1)
}

// onCluster starts a cluster of the programs in bin for one measurement.
func (m *measurement) onCluster(ctx context.Context, bin string, do func(context.Context, *system.Cluster) error) error {
	own, err := system.Named(bin, []string{system.Quorumlock})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(m.temp, "cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := own[0].Start(ctx, dir)
	if err != nil {
		return err
	}
	defer c.Stop()
	ctx, release := c.While(ctx)
	defer release()
	if err := do(ctx, c); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// alone measures one goroutine that uses its own lock.
func (m *measurement) alone(ctx context.Context, c *system.Cluster) error {
	return withClients(ctx, c, 1, true, func(p []*process) error {
		o, err := p[0].do(task{alone, "alone", m.warmUp, m.window})
		if err == nil {
			m.figures.add("alone/perSecond", float64(o.Pairs)/o.Seconds)
			// The few allocations of heartbeats and of acquires of new ranges do not count.
			m.figures.add("alone/mallocs", math.Round(100*float64(o.Mallocs)/float64(o.Pairs))/100)
		}
		return err
	})
}

// many measures what clients cost the servers that use their own locks all the time. Their warm-up is longer, because
// the ranges of tokens grow first. Their sessions alone are measured, too, for their heartbeats.
func (m *measurement) many(ctx context.Context, c *system.Cluster) error {
	n := fmt.Sprint(clients)
	idle, err := m.bench(ctx, c, m.warmUp, "idle", "--sessions", n, "--connections", n)
	if err != nil {
		return err
	}
	m.figures.add("many/idleCPU", 100**idle.Servers.Cores)
	r, err := m.bench(ctx, c, rangeGrowth+m.warmUp, "pairs", "--cached", "--sessions", n, "--connections", n)
	if err == nil {
		m.figures.add("many/cpu", 100**r.Servers.Cores)
		m.figures.add("many/perSecond", r.PerSecond)
	}
	return err
}

// contended measures two processes that both want one lock all the time.
func (m *measurement) contended(ctx context.Context, c *system.Cluster, cached bool) error {
	return withClients(ctx, c, 2, cached, func(p []*process) error {
		t := task{contend, "contended", m.warmUp, m.window}
		if err := errors.Join(p[0].begin(t), p[1].begin(t)); err != nil {
			return err
		}
		a, first := p[0].finish()
		b, second := p[1].finish()
		if err := errors.Join(first, second); err != nil {
			return err
		}
		waits := handOvers(a, b)
		if len(waits) == 0 {
			return fmt.Errorf("no hand-over in %v", m.window)
		}
		m.figures.add(variant("contended", cached, "handOvers"), float64(len(waits))/m.window.Seconds())
		m.figures.add(variant("contended", cached, "p99Ms"), percentile(waits, 99))
		return nil
	})
}

// handOvers returns how long each grant was waited for that followed one of the other process. Grants without a
// hand-over, which are local for cached holds, do not count. Nothing else on the cluster takes tokens meanwhile.
func handOvers(a, b outcome) (waits []time.Duration) {
	type grant struct {
		token  uint64
		second bool
		wait   time.Duration
	}
	var all []grant
	for i, token := range a.Tokens {
		all = append(all, grant{token, false, a.Waits[i]})
	}
	for i, token := range b.Tokens {
		all = append(all, grant{token, true, b.Waits[i]})
	}
	slices.SortFunc(all, func(x, y grant) int { return cmp.Compare(x.token, y.token) })
	for i := 1; i < len(all); i++ {
		if all[i].second != all[i-1].second {
			waits = append(waits, all[i].wait)
		}
	}
	return waits
}

// turns measures two processes that use a lock in turn, each idle when the other wants it.
func (m *measurement) turns(ctx context.Context, c *system.Cluster, cached bool) error {
	return withClients(ctx, c, 2, cached, func(p []*process) error {
		var waits []time.Duration
		from := time.Now().Add(m.warmUp)
		for turn := 0; time.Now().Before(from.Add(m.window)); turn++ {
			measured := !time.Now().Before(from)
			o, err := p[turn%2].do(task{Do: once, Name: "turns"})
			if err != nil {
				return err
			}
			if measured {
				waits = append(waits, o.Waits...)
			}
		}
		if len(waits) == 0 {
			return fmt.Errorf("no turn in %v", m.window)
		}
		m.figures.add(variant("turns", cached, "p50Ms"), percentile(waits, 50))
		m.figures.add(variant("turns", cached, "p99Ms"), percentile(waits, 99))
		return nil
	})
}
