//go:build !linux

package main

import "os"

// standardError returns where the queue of the log writes.
func standardError() *os.File { return os.Stderr }
