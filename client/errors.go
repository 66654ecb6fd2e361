package client

import (
	"context"
	"errors"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// StatusError is an answer of the cluster other than success. It matches, by
// errors.Is, the sentinel of its status.
type StatusError struct {
	Status wire.Status_Code
	// Message is for people and may be empty.
	Message string
}

// Error names the status and what the cluster said about it.
func (e *StatusError) Error() string {
	text := statusTexts[e.Status]
	if text == "" {
		text = e.Status.String()
	}
	if e.Message == "" {
		return "quorumlock: " + text
	}
	return "quorumlock: " + text + ": " + e.Message
}

// Is reports whether target is the sentinel of the same status.
func (e *StatusError) Is(target error) bool {
	t, ok := target.(*StatusError)
	return ok && t.Status == e.Status && t.Message == ""
}

// Sentinels, one per status; match them with errors.Is.
var (
	// ErrNotAcquired is returned when a try found the lock held or somebody queued for it.
	ErrNotAcquired error = sentinel(wire.Status_NOT_ACQUIRED)
	// ErrTimeout is returned when a timed wait ended without a grant.
	ErrTimeout error = sentinel(wire.Status_TIMEOUT)
	// ErrCancelled is returned when the wait was cancelled.
	ErrCancelled error = sentinel(wire.Status_CANCELLED)
	// ErrNotHeld is returned when the hold is not, or no longer, held.
	ErrNotHeld error = sentinel(wire.Status_NOT_HELD)
	// ErrAlreadyHeld is returned when the owner holds this lock already.
	ErrAlreadyHeld error = sentinel(wire.Status_ALREADY_HELD)
	// ErrAlreadyQueued is returned when the owner waits for this lock already.
	ErrAlreadyQueued error = sentinel(wire.Status_ALREADY_QUEUED)
	// ErrSessionLost is returned when the session is over, for whichever reason.
	ErrSessionLost error = sentinel(wire.Status_SESSION_LOST)
	// ErrPermissionDenied is returned when the secret does not belong to the session.
	ErrPermissionDenied error = sentinel(wire.Status_PERMISSION_DENIED)
	// ErrStale is returned when a request came below the acknowledged mark.
	ErrStale error = sentinel(wire.Status_STALE)
	// ErrResourceExhausted is returned when a limit is reached; the message names which.
	ErrResourceExhausted error = sentinel(wire.Status_RESOURCE_EXHAUSTED)
	// ErrInvalidArgument is returned when the request is malformed; the message says how.
	ErrInvalidArgument error = sentinel(wire.Status_INVALID_ARGUMENT)
	// ErrNotFound is returned when there is no such lock, session or member.
	ErrNotFound error = sentinel(wire.Status_NOT_FOUND)
	// ErrFailedPrecondition is returned when the state of the cluster does not allow it.
	ErrFailedPrecondition error = sentinel(wire.Status_FAILED_PRECONDITION)
	// ErrUnsupported is returned when the feature level of the cluster does not allow it yet.
	ErrUnsupported error = sentinel(wire.Status_UNSUPPORTED)
	// ErrNotLeader is returned when no leader was found in the time given.
	ErrNotLeader error = sentinel(wire.Status_NOT_LEADER)
	// ErrUnavailable is returned when the request was certainly not executed: nobody
	// could be reached, or nobody led, in the time given.
	ErrUnavailable error = sentinel(wire.Status_UNAVAILABLE)
	// ErrUncertain is returned to a caller that stopped waiting while it is not known
	// whether the request was, or will be, executed.
	ErrUncertain error = sentinel(wire.Status_UNCERTAIN)
	// ErrInternal is returned when the cluster discarded the request because its handler failed.
	ErrInternal error = sentinel(wire.Status_INTERNAL)
)

// Reasons for which a session is lost; each is also ErrSessionLost.
var (
	// ErrExpired is the reason when no heartbeat was acknowledged in time.
	ErrExpired error = &reason{"quorumlock: session expired", ErrSessionLost}
	// ErrClosed is the reason when the session or its client was closed.
	ErrClosed error = &reason{"quorumlock: session closed", ErrSessionLost}
	// ErrClientClosed is the reason when the client was closed; it is also ErrClosed.
	// Whatever is asked of a closed client returns it.
	ErrClientClosed error = &reason{"quorumlock: client closed", ErrClosed}
	// ErrSuperseded is the reason when another connection attached the session.
	ErrSuperseded error = &reason{"quorumlock: session taken over by another connection", ErrSessionLost}
	// ErrForced is the reason when an operator ended the session.
	ErrForced error = &reason{"quorumlock: session ended by an operator", ErrSessionLost}
)

// ErrReleased is the cause of a hold's context once Unlock has begun.
var ErrReleased = errors.New("quorumlock: hold released")

// reason is why a session was lost.
type reason struct {
	text   string
	parent error
}

// Error says the reason.
func (r *reason) Error() string { return r.text }

// Unwrap makes every reason match ErrSessionLost.
func (r *reason) Unwrap() error { return r.parent }

// sentinel returns the error that stands for one status.
func sentinel(code wire.Status_Code) *StatusError { return &StatusError{Status: code} }

var statusTexts = map[wire.Status_Code]string{
	wire.Status_NOT_ACQUIRED:        "lock not acquired",
	wire.Status_TIMEOUT:             "timed out waiting for the lock",
	wire.Status_CANCELLED:           "wait cancelled",
	wire.Status_NOT_HELD:            "lock not held",
	wire.Status_ALREADY_HELD:        "lock already held by this owner",
	wire.Status_ALREADY_QUEUED:      "this owner waits for the lock already",
	wire.Status_SESSION_LOST:        "session lost",
	wire.Status_PERMISSION_DENIED:   "permission denied",
	wire.Status_NOT_ATTACHED:        "session not attached to this connection",
	wire.Status_STALE:               "request was acknowledged before",
	wire.Status_RESOURCE_EXHAUSTED:  "limit reached",
	wire.Status_INVALID_ARGUMENT:    "invalid argument",
	wire.Status_NOT_FOUND:           "not found",
	wire.Status_FAILED_PRECONDITION: "failed precondition",
	wire.Status_UNSUPPORTED:         "not supported by the cluster yet",
	wire.Status_NOT_LEADER:          "no leader found",
	wire.Status_UNAVAILABLE:         "cluster unavailable",
	wire.Status_UNCERTAIN:           "outcome unknown",
	wire.Status_INTERNAL:            "internal error of the cluster",
}

// statusError turns a result that is not a success into an error.
func statusError(result *wire.Result) error {
	return &StatusError{Status: result.GetStatus(), Message: result.GetMessage()}
}

// stopped is what a caller gets whose ctx ended first. It matches ctx's error, its
// cause if that is another, and what is known of the request.
func stopped(ctx context.Context, known error) error {
	err := &stoppedError{causes: []error{ctx.Err()}}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		err.causes = append(err.causes, cause)
	}
	if known != nil {
		err.causes = append(err.causes, known)
	}
	return err
}

type stoppedError struct {
	causes []error
}

// Error says why the caller stopped and what is known.
func (e *stoppedError) Error() string {
	text := "quorumlock: stopped waiting"
	for _, cause := range e.causes {
		text += ": " + strings.TrimPrefix(cause.Error(), "quorumlock: ")
	}
	return text
}

// Unwrap gives all of them to errors.Is.
func (e *stoppedError) Unwrap() []error { return e.causes }
