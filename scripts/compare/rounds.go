package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/report"
	"github.com/quorumlock/quorumlock/scripts/compare/system"
	"github.com/quorumlock/quorumlock/scripts/compare/workload"
)

// comparison is a comparison in progress.
type comparison struct {
	*options
	results  report.Results
	progress *progress
	done     int    // workloads, counted per system and round
	temp     string // directory for the servers' files
}

// newComparison collects information about machine and systems before anything is measured.
func newComparison(ctx context.Context, o *options) (*comparison, error) {
	c := &comparison{options: o, results: report.Results{
		Begun: time.Now(), Smoke: o.smoke, WindowSeconds: o.window.Seconds(), WarmUpSeconds: o.warmUp.Seconds(),
		Command: command(o.args), Machine: report.ThisMachine(), Versions: map[string]string{},
	}}
	for _, s := range o.systems {
		version, err := s.Version(ctx)
		if err != nil {
			return nil, err
		}
		c.results.Versions[s.Name()] = version
	}
	return c, nil
}

// command returns the command that reproduces the comparison.
func command(args []string) string {
	if len(args) == 0 {
		return "make compare"
	}
	return fmt.Sprintf("make compare COMPARE_FLAGS='%s'", strings.Join(args, " "))
}

// turns returns the number of workloads in a round, counted per system.
func (c *comparison) turns() int {
	n := 0
	for _, s := range c.stages {
		n += len(s.Workloads) * len(c.taking(s, 0))
	}
	return n
}

// taking returns the systems that take part in a stage, in the order of that round: each round starts with
// another one.
func (c *comparison) taking(s workload.Stage, round int) []system.System {
	all := slices.DeleteFunc(slices.Clone(c.systems), func(one system.System) bool { return !slices.Contains(s.Systems, one.Name()) })
	first := round % len(all)
	return slices.Concat(all[first:], all[:first])
}

// run measures round after round, and writes the results so far after each. If ctx ends, the current round is
// discarded. run then returns an error, as it does if something failed.
func (c *comparison) run(ctx context.Context) error {
	temp, err := os.MkdirTemp(c.dir, "quorumlock-compare-")
	if err != nil {
		return err
	}
	c.temp, c.progress = temp, newProgress(os.Stderr, c.rounds*c.turns())
	if c.keep {
		fmt.Fprintln(os.Stderr, "data and logs stay in", temp)
	} else {
		defer os.RemoveAll(temp)
	}
	err = c.measure(ctx)
	c.progress.end()
	if err != nil {
		return err
	}
	if c.results.Rounds > 0 {
		fmt.Print(c.results.Markdown())
		fmt.Fprintln(os.Stderr, "\ntable, chart and JSON are in", c.out)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted after %d of %d rounds", c.results.Rounds, c.rounds)
	case len(c.results.Failures) > 0:
		return fmt.Errorf("failures: %d, as told above", len(c.results.Failures))
	}
	return nil
}

// measure runs rounds until ctx ends, which is not an error.
func (c *comparison) measure(ctx context.Context) error {
	for round := range c.rounds {
		if err := c.round(ctx, round); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		c.results.Rounds++
		if err := c.write(); err != nil {
			return err
		}
	}
	return nil
}

// outcome is the result of a system in one stage.
type outcome struct {
	system  string
	figures workload.Figures
	failure string // empty if there was none
}

// round measures everything once, and adds the results when all are complete. An error ends the comparison. A
// failure of one system is recorded, and the others continue.
func (c *comparison) round(ctx context.Context, round int) error {
	took, err := report.Fsync(c.temp)
	if err != nil {
		return err
	}
	var outcomes []outcome
	for _, stage := range c.stages {
		for _, s := range c.taking(stage, round) {
			where := fmt.Sprintf("round %d of %d, %s", round+1, c.rounds, s.Title())
			o := outcome{system: s.Name()}
			if o.figures, err = c.turn(ctx, stage, s, where); ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				o.failure = fmt.Sprintf("%s, %s: %v", where, stage.Name, err)
				c.progress.say(o.failure)
			}
			outcomes = append(outcomes, o)
		}
	}
	c.results.FsyncMs = append(c.results.FsyncMs, took)
	for _, o := range outcomes {
		c.results.Add(o.system, o.figures)
		if o.failure != "" {
			c.results.Failures = append(c.results.Failures, o.failure)
		}
	}
	return nil
}

// turn starts a system, runs the stage's workloads, and ends it.
func (c *comparison) turn(ctx context.Context, stage workload.Stage, s system.System, where string) (workload.Figures, error) {
	started := c.done
	defer func() { c.done = started + len(stage.Workloads) }()
	dir, err := os.MkdirTemp(c.temp, stage.Name+"-"+s.Name()+"-")
	if err != nil {
		return nil, err
	}
	if !c.keep {
		defer os.RemoveAll(dir)
	}
	c.progress.show(c.done, where+": starting")
	runtime.GC() // so that the next system does not pay for the previous one's garbage
	cluster, err := s.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer cluster.Stop()
	bed := &workload.Bed{Cluster: cluster, Window: c.window, WarmUp: c.warmUp}
	bed.Tell = func(workload string) {
		c.progress.show(c.done, where+": "+workload)
		c.done++
	}
	return stage.Run(ctx, bed)
}

// write writes the results so far to the files.
func (c *comparison) write() error {
	c.results.Finish()
	chart, err := c.results.Chart()
	if err != nil {
		return err
	}
	all, err := json.MarshalIndent(&c.results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{"compare.md": c.results.Markdown(), "compare.svg": chart, "compare.json": string(all) + "\n"} {
		if err := os.WriteFile(filepath.Join(c.out, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
