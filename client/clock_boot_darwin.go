package client

import "golang.org/x/sys/unix"

// suspendClock is the clock that includes suspended time: on macOS, CLOCK_MONOTONIC does.
const suspendClock = unix.CLOCK_MONOTONIC
