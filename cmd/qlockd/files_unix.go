//go:build unix

package main

import (
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// spareFiles are for the log, the snapshots and the other nodes.
const spareFiles = 256

// hideNewFiles has files that the process makes be for its own user only, whatever the umask
// was that it inherited.
func hideNewFiles() { unix.Umask(0o077) }

// raiseFileLimit makes use of all the file descriptors that the process may have, and
// says if these are fewer than the connections that it was told to take.
func raiseFileLimit(log hclog.Logger, connections int) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("the limit of open files is unknown", "error", err)
		return
	}
	if limit.Cur < limit.Max {
		raised := limit
		raised.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err == nil {
			limit = raised
		}
	}
	if want := uint64(connections + spareFiles); uint64(limit.Cur) < want {
		log.Warn("fewer files may be open than connections taken: raise the limit (ulimit -n) or lower --max-connections",
			"limit", limit.Cur, "wanted", want)
	}
}
