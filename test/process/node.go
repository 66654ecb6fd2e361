package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// node is one place of a cluster: its name, addresses and files outlive its processes.
type node struct {
	id                 string
	peer, client, http string // addresses
	dir                string // its data
	log                string // file, one for all of its processes
	cluster            string // what --cluster said at its first start

	running *running // the last process; nil before the first
}

// running is a process and its end.
type running struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// start runs the node.
func (n *node) start(qlockd string, flags []string) error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	args := append([]string{
		"--id", n.id, "--data-dir", n.dir, "--cluster", n.cluster,
		"--peer-addr", n.peer, "--client-addr", n.client, "--http-addr", n.http,
	}, flags...)
	cmd := exec.Command(qlockd, args...)
	cmd.Dir = filepath.Dir(n.dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	// A pipe rather than the file itself: if this process is ended by force, the node
	// does not outlive its next line.
	cmd.Stderr = struct{ io.Writer }{log}
	if err := cmd.Start(); err != nil {
		_ = log.Close()
		return err
	}
	r := &running{cmd: cmd, done: make(chan struct{})}
	n.running = r
	go func() {
		_ = cmd.Wait() // whoever wants to know looks at the state
		_ = log.Close()
		close(r.done)
	}()
	return nil
}

// signal sends to the node's process, by its handle.
func (n *node) signal(sig syscall.Signal) error {
	if n.running == nil {
		return fmt.Errorf("%s was never started", n.id)
	}
	return n.running.cmd.Process.Signal(sig)
}

// alive tells whether the node has a process that was not waited for yet.
func (n *node) alive() bool {
	if n.running == nil {
		return false
	}
	select {
	case <-n.running.done:
		return false
	default:
		return true
	}
}

// wait waits for the end of the node's process and returns its exit code, -1 after a
// signal.
func (n *node) wait(within time.Duration) (code int, err error) {
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-n.running.done:
		return n.running.cmd.ProcessState.ExitCode(), nil
	case <-late.C:
		return 0, fmt.Errorf("%s (pid %d) has not ended within %v", n.id, n.running.cmd.Process.Pid, within)
	}
}
