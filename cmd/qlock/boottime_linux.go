package main

import "golang.org/x/sys/unix"

// bootClock is the clock that includes suspended time.
const bootClock = unix.CLOCK_BOOTTIME
