// Package timerslack lets the kernel end the sleeps of a process a little later, to end
// several at once: see decision 0023.
package timerslack
