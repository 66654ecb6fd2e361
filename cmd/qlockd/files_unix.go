//go:build unix

package main

import (
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// reservedFiles is the number of descriptors for the log, the snapshots and connections to other nodes.
const reservedFiles = 256

// hideNewFiles makes files created by the process private to its user, whatever umask it inherited.
func hideNewFiles() { unix.Umask(0o077) }

// raiseFileLimit raises the limit of open files as far as allowed, and logs a warning if that is too low
// for the configured number of connections.
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
	if want := uint64(connections + reservedFiles); uint64(limit.Cur) < want {
		log.Warn("fewer files may be open than connections taken: raise the limit (ulimit -n) or lower --max-connections",
			"limit", limit.Cur, "wanted", want)
	}
}
