//go:build !linux && !darwin

package client

// systemClock returns Go's monotonic clock. If that stops during suspend, only fencing tokens protect
// against a holder that resumes.
func systemClock() Clock { return RuntimeClock() }
