package client

import "golang.org/x/sys/unix"

// suspendClock is the clock that includes suspended time.
const suspendClock = unix.CLOCK_BOOTTIME
