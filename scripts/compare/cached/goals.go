package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/report"
)

// figures are the measurements by name, one for each round.
type figures map[string][]float64

func (f figures) add(name string, value float64) { f[name] = append(f[name], value) }

// variant returns the name of a figure that is measured with cached holds and without.
func variant(workload string, cached bool, what string) string {
	if cached {
		return workload + "/cached/" + what
	}
	return workload + "/plain/" + what
}

// goal is one row of the table: a figure, or its ratio to another one of the same round.
type goal struct {
	what    string
	figure  string
	against string // empty if the goal is for the figure itself
	less    bool   // whether the goal is an upper bound
	goal    float64
}

// goals are the rows of the table.
var goals = []goal{
	{"pairs/s, one goroutine, its own lock, cached", "alone/perSecond", "", false, 700_000},
	{"allocations for each of these pairs", "alone/mallocs", "", true, 1},
	{"servers' CPU in % of a core, 128 clients with own connections and locks, cached", "many/cpu", "", true, 3},
	{"hand-overs/s, two processes want one lock, cached beside not cached", variant("contended", true, "handOvers"), variant("contended", false, "handOvers"), false, 0.9},
	{"wait of these in ms, p99", variant("contended", true, "p99Ms"), variant("contended", false, "p99Ms"), true, 1.1},
	{"wait in ms, p50, two processes in turn, cached beside not cached", variant("turns", true, "p50Ms"), variant("turns", false, "p50Ms"), true, 2.3},
	{"not cached: pairs/s, 1 client, beside the base", "now/pairs/1", "before/pairs/1", false, 0.97},
	{"not cached: pairs/s, 16 clients", "now/pairs/16", "before/pairs/16", false, 0.97},
	{"not cached: pairs/s, 128 clients", "now/pairs/128", "before/pairs/128", false, 0.97},
	{"not cached: pairs/s, 1,024 clients sharing 16 connections", "now/shared", "before/shared", false, 0.97},
	{"not cached: hand-overs/s, 16 clients", "now/hot/16", "before/hot/16", false, 0.97},
}

// values returns the goal's value in each round.
func (g goal) values(f figures) []float64 {
	values := slices.Clone(f[g.figure])
	for i := range values {
		if g.against != "" {
			values[i] /= f[g.against][i]
		}
	}
	return values
}

// met reports whether a value meets the goal.
func (g goal) met(value float64) bool {
	if g.less {
		return value <= g.goal
	}
	return value >= g.goal
}

// table writes the table and returns the number of goals that were missed.
func (m *measurement) table(w io.Writer) (missed int) {
	fmt.Fprintln(w, "| | medians | result | lowest | highest | goal | |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|--:|---|")
	for _, g := range goals {
		values := g.values(m.figures)
		value, sign, unit, verdict := report.Median(values), "≥", "", "met"
		medians := report.Significant(report.Median(m.figures[g.figure]))
		if g.against != "" {
			medians, unit = medians+" / "+report.Significant(report.Median(m.figures[g.against])), "×"
		}
		if g.less {
			sign = "≤"
		}
		if !g.met(value) {
			verdict = "**missed**"
			missed++
		}
		fmt.Fprintf(w, "| %s | %s | %s%s | %s%s | %s%s | %s %s%s | %s |\n", g.what, medians, report.Significant(value), unit,
			report.Significant(slices.Min(values)), unit, report.Significant(slices.Max(values)), unit, sign, report.Short(g.goal), unit, verdict)
	}
	fmt.Fprintf(w, "\nThe 128 clients completed %s pairs/s; their sessions alone take %s %% of a core. Waits in turn, p99: %s ms cached, %s ms not cached.\n",
		report.Significant(report.Median(m.figures["many/perSecond"])), report.Significant(report.Median(m.figures["many/idleCPU"])), report.Significant(report.Median(m.figures[variant("turns", true, "p99Ms")])),
		report.Significant(report.Median(m.figures[variant("turns", false, "p99Ms")])))
	return missed
}

// percentile returns a percentile of durations, in milliseconds.
func percentile(all []time.Duration, percent int) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	rank := (len(all)*percent + 99) / 100
	return float64(all[max(rank, 1)-1]) / float64(time.Millisecond)
}
