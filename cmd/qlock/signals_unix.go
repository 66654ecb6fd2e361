//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// ending are the signals that end a wait for a lock. All are passed on to a running command.
var ending = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
}

// passing are passed on to a running command and ignored before.
var passing = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT}

// signals receives the signals sent to this program.
type signals struct {
	ending  chan os.Signal
	passing chan os.Signal
	suspend chan os.Signal
}

// catchSignals starts to catch signals. Signals ignored when the program started, as under nohup, remain
// ignored, here and in the command.
func catchSignals() *signals {
	s := &signals{
		ending:  make(chan os.Signal, 64),
		passing: make(chan os.Signal, 64),
		suspend: make(chan os.Signal, 1),
	}
	notify(s.ending, ending)
	notify(s.passing, passing)
	// Writing to a closed stderr must return an error rather than end this process, which supervises the
	// command. The channel is never read.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// guard catches SIGTSTP, which is only needed while a command runs: stopping this program would stop its
// heartbeats and leave the command running, so the command has to be stopped first.
func (s *signals) guard() { notify(s.suspend, []os.Signal{syscall.SIGTSTP}) }

// ignoreTerminal lets this program write to, and take back, a terminal whose foreground the command has.
// Call it after the start of the command, which would inherit it.
func ignoreTerminal() { signal.Ignore(syscall.SIGTTOU) }

// stop restores the default handling of the signals.
func (s *signals) stop() {
	signal.Stop(s.ending)
	signal.Stop(s.passing)
	signal.Stop(s.suspend)
}

// pending returns a signal that has arrived and ends the wait, if there is one.
func (s *signals) pending() (syscall.Signal, bool) {
	select {
	case sig := <-s.ending:
		return sig.(syscall.Signal), true
	default:
		return 0, false
	}
}
