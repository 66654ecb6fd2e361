package main

import (
	"slices"
	"strings"
	"syscall"
)

// onLost is what the command is told when the lock is lost.
type onLost syscall.Signal

const (
	// term is what a run does unless told otherwise.
	term = onLost(syscall.SIGTERM)
	// kill asks nobody.
	kill = onLost(syscall.SIGKILL)
	// ignore tells the command nothing: it goes on without the lock.
	ignore = onLost(0)
)

// onLostWords are the values of --on-lost.
var onLostWords = []struct {
	word string
	what onLost
}{
	{"term", term}, {"int", onLost(syscall.SIGINT)}, {"hup", onLost(syscall.SIGHUP)}, {"quit", onLost(syscall.SIGQUIT)},
	{"usr1", onLost(syscall.SIGUSR1)}, {"usr2", onLost(syscall.SIGUSR2)}, {"kill", kill}, {"ignore", ignore},
}

// onLostNames are the values of --on-lost, for completion and complaints.
func onLostNames() []string {
	var names []string
	for _, w := range onLostWords {
		names = append(names, w.word)
	}
	return names
}

// parseOnLost reads a value of --on-lost, in any case and with or without SIG.
func parseOnLost(text string) (onLost, error) {
	word := strings.TrimPrefix(strings.ToLower(text), "sig")
	at := slices.IndexFunc(onLostWords, func(w struct {
		word string
		what onLost
	}) bool {
		return w.word == word
	})
	if at < 0 {
		return 0, usagef("--on-lost %q is none of %s", text, strings.Join(onLostNames(), ", "))
	}
	return onLostWords[at].what, nil
}
