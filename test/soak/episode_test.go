package soak_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/netns"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/workload"
)

// builds are the programs that episodes run, each built on first use.
type builds struct {
	plain, moved func() (process.Programs, error)
	virtual      func() (string, error) // the tests in virtual time
	apart        bool                   // whether network namespaces are available
	keep         string                 // the directory of this run's failed episodes
}

func build(t *testing.T) *builds {
	t.Helper()
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	kept, err := keptIn(*keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(kept) }) // unless an episode has left files
	if err := netns.Unable(); err != nil {
		fmt.Println("without nodes that are apart:", err)
	}
	return &builds{
		plain: sync.OnceValues(func() (process.Programs, error) { return process.Build(dirs[0]) }),
		moved: sync.OnceValues(func() (process.Programs, error) { return process.BuildWithWalls(dirs[1]) }),
		virtual: sync.OnceValues(func() (string, error) {
			program := filepath.Join(dirs[2], "virtual.test")
			out, err := exec.Command("go", "test", "-c", "-o", program, "../virtual").CombinedOutput()
			if err != nil {
				err = fmt.Errorf("build the tests in virtual time: %w\n%s", err, out)
			}
			return program, err
		}),
		apart: netns.Unable() == nil,
		keep:  kept,
	}
}

// keptIn creates the directory. It creates a new one if dir is empty, since two concurrent runs must not
// share files.
func keptIn(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "quorumlock-soak-")
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// dir returns the directory for an episode's files, which is removed if the episode succeeds.
func (b *builds) dir(seed uint64) string { return filepath.Join(b.keep, fmt.Sprint(seed)) }

// episode runs one cluster and injects a few faults.
func (b *builds) episode(t *testing.T, seed uint64, sum *sum) {
	p := draw(seed, b.apart)
	p.opts.Dir = b.dir(seed)
	if err := errors.Join(os.RemoveAll(p.opts.Dir), os.MkdirAll(p.opts.Dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	e := &outcome{plan: p, started: time.Now()}
	defer func() {
		if !t.Failed() {
			_ = os.RemoveAll(p.opts.Dir)
		}
		sum.add(t, e)
	}()
	programs, err := b.plain()
	if p.opts.Walls {
		programs, err = b.moved()
	}
	if err != nil {
		t.Fatal(err)
	}
	c := process.StartWith(t, programs, p.opts)
	e.before = sizes(t, c)
	trial := process.Try(t, c, seed, p.load())
	for _, n := range p.nemeses {
		c.Pass(p.rest())
		e.struck = append(e.struck, struck{n.Name, trial.Strike(n, p.random)})
		if p.random.IntN(3) > 0 {
			trial.Recover()
		}
	}
	trial.Recover()
	c.Pass(p.rest())
	e.did = trial.Finish()
	e.after = sizes(t, c)
	e.judged = trial.Judge()
}

// load returns the usual options, with a long TTL if there are storms: a storm of 10,000 clients can block
// others for a long time.
func (p plan) load() (opts workload.Options) {
	if p.opts.Storms {
		opts.TTL = time.Minute
	}
	return opts
}

// rest returns how long the load runs without faults.
func (p plan) rest() time.Duration {
	return 500*time.Millisecond + time.Duration(p.random.IntN(1_500))*time.Millisecond
}

// runVirtual runs every test of clusters in virtual time with one seed.
func (b *builds) runVirtual(t *testing.T, seed uint64, sum *sum) {
	started := time.Now()
	program, err := b.virtual()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.timeout", "10m", "-seed", fmt.Sprint(seed))
	cmd.Dir = "../virtual"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("seed %d in virtual time: %v\n%s", seed, err, out)
	}
	sum.addVirtual(t, seed, time.Since(started))
}
