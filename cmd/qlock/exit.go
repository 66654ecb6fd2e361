package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Exit codes, for scripts. With run, the command's own code is returned instead, or 128 plus the number of
// the signal that ended it.
const (
	exitOK            = 0
	exitNo            = 1   // policy can: the identity may not; a question was answered with no
	exitUsage         = 64  // the command line, or a value in it, is wrong
	exitNoSuch        = 66  // no such lock, session or file, or events no longer in memory
	exitNoLeader      = 69  // no serving leader within the timeout, or outcome unknown
	exitInternal      = 70  // anything that should not happen
	exitNotAcquired   = 75  // the lock was not acquired
	exitLost          = 76  // the lock was lost while the command ran
	exitNotHeld       = 77  // the lock is not held
	exitDenied        = 78  // the cluster refuses the credential, or the policy does not allow the request
	exitAtRisk        = 79  // the cluster serves, and would not after the failure of one more voter, or without a node to be stopped
	exitCannotExecute = 126 // the command was found but cannot be executed
	exitNotFound      = 127 // the command was not found
	exitSignal        = 128 // plus the number of the signal
)

// failure is an error with an exit code. cause is nil if there is nothing to print.
type failure struct {
	code  int
	cause error
}

// Error returns the text of the cause.
func (f *failure) Error() string {
	if f.cause == nil {
		return ""
	}
	return f.cause.Error()
}

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.cause }

// failf returns a failure with the formatted text.
func failf(code int, format string, args ...any) error {
	return &failure{code: code, cause: fmt.Errorf(format, args...)}
}

// usagef returns a usage error.
func usagef(format string, args ...any) error { return failf(exitUsage, format, args...) }

// outcomes maps errors of the SDK to an exit code and to advice. The first match counts, so specific errors
// come before the general ones they match.
var outcomes = []struct {
	err  error
	code int
	next string
}{
	{client.ErrInvalidArgument, exitUsage, ""},
	{client.ErrNotFound, exitNoSuch, ""},
	{client.ErrCompacted, exitNoSuch, ""},
	{client.ErrMismatch, exitUsage, "see what it is with qlock show"},

	{client.ErrNotLeader, exitNoLeader, "see qlock status"},
	{client.ErrUncertain, exitNoLeader, "look before you repeat it"},
	{client.ErrUnavailable, exitNoLeader, "start a majority of the nodes, or correct --endpoints"},
	{context.DeadlineExceeded, exitNoLeader, "start a majority of the nodes, or correct --endpoints"},

	{client.ErrNotAcquired, exitNotAcquired, "see who holds it with qlock show"},
	{client.ErrTimeout, exitNotAcquired, "see who holds it with qlock show"},
	{client.ErrCancelled, exitNotAcquired, ""},
	{client.ErrAlreadyHeld, exitNotAcquired, ""},
	{client.ErrAlreadyQueued, exitNotAcquired, ""},
	{client.ErrUpgradeConflict, exitNotAcquired, ""},
	{client.ErrDeadlock, exitNotAcquired, ""},
	{client.ErrResourceExhausted, exitNotAcquired, "try again later, release something, or ask an administrator for a higher limit (see qlock quota)"},

	{client.ErrSessionLost, exitLost, ""},
	{client.ErrForced, exitLost, ""},
	{client.ErrHoldExpired, exitLost, ""},
	{client.ErrNotHeld, exitNotHeld, ""},

	{client.ErrUnauthenticated, exitDenied, "give a valid token with --auth-token-file, or a certificate with --cert and --key"},
	{client.ErrPermissionDenied, exitDenied, "ask whoever administers the cluster for a role"},
	{client.ErrFailedPrecondition, exitInternal, ""},
	{client.ErrUnsupported, exitInternal, "upgrade the cluster's nodes first"},
	{client.ErrStale, exitInternal, ""},
	{client.ErrInternal, exitInternal, "see the leader's log"},
}

// exitCode returns the exit code of the program for err.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.code
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.code
		}
	}
	return exitInternal
}

// explain describes err in one line: what happened, and what to do next.
func explain(err error) string {
	text := wire.PrintableLine(oneLine(err.Error()))
	if f := (*failure)(nil); errors.As(err, &f) {
		return text
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) && o.next != "" {
			return text + "; " + o.next
		}
	}
	return text
}

// oneLine joins the lines of an error and drops the SDK's prefix, since the program adds its own.
func oneLine(text string) string {
	text = strings.ReplaceAll(text, "quorumlock: ", "")
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), "; ")
}
