package main

import (
	"os"
	"os/signal"
	"syscall"
)

// ending are the signals that end a wait for a lock; all are passed on to a command
// that runs.
var ending = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
}

// passing are passed on to a command that runs, and mean nothing before.
var passing = []syscall.Signal{syscall.SIGWINCH, syscall.SIGCONT}

// signals are what this program was sent.
type signals struct {
	ending  chan os.Signal
	passing chan os.Signal
	suspend chan os.Signal
}

// catchSignals begins to catch. What was ignored when the program started, as under
// nohup, stays ignored, here and in the command.
func catchSignals() *signals {
	s := &signals{
		ending:  make(chan os.Signal, 64),
		passing: make(chan os.Signal, 64),
		suspend: make(chan os.Signal, 1),
	}
	notify(s.ending, ending)
	notify(s.passing, passing)
	// Writing to a closed stderr must be an error, not the end of the watch over the
	// command. Nobody reads this channel.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

func notify(c chan os.Signal, which []syscall.Signal) {
	for _, sig := range which {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// guard begins what holds only while a command runs: stopping this program would stop
// its heartbeats and leave the command running, so SIGTSTP is caught, to stop the
// command first.
func (s *signals) guard() { notify(s.suspend, []syscall.Signal{syscall.SIGTSTP}) }

// ignoreTerminal lets this program write to, and take back, a terminal whose
// foreground the command has. It comes after the start of the command, which would
// inherit it.
func ignoreTerminal() { signal.Ignore(syscall.SIGTTOU) }

// stop gives the signals back their usual meaning.
func (s *signals) stop() {
	signal.Stop(s.ending)
	signal.Stop(s.passing)
	signal.Stop(s.suspend)
}

// pending is a signal that has arrived and ends the wait, if any.
func (s *signals) pending() (syscall.Signal, bool) {
	select {
	case sig := <-s.ending:
		return sig.(syscall.Signal), true
	default:
		return 0, false
	}
}

// signalled is the exit of a run that a signal ended before its command ran.
func signalled(sig syscall.Signal) error { return &failure{code: exitSignal + int(sig)} }
