package timerslack

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Relaxed is how late the kernel may end a sleep of a relaxed process. Nothing in Quorumlock needs sleeps
// that are exact to the tenth of a millisecond, except the naps of Go's own monitor thread, which checks
// every 20 us for blocked goroutines while there is work. Those naps took a fifth of a node's CPU time when
// it served a single client.
const Relaxed = time.Millisecond

// Relax restarts the process with that slack, unless it already has as much. Call it in the first line of
// main. A thread inherits the slack of the thread that created it, and the monitor thread starts before
// main, so only a new process has the slack from the start. If the slack cannot be set, Relax does nothing.
func Relax() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if timerSlack() >= Relaxed {
		return
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(Relaxed.Nanoseconds()), 0, 0, 0)
	if timerSlack() < Relaxed {
		return // a thread of a real-time class has no slack
	}
	if program, err := os.Executable(); err == nil {
		_ = syscall.Exec(program, os.Args, os.Environ())
	}
}

// timerSlack returns the slack of the calling thread.
func timerSlack() time.Duration {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}
