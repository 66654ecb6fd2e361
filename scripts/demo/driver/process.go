package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is a child process. It is ended by its own handle, never by a name.
type process struct {
	name string
	cmd  *exec.Cmd
	// done is closed when the process has ended; err is its result.
	done chan struct{}
	err  error
}

// start starts a program in its own process group, so that an interrupt from the terminal reaches only the
// driver, which then ends its children in order.
func start(name string, cmd *exec.Cmd, log string) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := startLogged(cmd, log); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop freezes the process; resume continues it.
func (p *process) stop() error   { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// kill kills the process with SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended on its own
	<-p.done
}

// end asks the process to end, and kills it if that takes too long.
func (p *process) end(timeout time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended on its own
	select {
	case <-p.done:
	case <-time.After(timeout):
		p.kill()
	}
}

// startLogged starts a command whose standard error is appended to a file, and its standard output too unless
// it is already used.
func startLogged(cmd *exec.Cmd, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() // the child has its own descriptor by then
	cmd.Stderr = file
	if cmd.Stdout == nil {
		cmd.Stdout = file
	}
	return cmd.Start()
}
