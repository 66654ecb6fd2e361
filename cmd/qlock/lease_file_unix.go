//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ordinaryFile are flags for opening a file that may be something else.
const ordinaryFile = unix.O_NOFOLLOW | unix.O_NONBLOCK

// lockedByOther locks a file until it is closed, and reports whether another process has locked it.
func lockedByOther(f *os.File) bool {
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), syscall.EWOULDBLOCK)
}
