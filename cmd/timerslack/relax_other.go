//go:build !linux

package timerslack

// Relax is for Linux.
func Relax() {}
