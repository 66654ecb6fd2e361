package segment

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// preallocate gives a new file its size, and room on the disk for it.
func preallocate(f *os.File, size int64) error {
	err := again(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return zeros(f, size)
	}
	return err
}

// syncData leaves out what is known of a file beside its content and its size.
func syncData(f *os.File) error {
	err := again(func() error { return unix.Fdatasync(int(f.Fd())) })
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// again repeats a call that a signal came in between.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
