package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

func main() {
	o := options{}
	flag.StringVar(&o.pkg, "package", "", "the package whose code is changed, such as ./fsm")
	flag.StringVar(&o.suites, "tests", "", "packages with more tests, which are tried after the package's own, separated by spaces")
	flag.IntVar(&o.count, "count", 200, "how many places are changed")
	flag.Uint64Var(&o.seed, "seed", 1, "what the sample is drawn with")
	flag.IntVar(&o.parallel, "parallel", 2, "how many test binaries run at a time")
	flag.DurationVar(&o.budget, "budget", 2*time.Minute, "how long the tests of one package that are tried with one change may take")
	flag.StringVar(&o.file, "file", "", "draw from the files of this name alone, such as hold.go")
	flag.StringVar(&o.only, "only", "", "try these numbers of the sample only, separated by commas, and print what the tests say")
	flag.Parse()
	complete, err := o.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(2)
	}
	if !complete {
		os.Exit(1)
	}
}

type options struct {
	pkg, suites, only, file string
	count, parallel         int
	seed                    uint64
	budget                  time.Duration
}

// result is the result for a site.
type result string

const (
	failed   result = "caught"
	hung     result = "caught by a time-out"
	survived result = "survived"
	missed   result = "not reached"
)

// run tries the sample. complete reports whether enough of it was caught and each survivor has a documented
// reason.
func (o options) run() (complete bool, err error) {
	t, err := load(o.pkg)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	sites := t.of(o.file).sample(o.count, o.seed)
	overlay, err := t.overlay(dir, sites)
	if err != nil {
		return false, err
	}
	suites, err := o.build(t.Module.Dir, overlay, dir, len(sites))
	if err != nil {
		return false, err
	}
	chosen, err := o.chosen(len(sites))
	if err != nil {
		return false, err
	}
	accepted, err := accepted(t.Module.Dir, o.pkg)
	if err != nil {
		return false, err
	}
	r := report{root: t.Module.Dir, pkg: o.pkg, all: len(t.sites), sites: sites, results: make([]result, len(sites)), accepted: accepted}
	o.try(suites, chosen, r.results)
	return r.print(os.Stdout), nil
}

// build builds the suites and runs each test separately.
func (o options) build(root, overlay, dir string, count int) (suites []*suite, err error) {
	for _, pkg := range append([]string{o.pkg}, strings.Fields(o.suites)...) {
		s, err := build(root, pkg, overlay, dir)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		for _, name := range s.alone(dir, count, o.parallel) {
			fmt.Fprintln(os.Stderr, "left out, because it fails alone and without a change:", name)
		}
		fmt.Fprintf(os.Stderr, "%d tests of %s passed without a change, in %s\n", len(s.tests), pkg, time.Since(began).Round(time.Second))
		suites = append(suites, s)
	}
	return suites, nil
}

// chosen returns the numbers to try.
func (o options) chosen(count int) (numbers []int, err error) {
	if o.only == "" {
		for n := range count {
			numbers = append(numbers, n+1)
		}
		return numbers, nil
	}
	for text := range strings.SplitSeq(o.only, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > count {
			return nil, fmt.Errorf("-only %s: the sample has the numbers 1 to %d", text, count)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// try fills in the results of the numbers.
func (o options) try(suites []*suite, numbers []int, results []result) {
	var done atomic.Int64
	each(len(numbers), o.parallel, func(i int) {
		n := numbers[i]
		var out string
		results[n-1], out = o.one(suites, n)
		if o.only != "" {
			fmt.Fprintf(os.Stderr, "%s\n%d %s\n", out, n, results[n-1])
		} else if d := done.Add(1); d%20 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d\n", d, len(numbers))
		}
	})
}

func (o options) one(suites []*suite, n int) (r result, out string) {
	r = missed
	for _, s := range suites {
		reached, out, err := s.try(n, o.budget)
		switch {
		case errors.Is(err, errHung):
			return hung, out
		case err != nil:
			return failed, out
		case reached:
			r = survived
		}
	}
	return r, ""
}

// accepted reads the documented reasons for which changes of a package survive. The keys are the texts above
// them.
func accepted(root, pkg string) (map[string]string, error) {
	name := strings.ReplaceAll(strings.Trim(filepath.ToSlash(filepath.Clean(pkg)), "./"), "/", "-") + ".txt"
	text, err := os.ReadFile(filepath.Join(root, "test", "mutation", "testdata", name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for _, entry := range regexp.MustCompile(`\n{2,}`).Split(strings.TrimSpace(string(text)), -1) {
		what, why, ok := strings.Cut(entry, "\n\t")
		if !ok {
			return nil, fmt.Errorf("%s: no reason stands below %q, indented by a tab", name, what)
		}
		reasons[what] = strings.Join(strings.Fields(why), " ")
	}
	return reasons, nil
}

// count returns how many results are one of the given ones.
func count(results []result, of ...result) (n int) {
	for _, r := range results {
		if slices.Contains(of, r) {
			n++
		}
	}
	return n
}
