package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// buildTimeout allows for an empty build cache.
const buildTimeout = 5 * time.Minute

// Programs is the directory of the binaries under test.
type Programs string

// product is the module of the programs.
const product = "github.com/quorumlock/quorumlock"

// Build compiles qlockd and qlock into dir, without the race detector: the tests run the cluster at its real
// speed. It does so in their own module, with the versions of libraries that users get, even for the tests of another
// module. flags are additional compiler flags.
func Build(dir string, flags ...string) (Programs, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", product).Output()
	if err != nil {
		return "", fmt.Errorf("look for the module %s: %w", product, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/qlockd", "./cmd/qlock")...)
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return Programs(dir), nil
}

// Qlock runs qlock and returns its output. If the exit code is not 0, it returns an error with the messages.
func (p Programs) Qlock(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(string(p), "qlock"), args...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("qlock %s: exit code %d: %s", strings.Join(args, " "), exit.ExitCode(), exit.Stderr)
	}
	return string(out), err
}

// QlockFrom runs qlock on a host of a cluster that is Apart, with the endpoints of all nodes.
func (c *Cluster) QlockFrom(ctx context.Context, host string, args ...string) (out string, err error) {
	c.t.Helper()
	args = append([]string{"--endpoints", strings.Join(c.Endpoints(), ",")}, args...)
	err = c.site.in(host, func() (err error) {
		out, err = c.programs.Qlock(ctx, args...)
		return err
	})
	return out, err
}

// qlockd returns the path of the server.
func (p Programs) qlockd() string { return filepath.Join(string(p), "qlockd") }
