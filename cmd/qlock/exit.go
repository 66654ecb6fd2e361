package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Exit codes, for scripts. Under run the command's own code, or 128 plus the signal
// that ended it, is passed on instead.
const (
	exitOK            = 0
	exitUsage         = 64  // the command line, or a value in it, is wrong
	exitNoSuch        = 66  // no such lock, session or file, or events that are over
	exitNoLeader      = 69  // no serving leader within the time-out, or outcome unknown
	exitInternal      = 70  // anything that should not happen
	exitNotAcquired   = 75  // the lock was not acquired
	exitLost          = 76  // the lock was lost while the command ran
	exitNotHeld       = 77  // the lock is not held
	exitCannotExecute = 126 // the command was found but cannot be executed
	exitNotFound      = 127 // the command was not found
	exitSignal        = 128 // plus the signal's number
)

// failure is an error that knows its exit code. Its cause says what happened, and
// may be nil: then there is nothing to say.
type failure struct {
	code  int
	cause error
}

// Error is the cause's text.
func (f *failure) Error() string {
	if f.cause == nil {
		return ""
	}
	return f.cause.Error()
}

// Unwrap is the cause.
func (f *failure) Unwrap() error { return f.cause }

// failf is a failure with a text of its own.
func failf(code int, format string, args ...any) error {
	return &failure{code: code, cause: fmt.Errorf(format, args...)}
}

// usagef is a mistake in the command line.
func usagef(format string, args ...any) error { return failf(exitUsage, format, args...) }

// outcomes maps what the SDK returns to an exit code and to what to do next. The
// first match counts, so reasons stand before the errors that they are kinds of.
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
	{client.ErrUnavailable, exitNoLeader, "check --endpoints and qlock status"},
	{context.DeadlineExceeded, exitNoLeader, "check --endpoints and qlock status"},

	{client.ErrNotAcquired, exitNotAcquired, "see who holds it with qlock show"},
	{client.ErrTimeout, exitNotAcquired, "see who holds it with qlock show"},
	{client.ErrCancelled, exitNotAcquired, ""},
	{client.ErrAlreadyHeld, exitNotAcquired, ""},
	{client.ErrAlreadyQueued, exitNotAcquired, ""},
	{client.ErrUpgradeConflict, exitNotAcquired, ""},
	{client.ErrDeadlock, exitNotAcquired, ""},
	{client.ErrResourceExhausted, exitNotAcquired, "try again later or raise the limit"},

	{client.ErrSessionLost, exitLost, ""},
	{client.ErrForced, exitLost, ""},
	{client.ErrHoldExpired, exitLost, ""},
	{client.ErrNotHeld, exitNotHeld, ""},

	{client.ErrPermissionDenied, exitInternal, ""},
	{client.ErrFailedPrecondition, exitInternal, ""},
	{client.ErrUnsupported, exitInternal, "upgrade the cluster's nodes first"},
	{client.ErrStale, exitInternal, ""},
	{client.ErrInternal, exitInternal, "see the leader's log"},
}

// exitCode is the program's exit code for err.
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

// explain is one line about err: what happened, and what to do next.
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

// oneLine joins an error's lines and drops the SDK's prefix, which repeats the program's.
func oneLine(text string) string {
	text = strings.ReplaceAll(text, "quorumlock: ", "")
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), "; ")
}
