//go:build !linux

package client

// systemClock is Go's monotonic clock. Where it stands still during suspend, only
// fencing tokens protect against what a suspended holder does when it wakes up.
func systemClock() Clock { return RuntimeClock() }
