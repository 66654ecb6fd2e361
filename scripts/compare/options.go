package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/report"
	"github.com/quorumlock/quorumlock/scripts/compare/system"
	"github.com/quorumlock/quorumlock/scripts/compare/workload"
)

// Bounds of the options.
const (
	maxRounds = 100
	maxWindow = 10 * time.Minute
)

// Defaults of a trial.
const (
	smokeWindow = time.Second
	smokeWarmUp = 500 * time.Millisecond
)

// options are the command line.
type options struct {
	rounds         int
	window, warmUp time.Duration
	smoke          bool
	keep           bool
	packages       bool
	bin, out, dir  string
	systems        []system.System
	stages         []workload.Stage
	args           []string
}

// errUsage is returned for an invalid command line.
var errUsage = errors.New("usage")

// parse reads the command line. Quorumlock itself always takes part.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{args: args}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 5, "measure everything `N` times")
	flags.DurationVar(&o.window, "window", 5*time.Second, "measure each for this `time`")
	flags.DurationVar(&o.warmUp, "warm-up", 3*time.Second, "load for this `time` before")
	names := flags.String("systems", "etcd,zookeeper,redis,redis-always,redlock,redlock-always", "compare with these `systems`, comma separated")
	stages := flags.String("workloads", "all", "measure these `workloads`, comma separated: "+strings.Join(stageNames(), ", "))
	flags.BoolVar(&o.smoke, "smoke", false, "a short trial: one round, short windows, small numbers; its figures mean nothing")
	flags.StringVar(&o.out, "out", "bin/compare/out", "`directory` for table, chart and JSON")
	flags.StringVar(&o.dir, "dir", os.TempDir(), "`directory` below which the servers' data is, on a disk")
	flags.StringVar(&o.bin, "bin", "bin", "`directory` of the programs that make builds")
	flags.BoolVar(&o.keep, "keep", false, "keep the servers' data and logs")
	flags.BoolVar(&o.packages, "packages", false, "name the Debian packages that are missing for that, and end")
	if err := flags.Parse(args); err != nil {
		return nil, errors.Join(errUsage, err)
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%w: there are no arguments but flags: %q", errUsage, flags.Args())
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	o.shorten(set)
	return o, o.choose(*names, *stages)
}

// shorten applies the defaults of a trial to options that the command line does not set.
func (o *options) shorten(set map[string]bool) {
	if !o.smoke {
		return
	}
	if !set["rounds"] {
		o.rounds = 1
	}
	if !set["window"] {
		o.window = smokeWindow
	}
	if !set["warm-up"] {
		o.warmUp = smokeWarmUp
	}
}

// choose selects systems and stages, and rejects invalid options.
func (o *options) choose(names, stages string) error {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	chosen := append(words(names), system.Own...)
	if o.systems, err = system.Named(bin, chosen); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	sizes := workload.Real
	if o.smoke {
		sizes = workload.Small
	}
	o.stages = workload.Stages(sizes)
	if stages != "all" {
		wanted := words(stages)
		for _, name := range wanted {
			if !slices.Contains(stageNames(), name) {
				return fmt.Errorf("%w: there is no workload %q; there are %s", errUsage, name, strings.Join(stageNames(), ", "))
			}
		}
		o.stages = slices.DeleteFunc(o.stages, func(s workload.Stage) bool { return !slices.Contains(wanted, s.Name) })
	}
	switch {
	case o.rounds < 1 || o.rounds > maxRounds:
		return fmt.Errorf("%w: %d rounds: give 1 to %d", errUsage, o.rounds, maxRounds)
	case o.window <= 0 || o.window > maxWindow:
		return fmt.Errorf("%w: a window of %v: give more than 0 and at most %v", errUsage, o.window, maxWindow)
	case o.warmUp < 0 || o.warmUp > maxWindow:
		return fmt.Errorf("%w: a warm-up of %v: give 0 to %v", errUsage, o.warmUp, maxWindow)
	case len(o.stages) == 0:
		return fmt.Errorf("%w: no workloads", errUsage)
	}
	return nil
}

// words splits a list at its commas.
func words(list string) []string {
	var all []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

func stageNames() []string {
	var names []string
	for _, s := range workload.Stages(workload.Real) {
		names = append(names, s.Name)
	}
	return names
}

// openFiles is the number of files that this program has open: one for each of ten thousand connections, and
// some more.
const openFiles = 12_000

// ready returns an error with advice if the comparison cannot run on this machine.
func (o *options) ready() error {
	if missing := system.Missing(o.systems); len(missing) > 0 {
		var files []string
		for _, n := range missing {
			files = append(files, n.File)
		}
		text := strings.Join(files, ", ") + ": not found; make compare builds and installs what is missing"
		if packages := system.Packages(missing); len(packages) > 0 {
			text += ", or: apt-get install " + strings.Join(packages, " ")
		}
		return errors.New(text)
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if !o.smoke && files.Cur < openFiles {
		return fmt.Errorf("only %d open files are allowed: ulimit -n %d", files.Cur, openFiles)
	}
	return report.OnDisk(o.dir)
}
