//go:build unix

package main

import (
	"slices"
	"strings"
	"syscall"
)

// onLost is how the command is notified when the lock is lost.
type onLost syscall.Signal

const (
	// terminate is the default.
	terminate = onLost(syscall.SIGTERM)
	// kill ends the command without asking.
	kill = onLost(syscall.SIGKILL)
	// ignore does not notify the command, which continues without the lock.
	ignore = onLost(0)
)

// onLostWords are the values of --on-lost.
var onLostWords = []struct {
	word string
	what onLost
}{
	{"term", terminate}, {"int", onLost(syscall.SIGINT)}, {"hup", onLost(syscall.SIGHUP)}, {"quit", onLost(syscall.SIGQUIT)},
	{"usr1", onLost(syscall.SIGUSR1)}, {"usr2", onLost(syscall.SIGUSR2)}, {"kill", kill}, {"ignore", ignore},
}

// parseOnLost parses a value of --on-lost, in any case and with or without SIG.
func parseOnLost(text string) (onLost, error) {
	word := strings.TrimPrefix(strings.ToLower(text), "sig")
	at := slices.IndexFunc(onLostWords, func(w struct {
		word string
		what onLost
	}) bool {
		return w.word == word
	})
	if at < 0 {
		return 0, usagef("--on-lost %q is none of %s", text, strings.Join(onLostNames, ", "))
	}
	return onLostWords[at].what, nil
}
