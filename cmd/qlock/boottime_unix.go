//go:build unix && !linux

package main

import "golang.org/x/sys/unix"

// bootClock is the clock that includes suspended time, as far as the system has one: that of macOS does.
const bootClock = unix.CLOCK_MONOTONIC
