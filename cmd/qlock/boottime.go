//go:build unix

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns the time since boot, including suspended time.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		panic("read the clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
