// Package timerslack lets the kernel delay the end of a process's sleeps slightly, so that one wake-up can
// end several: see decision 0023.
package timerslack
