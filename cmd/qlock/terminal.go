package main

import (
	"os"
	"os/signal"
	"strconv"
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

// suspendJob stops this program's whole process group, as the shell expects of a job whose
// command was stopped at the terminal, and returns when it is continued. Where no shell could
// continue it, it returns at once.
func suspendJob() {
	if !orphaned() {
		stopUntilContinued(0)
	}
}

// suspendProcess stops this process alone, and returns when it is continued. A script that
// started it may be in the same process group, and goes on.
func suspendProcess() { stopUntilContinued(os.Getpid()) }

// stopUntilContinued sends SIGSTOP, which does what SIGTSTP would: once a Go program has
// caught that one, it cannot have its usual effect any more.
func stopUntilContinued(pid int) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	select {
	case <-continued:
	case <-time.After(100 * time.Millisecond): // the stop may come a moment after the call
	}
}

// orphaned tells whether this program's process group has no shell that could
// continue it: no ancestor outside the group, in the same session.
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

// parent is a process's parent, 0 if there is none or nobody knows.
func parent(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	stat, _ := parseStat(text)
	return stat.parent
}
