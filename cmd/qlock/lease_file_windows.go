package main

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// ordinaryFile are flags for opening a file that may be something else.
const ordinaryFile = 0

// lockedByOther locks a file until it is closed, and reports whether another process has locked it.
func lockedByOther(f *os.File) bool {
	const exclusive = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	// The locked byte is far behind the content, which others may read.
	err := windows.LockFileEx(windows.Handle(f.Fd()), exclusive, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1})
	return errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}
