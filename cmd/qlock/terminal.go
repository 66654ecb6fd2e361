//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal. Its foreground passes between this program's process group and the
// command's, so that Ctrl-C, Ctrl-Z and reading work as if the shell had started the command itself.
type terminal struct {
	fd    int
	own   int  // this program's process group
	given bool // this program gave the foreground to the command's group
}

// terminalOf returns stdin if it is the controlling terminal, or nil.
func terminalOf(stdin *os.File) *terminal {
	t := &terminal{fd: int(stdin.Fd()), own: syscall.Getpgrp()}
	if _, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil {
		return nil
	}
	return t
}

// ours reports whether this program has the foreground. A background job does not have it and must not take
// it.
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

// take takes back the foreground if it was given. SIGTTOU must be ignored, because it would stop this
// program.
func (t *terminal) take() {
	if t != nil && t.given {
		t.given = false
		// This fails only if the terminal is gone, and then there is nothing to take.
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
	}
}

// suspendJob stops this program's whole process group, as the shell expects of a job whose command was
// stopped at the terminal, and returns when it is continued. If no shell could continue it, suspendJob
// returns immediately.
func suspendTask() {
	if !orphaned() {
		stopUntilContinued(0)
	}
}

// suspendProcess stops only this process, and returns when it is continued. A script that started it may be
// in the same process group, and must go on.
func suspendProcess() { stopUntilContinued(os.Getpid()) }

// stopUntilContinued sends SIGSTOP, which has the effect that SIGTSTP normally has. Once a Go program has
// caught SIGTSTP, the default effect cannot be restored.
func stopUntilContinued(pid int) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	select {
	case <-continued:
	case <-time.After(100 * time.Millisecond): // the stop may take effect shortly after the call
	}
}

// orphaned reports whether this program's process group has no shell that could continue it, that is, no
// ancestor outside the group in the same session.
func orphaned() bool {
	pgrp := syscall.Getpgrp()
	session, err := unix.Getsid(0)
	if err != nil {
		return true
	}
	for pid := syscall.Getppid(); pid > 0; pid = parent(pid) {
		if theirs, err := unix.Getsid(pid); err != nil || theirs != session {
			return true
		}
		if theirs, err := syscall.Getpgid(pid); err == nil && theirs != pgrp {
			return false
		}
	}
	return true
}

// parent returns the parent of a process, or 0 if there is none or it is unknown.
func parent(pid int) int {
	stat, _ := readStat(pid)
	return stat.parent
}
