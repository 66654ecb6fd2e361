//go:build !linux

package transport

import "syscall"

// hint is for systems that report with each read whether there is more.
type hint struct{}

func giveHints(syscall.RawConn) bool { return false }

func (*hint) read(int, []byte) (n int, more bool, err error) { return 0, true, syscall.ENOSYS }
