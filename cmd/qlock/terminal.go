package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, whose foreground passes between this program's
// process group and the command's, so that Ctrl-C, Ctrl-Z and reading work as if the
// command had been started by the shell itself.
type terminal struct {
	fd    int
	own   int  // this program's process group
	given bool // the command's group has the foreground from us
}

// terminalOf is stdin if that is the controlling terminal, and nil otherwise.
func terminalOf(stdin *os.File) *terminal {
	t := &terminal{fd: int(stdin.Fd()), own: syscall.Getpgrp()}
	if _, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil {
		return nil
	}
	return t
}

// ours tells whether this program has the foreground. A background job has not, and
// must not take it.
func (t *terminal) ours() bool {
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && pgrp == t.own
}

// give makes the command's group the foreground group if this program's was.
func (t *terminal) give(g group) {
	if t != nil && t.ours() {
		t.given = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, int(g)) == nil
	}
}

// take takes back what was given. SIGTTOU must be ignored, or it would stop us.
func (t *terminal) take() {
	if t != nil && t.given {
		t.given = false
		// It fails only if the terminal is gone; then there is nothing to take.
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
	}
}

// suspend stops this program's own process group, as the shell expects of a job whose
// command was stopped, and returns when it is continued, or at once where nobody could
// continue it: the kernel ignores SIGTSTP for a group without a shell.
func suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	signal.Reset(syscall.SIGTSTP)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(100 * time.Millisecond):
	}
}
