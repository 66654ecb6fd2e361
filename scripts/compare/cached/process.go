package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// process is a running client process.
type process struct {
	cmd      *exec.Cmd
	in       io.Closer
	tasks    *json.Encoder
	outcomes *json.Decoder
}

// startClient starts a client process of a cluster.
func startClient(ctx context.Context, c *system.Cluster, cached bool) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, clientRole, "--endpoints", strings.Join(c.Endpoints, ","), fmt.Sprintf("--cached=%v", cached))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, in, json.NewEncoder(in), json.NewDecoder(out)}, nil
}

// begin sends a task. Its result is that of finish.
func (p *process) begin(t task) error { return p.tasks.Encode(t) }

func (p *process) finish() (o outcome, err error) {
	if err := p.outcomes.Decode(&o); err != nil {
		return o, fmt.Errorf("a client process ended: %w", err)
	}
	if o.Error != "" {
		return o, errors.New(o.Error)
	}
	return o, nil
}

// do carries out a task.
func (p *process) do(t task) (outcome, error) {
	if err := p.begin(t); err != nil {
		return outcome{}, err
	}
	return p.finish()
}

// end closes the client's session and waits for its end.
func (p *process) end() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// withClients calls do with client processes, and ends them.
func withClients(ctx context.Context, c *system.Cluster, n int, cached bool, do func([]*process) error) (err error) {
	var all []*process
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.end())
		}
	}()
	for range n {
		p, err := startClient(ctx, c, cached)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	return do(all)
}

// benchReport is what is used of the report of "qlock bench".
type benchReport struct {
	PerSecond float64
	Errors    map[string]int64
	Servers   struct{ Cores *float64 }
}

// benchCommand returns the command line of "qlock bench" of the programs in bin.
func benchCommand(ctx context.Context, bin string, c *system.Cluster, warmUp, window time.Duration, args ...string) *exec.Cmd {
	args = append([]string{"--endpoints", strings.Join(c.Endpoints, ","), "-o", "json", "bench"}, args...)
	args = append(args, "--duration", window.String(), "--warm-up", warmUp.String())
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "qlock"), args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// reportOf decodes what a command of benchCommand printed.
func reportOf(cmd *exec.Cmd, out []byte) (r benchReport, err error) {
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("%s: %w: %q", strings.Join(cmd.Args, " "), err, out)
	}
	if len(r.Errors) > 0 || r.PerSecond == 0 || r.Servers.Cores == nil {
		return r, fmt.Errorf("%s: %s", strings.Join(cmd.Args, " "), out)
	}
	return r, nil
}

// bench runs "qlock bench" of this tree.
func (o *options) bench(ctx context.Context, c *system.Cluster, warmUp time.Duration, args ...string) (r benchReport, err error) {
	cmd := benchCommand(ctx, o.bin, c, warmUp, o.window, args...)
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return reportOf(cmd, out)
}
