package timerslack

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Relaxed is how much later than asked for the kernel may end a sleep of a process that is
// relaxed. Nothing in ours is meant to the tenth of a millisecond but the naps of Go's own
// monitor, a thread that looks every 20 us whether something is stuck for as long as there
// is work. They took a fifth of a node's processor time when one client was all there was
// to do.
const Relaxed = time.Millisecond

// Relax has the process begin anew with that slack, unless it has as much: it is for the
// first line of a program. A thread gets the slack of the one that made it, and the monitor
// is made before main begins, so only a process can have it from its beginning. What cannot
// be had is done without.
func Relax() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if timerSlack() >= Relaxed {
		return
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(Relaxed.Nanoseconds()), 0, 0, 0)
	if timerSlack() < Relaxed {
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
