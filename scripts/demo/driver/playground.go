package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// playground implements "up" and "down": three nodes that outlive this program, with their data, logs and
// process IDs in one directory.
func playground(ctx context.Context, verb string, args []string) error {
	flags := flag.NewFlagSet(verb, flag.ExitOnError)
	bin := flags.String("bin", "bin", "`directory` of the programs")
	dir := flags.String("dir", ".demo", "`directory` for data, logs and process ids")
	_ = flags.Parse(args) // exits on error
	path, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	if verb == "down" {
		return down(path)
	}
	nodes := threeNodes(path, playPorts)
	if err := up(ctx, *bin, path, nodes); err != nil {
		return err
	}
	invite(*bin, *dir, nodes)
	return nil
}

// playPorts returns the ports of node i: 7400, 7410 and 7420 for clients, each followed by the peer and the
// HTTP port.
func playPorts(i int) (client, peer, http string) {
	addr := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port+10*i) }
	return addr(7400), addr(7401), addr(7402)
}

// up starts every node that does not run: all of them at first, and later those that died.
func up(ctx context.Context, bin, dir string, nodes []*node) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, n := range nodes {
		if pid, err := readPID(pidFile(dir, n)); err == nil && isNode(pid, n.dir) {
			continue
		}
		if err := portsFree(n); err != nil {
			return err
		}
		if err := detach(n, bin, pidFile(dir, n), nodes); err != nil {
			return err
		}
	}
	return serving(ctx, nodes)
}

func pidFile(dir string, n *node) string { return filepath.Join(dir, n.id+".pid") }

func readPID(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return pid, nil
}

func portsFree(n *node) error {
	for _, addr := range []string{n.client, n.peer, n.http} {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("the playground needs ports 7400 to 7422 of loopback: %w", err)
		}
		_ = listener.Close()
	}
	return nil
}

// detach starts a node in its own session, so that it outlives the terminal.
func detach(n *node, bin, pidFile string, nodes []*node) error {
	cmd := n.command(bin, nodes)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := startLogged(cmd, n.log); err != nil {
		return err
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	return errors.Join(os.WriteFile(pidFile, []byte(pid+"\n"), 0o600), cmd.Process.Release())
}

// serving waits until there is a leader that reaches every node.
func serving(ctx context.Context, nodes []*node) error {
	c, err := client.New(client.Config{Endpoints: endpoints(nodes), Agent: "demo-up"})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := (&cluster{client: c}).await(ctx, allReachable); err != nil {
		return fmt.Errorf("%w\n%s\nmake demo-down ends what runs", err, tail(nodes[0].log, 5))
	}
	return nil
}

func invite(bin, dir string, nodes []*node) {
	fmt.Printf(`Three nodes are up. Next:

  export QLOCK_ENDPOINTS=%[1]s
  %[2]s/qlock status
  %[2]s/qlock run orders/42 -- sh -c 'echo "I hold $QLOCK_NAME, token $QLOCK_TOKEN"; sleep 30' &
  %[2]s/qlock run orders/42 -- echo "my turn" &
  %[2]s/qlock show orders/42
  curl -s -H 'Content-Type: application/json' -d '{}' http://%[3]s/quorumlock.v1.ClusterService/Status

  kill -9 $(cat %[4]s/n1.pid)   a node dies; if it led, another leads about a second later
  make demo-up                    start it again
  make demo-down                  end all and remove %[4]s
`, strings.Join(endpoints(nodes), ","), bin, nodes[0].http, dir)
}

// down ends the nodes of dir by their process IDs, and removes dir.
func down(dir string) error {
	pids, err := filepath.Glob(filepath.Join(dir, "*.pid"))
	if err != nil {
		return err
	}
	for _, path := range pids {
		pid, err := readPID(path)
		if err != nil {
			return err
		}
		if err := endPID(pid, strings.TrimSuffix(path, ".pid")); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// endPID ends the process if it is still the node with that data directory, since the process ID may have
// been reused.
func endPID(pid int, dataDir string) error {
	for attempt := range 100 {
		if !isNode(pid, dataDir) {
			return nil
		}
		sig := syscall.SIGTERM
		if attempt > 50 {
			sig = syscall.SIGKILL
		}
		if attempt == 0 || attempt == 51 {
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("process %d: %w", pid, err)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("process %d does not end", pid)
}

func isNode(pid int, dataDir string) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil {
		return strings.Contains(string(cmdline), dataDir)
	}
	if _, missing := os.Stat("/proc/self/cmdline"); missing == nil {
		return false
	}
	return syscall.Kill(pid, 0) == nil // no /proc on this system: trust the file
}
