package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/report"
)

// Exit codes: 1 for a failure or a missed goal, 64 for wrong usage.
const (
	exitFailed = 1
	exitUsage  = 64
)

// Defaults of a trial.
const (
	smokeWindow = time.Second
	smokeWarmUp = 500 * time.Millisecond
)

// errUsage is returned for an invalid command line.
var errUsage = errors.New("usage")

// options are the command line.
type options struct {
	rounds         int
	window, warmUp time.Duration
	smoke          bool
	bin, base, dir string
	against        string // describes the base
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	run := measure
	if len(os.Args) > 1 && os.Args[1] == clientRole {
		run = serveClient
	}
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUsage)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(exitFailed)
}

// parse reads the command line.
func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("cached", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "measure everything `N` times")
	flags.DurationVar(&o.window, "window", 5*time.Second, "measure each for this `time`")
	flags.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "load for this `time` before")
	flags.BoolVar(&o.smoke, "smoke", false, "a short trial: one round, short windows; goals do not count")
	flags.StringVar(&o.bin, "bin", "bin", "`directory` of the programs of this tree")
	flags.StringVar(&o.base, "base", filepath.Join("bin", "compare", "base"), "`directory` of the programs of the base commit")
	flags.StringVar(&o.against, "against", "the base commit", "`description` of the base commit")
	flags.StringVar(&o.dir, "dir", os.TempDir(), "`directory` below which the servers' data is, on a disk")
	if err := flags.Parse(args); err != nil {
		return nil, errors.Join(errUsage, err)
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if o.smoke {
		o.shorten(set)
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%w: there are no arguments but flags: %q", errUsage, flags.Args())
	case o.rounds < 1 || o.window <= 0 || o.warmUp < 0:
		return nil, fmt.Errorf("%w: give at least one round, a window above 0 and a warm-up of 0 or more", errUsage)
	}
	return o, errors.Join(report.OnDisk(o.dir), o.absolute())
}

// shorten applies the defaults of a trial to options that the command line does not set.
func (o *options) shorten(set map[string]bool) {
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

// absolute makes the directories of programs absolute.
func (o *options) absolute() error {
	for _, dir := range []*string{&o.bin, &o.base} {
		path, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = path
	}
	return nil
}
