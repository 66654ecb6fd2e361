//go:build !unix

package main

import (
	"os"
	"syscall"
)

// ending are the signals that end a wait for a lock.
var ending = []os.Signal{os.Interrupt, syscall.SIGTERM}
