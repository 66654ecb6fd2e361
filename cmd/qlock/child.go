//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// child is the command: the first process of its own process group.
type child struct {
	pid     int
	exited  chan syscall.WaitStatus // receives once
	stopped chan struct{}           // it was stopped, by a signal or the terminal
}

// startChild starts the program. If this program has the terminal's foreground, the command's group gets it
// before the command runs.
func startChild(path string, argv, environ []string, files console, tty *terminal) (*child, error) {
	attr := &syscall.ProcAttr{
		Env:   environ,
		Files: []uintptr{files.in.Fd(), files.out.Fd(), files.err.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	dieWithParent(attr.Sys)
	if tty != nil && tty.ours() {
		attr.Sys.Foreground, attr.Sys.Ctty, tty.given = true, tty.fd, true
	}
	c := &child{exited: make(chan syscall.WaitStatus, 1), stopped: make(chan struct{}, 1)}
	started := make(chan error)
	go c.own(path, argv, attr, started)
	return c, <-started
}

// own starts the process and waits for it. The kernel sends the death signal when the thread that forked
// exits, not when the process does, so this goroutine stays on its thread.
func (c *child) own(path string, argv []string, attr *syscall.ProcAttr, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec(path, argv, attr)
	c.pid = pid
	started <- err
	if err == nil {
		c.reap()
	}
}

// reap waits until the child has exited, and notifies when it is stopped.
func (c *child) reap() {
	target := c.pid
	if os.Getpid() == 1 {
		target = -1 // as pid 1 of a container, reap every orphan
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(target, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR || pid != c.pid && err == nil:
		case err != nil:
			panic("wait for the command: " + err.Error())
		case status.Stopped():
			select {
			case c.stopped <- struct{}{}:
			default:
			}
		default:
			c.exited <- status
			return
		}
	}
}

// code returns the exit code that stands for status.
func code(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}
