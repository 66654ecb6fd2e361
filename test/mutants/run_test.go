//go:build mutants

package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// maxTries is the maximum number of test runs in which a bug must be caught.
	maxTries = 10
	// grace is the time that a test binary gets beyond its timeout, to report what hung.
	grace = 20 * time.Second
	// buildTime bounds one build.
	buildTime = 5 * time.Minute
)

// TestMutants tries every bug against its catchers.
func TestMutants(t *testing.T) {
	all := mutants(t)
	controls := &controls{root: root(t), binaries: map[string]func() (string, error){}, runs: map[catcher]func() error{}, dir: t.TempDir()}
	report := &report{began: time.Now()}
	t.Run("bugs", func(t *testing.T) {
		for _, m := range all {
			t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				r := row{bug: m.name}
				began := time.Now()
				r.catcher, r.tries, r.why, r.err = m.hunt(t, controls)
				r.took = time.Since(began)
				report.add(r)
				if r.err != nil {
					t.Errorf("%s (%s): %v", m.name, m.wrong, r.err)
				}
			})
		}
	})
	if len(report.rows) == 0 {
		t.Error("no bug has such a name")
	}
	report.print()
}

// hunt runs the catchers in turn until one fails.
func (m *mutant) hunt(t *testing.T, controls *controls) (by catcher, tries int, why string, err error) {
	overlay, err := m.overlay(root(t), t.TempDir())
	if err != nil {
		return by, 0, "", err
	}
	binaries := map[string]string{}
	var missed []string
	for tries = 1; tries <= maxTries; tries++ {
		by = m.catchers[(tries-1)%len(m.catchers)]
		if err := controls.pass(by); err != nil {
			return by, tries, "", err
		}
		if binaries[by.pkg] == "" {
			if binaries[by.pkg], err = build(root(t), by.pkg, t.TempDir(), overlay); err != nil {
				return by, tries, "", err
			}
		}
		end, why := try(root(t), by, binaries[by.pkg], m.within, overlay)
		if m.caught(end) {
			return by, tries, why, nil
		}
		missed = append(missed, fmt.Sprintf("%s: %s %s", by, end, why))
		if end != passed {
			return by, tries, "", fmt.Errorf("a symptom that does not count as caught: %s", missed[len(missed)-1])
		}
	}
	return by, maxTries, "", fmt.Errorf("not caught:\n%s", strings.Join(missed, "\n"))
}

// caught reports whether the outcome is one that the bug is expected to cause.
func (m *mutant) caught(o outcome) bool { return o == failed || o == m.symptom }

// overlay writes the changed files and the overlay map for the compiler.
func (m *mutant) overlay(root, dir string) (string, error) {
	changed, err := m.sources(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range changed {
		full := filepath.Join(root, filepath.FromSlash(file))
		replace[full] = filepath.Join(dir, fmt.Sprint(len(replace))+".go")
		if err := os.WriteFile(replace[full], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// environment makes every go command use the overlay, including those that tests run to build programs.
func environment(overlay string) []string {
	env := os.Environ()
	if overlay != "" {
		env = append(env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	return env
}

// build builds a package's test binary.
func build(root, pkg, dir, overlay string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	name := filepath.Join(dir, strings.ReplaceAll(pkg[2:], "/", "-")+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", name, pkg)
	cmd.Dir, cmd.Env = root, environment(overlay)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not compile: %w\n%s", pkg, err, out)
	}
	return name, nil
}

// try runs a catcher once.
func try(root string, by catcher, binary string, within time.Duration, overlay string) (outcome, string) {
	out, err := run(root, by, binary, within, overlay)
	return verdict(err == nil, out)
}

func run(root string, by catcher, binary string, within time.Duration, overlay string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within+grace)
	defer cancel()
	args := append([]string{"-test.run=" + by.run, "-test.timeout=" + within.String(), "-test.paniconexit0"}, flags...)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = filepath.Join(root, by.pkg), environment(overlay)
	// Processes that the test started are killed with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil && out.Len() == 0 {
		out.WriteString(err.Error())
	}
	return out.String(), err
}

// controls run each catcher once on the unchanged sources, where it must pass.
type controls struct {
	root, dir string

	mu       sync.Mutex // guards the maps
	binaries map[string]func() (string, error)
	runs     map[catcher]func() error
}

// controlTime bounds a control run. It is not shorter than the longest time that a data file allows.
const controlTime = 5 * time.Minute

// pass returns an error if the catcher does not pass on the unchanged sources.
func (c *controls) pass(by catcher) error {
	c.mu.Lock()
	if c.binaries[by.pkg] == nil {
		c.binaries[by.pkg] = sync.OnceValues(func() (string, error) { return build(c.root, by.pkg, c.dir, "") })
	}
	if c.runs[by] == nil {
		binary := c.binaries[by.pkg]
		c.runs[by] = sync.OnceValue(func() error { return c.run(by, binary) })
	}
	run := c.runs[by]
	c.mu.Unlock()
	return run()
}

// ended matches a test's result: how it ended, and its name.
var ended = regexp.MustCompile(`(?m)^ *--- (PASS|SKIP): (\S+)`)

func (c *controls) run(by catcher, binary func() (string, error)) error {
	name, err := binary()
	if err != nil {
		return err
	}
	out, err := run(c.root, by, name, controlTime, "", "-test.v")
	if end, why := verdict(err == nil, out); end != passed {
		return fmt.Errorf("%s fails without the bug: %s: %s", by, end, why)
	}
	depth := strings.Count(by.run, "/")
	for _, test := range ended.FindAllStringSubmatch(out, -1) {
		if test[1] == "PASS" && strings.Count(test[2], "/") >= depth {
			return nil
		}
	}
	return fmt.Errorf("%s runs no test here: the pattern names none, or all are skipped", by)
}
