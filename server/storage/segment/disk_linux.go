package segment

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// preallocate sets the size of a new file and allocates its space on the disk.
func preallocate(f *os.File, size int64) error {
	err := again(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return zeros(f, size)
	}
	return err
}

// syncData syncs the content and the size of a file, but no other metadata.
func syncData(f *os.File) error {
	err := again(func() error { return unix.Fdatasync(int(f.Fd())) })
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// again repeats a call that was interrupted by a signal.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
