package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// slack is how much later than asked for the kernel may end a sleep of this process, to
// end several at once. Nothing here is meant to the tenth of a millisecond but the naps of
// Go's own monitor, a thread that looks every 20 us whether something is stuck for as long
// as there is work. They took a fifth of a node's processor time when one client was all
// there was to do; see decision 0023.
const slack = time.Millisecond

// relaxTimers has the process begin anew with that slack, unless it has as much. A thread
// gets the slack of the one that made it, and the monitor is made before main begins, so
// only a process can have it from its beginning. What cannot be had is done without.
func relaxTimers() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if timerSlack() >= slack {
		return
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0)
	if timerSlack() < slack {
		return // a thread of a real-time class has none
	}
	if program, err := os.Executable(); err == nil {
		_ = syscall.Exec(program, os.Args, os.Environ())
	}
}

// timerSlack is that of the calling thread.
func timerSlack() time.Duration {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}
