package main

import (
	"os"
	"os/signal"
	"syscall"
)

// notify catches signals, except for those that were ignored when the program started.
func notify(c chan os.Signal, which []os.Signal) {
	for _, sig := range which {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// signalled returns the error of a run that a signal ended before its command ran.
func signalled(sig syscall.Signal) error { return &failure{code: exitSignal + int(sig)} }
