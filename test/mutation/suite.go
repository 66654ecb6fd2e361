package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// suite is the test binary of a package, built with all sites of the sample.
type suite struct {
	dir, pkg, binary, overlay string
	tests                     []test
}

// test is a top-level test with its running time and the sites that it reaches.
type test struct {
	name    string
	took    time.Duration
	reached []byte
}

const (
	// aloneTime bounds a separate run of a test.
	aloneTime = 5 * time.Minute
	// quick is the total time of the tests in the first batch.
	quick = 3 * time.Second
	// waitTimeout is the factor by which tests may take longer than usual before they count as hanging.
	waitTimeout = 5
	// start is the time that a run may take in addition to its tests.
	start = 20 * time.Second
)

// build compiles the tests of a package, and lists them.
func build(root, pkg, overlay, dir string) (*suite, error) {
	s := &suite{dir: filepath.Join(root, pkg), pkg: pkg, overlay: overlay}
	s.binary = filepath.Join(dir, strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "-")+".test")
	compile := exec.Command("go", "test", "-c", "-vet=off", "-o", s.binary, pkg)
	compile.Dir, compile.Env = root, s.environment(0, "")
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s does not compile: %w\n%s", pkg, err, out)
	}
	out, err := s.run(time.Minute, 0, "", "-test.list=.")
	if err != nil {
		return nil, fmt.Errorf("%s lists no tests: %w\n%s", pkg, err, out)
	}
	for _, name := range regexp.MustCompile(`(?m)^(?:Test|Fuzz|Example)\w*$`).FindAllString(out, -1) {
		s.tests = append(s.tests, test{name: name})
	}
	return s, nil
}

// environment makes every go command use the overlay, including those that tests run to build programs.
func (s *suite) environment(active int, reached string) []string {
	return append(os.Environ(),
		strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+s.overlay),
		fmt.Sprintf("MUTATION_ACTIVE=%d", active), "MUTATION_REACHED="+reached)
}

var errHung = errors.New("it did not end")

// run runs the binary with one site changed, or with none if active is 0.
func (s *suite) run(within time.Duration, active int, reached string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within+start)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, append(args, "-test.timeout="+within.String(), "-test.failfast")...)
	cmd.Dir, cmd.Env = s.dir, s.environment(active, reached)
	// Processes that the tests started are killed with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = start
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil && (ctx.Err() != nil || strings.Contains(out.String(), "panic: test timed out after ")) {
		err = errHung
	}
	return out.String(), err
}

// alone runs each test separately without a change. Tests that fail are left out.
func (s *suite) alone(dir string, count, parallel int) (failed []string) {
	var mu sync.Mutex // guards failed
	each(len(s.tests), parallel, func(i int) {
		t := &s.tests[i]
		reached := filepath.Join(dir, t.name+".reached")
		if err := os.WriteFile(reached, make([]byte, count+1), 0o600); err != nil {
			panic(err)
		}
		began := time.Now()
		_, err := s.run(aloneTime, 0, reached, "-test.run=^"+t.name+"$")
		t.took = time.Since(began)
		if err == nil {
			t.reached, err = os.ReadFile(reached)
		}
		if err != nil {
			mu.Lock()
			failed = append(failed, s.pkg+" "+t.name)
			mu.Unlock()
		}
	})
	slices.Sort(failed)
	s.tests = slices.DeleteFunc(s.tests, func(t test) bool { return t.reached == nil })
	slices.SortStableFunc(s.tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	return failed
}

// batches returns the names of the tests that reach a site, within the budget: a quick batch, and the others.
// take contains the total time of each batch.
func (s *suite) batches(site int, budget time.Duration) (names [2][]string, take [2]time.Duration) {
	var sum time.Duration
	for _, t := range s.tests {
		if t.reached[site] == 0 || sum+t.took > budget {
			continue
		}
		sum += t.took
		i := 0
		if sum > quick {
			i = 1
		}
		names[i] = append(names[i], t.name)
		take[i] += t.took
	}
	return names, take
}

// try runs the tests that reach a site, with the site changed. err is the error of the run that failed.
// reached reports whether any test reaches the site.
func (s *suite) try(site int, budget time.Duration) (reached bool, out string, err error) {
	names, take := s.batches(site, budget)
	for i, batch := range names {
		if len(batch) == 0 {
			continue
		}
		reached = true
		if out, err = s.run(start+waitTimeout*take[i], site, "", "-test.run=^("+strings.Join(batch, "|")+")$"); err != nil {
			return true, out, err
		}
	}
	return reached, "", nil
}

// each calls do for 0 to count-1, concurrently.
func each(count, parallel int, do func(int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	workers.Wait()
}
