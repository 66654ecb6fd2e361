package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// turn is how long the clients of one version run before those of the other one do. The speed of a virtual machine can
// change by half within seconds: turns are short so that both versions get the same share of each speed.
const turn = 200 * time.Millisecond

// ofBoth is how often the window fits into the time in which clients of both versions run in turns.
const ofBoth = 4

// version is this tree or the base commit, and its cluster.
type version struct {
	name, bin string
	cluster   *system.Cluster
}

// uncachedLoads are the workloads of "qlock bench" that are compared with the base commit.
var uncachedLoads = []struct {
	name string
	args []string
}{
	{"pairs/1", []string{"pairs", "--sessions", "1"}},
	{"pairs/16", []string{"pairs", "--sessions", "16"}},
	{"pairs/128", []string{"pairs", "--sessions", "128"}},
	{"shared", []string{"pairs", "--sessions", "1024", "--connections", "16"}},
	{"hot/16", []string{"hot", "--sessions", "16"}},
}

// uncached measures locks that are not cached, with a cluster of this tree beside one of the base commit.
func (m *measurement) uncached(ctx context.Context, baseFirst bool) error {
	versions := []*version{{name: "now", bin: m.bin}, {name: "before", bin: m.base}}
	if baseFirst {
		slices.Reverse(versions)
	}
	return m.onCluster(ctx, versions[0].bin, func(ctx context.Context, c *system.Cluster) error {
		versions[0].cluster = c
		return m.onCluster(ctx, versions[1].bin, func(ctx context.Context, c *system.Cluster) error {
			versions[1].cluster = c
			for _, load := range uncachedLoads {
				if err := m.beside(ctx, versions, load.name, load.args); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// beside measures a workload with both versions in turns.
func (m *measurement) beside(ctx context.Context, versions []*version, name string, args []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	commands, outputs := make([]*exec.Cmd, len(versions)), make([]bytes.Buffer, len(versions))
	for i, v := range versions {
		commands[i] = benchCommand(ctx, v.bin, v.cluster, time.Duration(len(versions))*m.warmUp, ofBoth*m.window, args...)
		commands[i].Stdout = &outputs[i]
	}
	if err := runInTurns(commands, cancel); err != nil {
		return err
	}
	for i, v := range versions {
		r, err := reportOf(commands[i], outputs[i].Bytes())
		if err != nil {
			return err
		}
		// The clients of each version ran in its share of the time.
		m.figures.add(v.name+"/"+name, float64(len(versions))*r.PerSecond)
	}
	return nil
}

// runInTurns runs commands until all have ended, one at a time, while the others are stopped. cancel ends all of them.
func runInTurns(commands []*exec.Cmd, cancel func()) (err error) {
	ended, running := make(chan error), 0
	for i, cmd := range commands {
		if failed := cmd.Start(); failed != nil {
			cancel()
			err = errors.Join(err, failed)
			break
		}
		running++
		go func() { ended <- wait(cmd) }()
		if i > 0 {
			err = errors.Join(err, send(cmd, syscall.SIGSTOP))
		}
	}
	next := time.NewTicker(turn)
	defer next.Stop()
	for now := 0; running > 0; {
		select {
		case failed := <-ended:
			running--
			if failed != nil {
				cancel()
				err = errors.Join(err, failed)
			}
		case <-next.C:
			stop := send(commands[now], syscall.SIGSTOP)
			now = (now + 1) % len(commands)
			err = errors.Join(err, stop, send(commands[now], syscall.SIGCONT))
		}
	}
	return err
}

func wait(cmd *exec.Cmd) error {
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}

// send sends a signal to the process of a command, unless it has ended.
func send(cmd *exec.Cmd, signal os.Signal) error {
	if cmd.Process == nil { // another command could not be started
		return nil
	}
	if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return nil
}
