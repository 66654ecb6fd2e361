package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// standardError returns where the queue of the log writes. If that is a pipe, descriptor 2 becomes another opening of it,
// which never blocks: the Go runtime reports a panic there itself, after it has stopped all goroutines, and a pipe that
// nobody reads would keep the process from ending.
func standardError() *os.File {
	var stat unix.Stat_t
	if unix.Fstat(unix.Stderr, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return os.Stderr
	}
	unblocked, err := unix.Open("/proc/self/fd/2", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.Stderr // it belongs to another user, or has no reader
	}
	defer unix.Close(unblocked)
	waits, err := unix.FcntlInt(uintptr(unix.Stderr), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return os.Stderr
	}
	if err := unix.Dup3(unblocked, unix.Stderr, 0); err != nil {
		unix.Close(waits)
		return os.Stderr
	}
	return os.NewFile(uintptr(waits), os.Stderr.Name())
}
