//go:build unix

package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// hideNewFiles makes files created by the process private to its user, whatever umask it inherited.
func hideNewFiles() { unix.Umask(0o077) }

// raiseFileLimit raises the limit of open files as far as allowed. It returns a warning if that is too low.
func raiseFileLimit(wanted int) (warning string) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Sprintf("the limit of open files is unknown: %v", err)
	}
	if limit.Cur < limit.Max {
		raised := limit
		raised.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err == nil {
			limit = raised
		}
	}
	if uint64(limit.Cur) < uint64(wanted) {
		return fmt.Sprintf("fewer files may be open (%d) than the limits of connections need (%d): raise the limit (ulimit -n) or lower --max-connections", limit.Cur, wanted)
	}
	return ""
}
