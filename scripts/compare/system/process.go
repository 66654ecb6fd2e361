package system

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// process is one running server.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	// done is closed when the process has ended; err is its result.
	done chan struct{}
	err  error
}

// start starts a server whose messages go to a file. It has its own process group, so that an interrupt from
// the terminal reaches only this program, which then ends the server. If this program is killed, the kernel
// kills the server.
func start(name, log string, cmd *exec.Cmd) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the server has its own descriptor by then
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// kill kills the server. Its data is not needed any more, and a graceful end would take time.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended on its own
	<-p.done
}

// ended returns how the server ended on its own, with the end of its log; nil while it runs.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %v\n%s", p.name, p.err, tail(p.log, 10))
	default:
		return nil
	}
}

// tail returns the last lines of a file, for error messages.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// freePorts returns free ports on loopback. Another process could take one before the server does; then the
// server does not start.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // after the loop, so that the ports are distinct
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// loopback returns the address of a port.
func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
