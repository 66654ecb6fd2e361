//go:build !linux

package timerslack

// Relax does nothing: timer slack exists only on Linux.
func Relax() {}
