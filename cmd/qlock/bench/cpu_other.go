//go:build !unix

package bench

import "time"

// ownCPU returns 0: the CPU time is not measured on this system.
func ownCPU() time.Duration { return 0 }
