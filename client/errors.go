package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// StatusError is an answer of the cluster other than success. With errors.Is it matches the sentinel of its
// status.
type StatusError struct {
	Status Status
	// Message is meant for people and may be empty.
	Message string
}

// Error returns the text of the status and the cluster's message.
func (e *StatusError) Error() string {
	text := e.Status.text()
	if e.Message == "" {
		return "quorumlock: " + text
	}
	return "quorumlock: " + text + ": " + wire.PrintableLine(e.Message)
}

// Is reports whether target is the sentinel of the same status.
func (e *StatusError) Is(target error) bool {
	t, ok := target.(*StatusError)
	return ok && t.Status == e.Status && t.Message == ""
}

// Sentinel errors, one per status; match them with errors.Is.
var (
	// ErrNotAcquired is returned when an attempt without waiting found the lock held or queued for.
	ErrNotAcquired error = sentinel(StatusNotAcquired)
	// ErrTimeout is returned when a wait with a timeout ended without a grant.
	ErrTimeout error = sentinel(StatusTimeout)
	// ErrCancelled is returned when the wait was cancelled.
	ErrCancelled error = sentinel(StatusCancelled)
	// ErrNotHeld is returned when the hold is not held, or no longer held.
	ErrNotHeld error = sentinel(StatusNotHeld)
	// ErrAlreadyHeld is returned when the owner already holds this lock.
	ErrAlreadyHeld error = sentinel(StatusAlreadyHeld)
	// ErrAlreadyQueued is returned when the owner already waits for this lock.
	ErrAlreadyQueued error = sentinel(StatusAlreadyQueued)
	// ErrUpgradeConflict is returned when another holder is waiting to upgrade the same lock: both would
	// wait forever. Release the hold and acquire the lock again.
	ErrUpgradeConflict error = sentinel(StatusUpgradeConflict)
	// ErrDeadlock is returned when waiting would close a cycle of owners waiting for each other. errors.As
	// finds a *DeadlockError that lists the cycle.
	ErrDeadlock error = sentinel(StatusDeadlock)
	// ErrMismatch is returned when the lock exists with a different order, kind or limit.
	ErrMismatch error = sentinel(StatusMismatch)
	// ErrSessionLost is returned when the session has ended, for any reason.
	ErrSessionLost error = sentinel(StatusSessionLost)
	// ErrPermissionDenied is returned when the policy of the cluster does not allow the request, when it allows
	// nothing to the client's identity, or when the session belongs to another identity or has another secret.
	ErrPermissionDenied error = sentinel(StatusPermissionDenied)
	// ErrUnauthenticated is returned when the cluster does not accept the client's certificate or token, or
	// requires one, or when the token cannot be read or must not be sent.
	ErrUnauthenticated error = sentinel(StatusUnauthenticated)
	// ErrStale is returned when a request arrived below the acknowledged mark.
	ErrStale error = sentinel(StatusStale)
	// ErrResourceExhausted is returned when a limit is reached; the message names it.
	ErrResourceExhausted error = sentinel(StatusResourceExhausted)
	// ErrInvalidArgument is returned when the request is malformed; the message explains how.
	ErrInvalidArgument error = sentinel(StatusInvalidArgument)
	// ErrNotFound is returned when there is no such lock, session or member.
	ErrNotFound error = sentinel(StatusNotFound)
	// ErrFailedPrecondition is returned when the state of the cluster does not allow the request.
	ErrFailedPrecondition error = sentinel(StatusFailedPrecondition)
	// ErrUnsupported is returned when the cluster's feature level does not allow the request yet.
	ErrUnsupported error = sentinel(StatusUnsupported)
	// ErrCompacted is returned when the requested events are no longer in memory. errors.As finds a
	// *CompactedError that reports which ones are.
	ErrCompacted error = sentinel(StatusCompacted)
	// ErrNotLeader is returned when no leader was found in the time given.
	ErrNotLeader error = sentinel(StatusNotLeader)
	// ErrUnavailable is returned when the request was certainly not executed, because no node could be
	// reached or there was no leader in the time given.
	ErrUnavailable error = sentinel(StatusUnavailable)
	// ErrUncertain is returned to a caller that stopped waiting before it was known whether the request
	// was, or will be, executed.
	ErrUncertain error = sentinel(StatusUncertain)
	// ErrInternal is returned when the cluster discarded the request because its handler failed.
	ErrInternal error = sentinel(StatusInternal)
)

// Reasons why a session is lost. Each also matches ErrSessionLost.
var (
	// ErrExpired is the reason when no heartbeat was acknowledged in time.
	ErrExpired error = &reason{"quorumlock: session expired", []error{ErrSessionLost}}
	// ErrClosed is the reason when the session or its client was closed.
	ErrClosed error = &reason{"quorumlock: session closed", []error{ErrSessionLost}}
	// ErrClientClosed is the reason when the client was closed; it also matches ErrClosed. Every request to
	// a closed client returns it.
	ErrClientClosed error = &reason{"quorumlock: client closed", []error{ErrClosed}}
	// ErrSuperseded is the reason when another connection attached the session.
	ErrSuperseded error = &reason{"quorumlock: session taken over by another connection", []error{ErrSessionLost}}
	// ErrRestored is the reason when a backup was restored or the cluster was set up again: the session is
	// not part of the cluster's present state.
	ErrRestored error = &reason{"quorumlock: session ended because a backup was restored", []error{ErrSessionLost}}
	// ErrRolledBack is the reason when the cluster's history lacks what the client has seen of it, because the disks of
	// its nodes were replaced by older copies. Nothing that the session did since then is known to the cluster.
	ErrRolledBack error = &reason{"quorumlock: session ended because the cluster was rolled back to an older state", []error{ErrSessionLost}}
	// errSessionForced is the reason when an operator ended the session.
	errSessionForced error = &reason{"quorumlock: session ended by an operator", []error{ErrForced, ErrSessionLost}}
)

// Reasons why a hold ends while its session is alive. They are the causes of its context.
var (
	// ErrReleased is the cause once Unlock has begun.
	ErrReleased = errors.New("quorumlock: hold released")
	// ErrHoldExpired is the cause when the hold's own bound, its max_hold, has passed.
	ErrHoldExpired = errors.New("quorumlock: hold expired: its max_hold has passed")
	// ErrForced is the cause when an operator took the hold away or a revocation's grace has passed. It is
	// also the reason when an operator ended the whole session; that error matches ErrSessionLost as well.
	ErrForced = errors.New("quorumlock: taken away by an operator")
)

// errMissing is the cause when the cluster does not list the hold after a reconnect: an operator, or
// another process with the session's secret, took it away in the meantime.
var errMissing error = &reason{"quorumlock: hold taken away while the connection was down", []error{ErrForced, ErrNotHeld}}

// forced returns ErrForced with the operator's reason.
func forced(message string) error {
	if message == "" {
		return ErrForced
	}
	return fmt.Errorf("%w: %s", ErrForced, wire.Printable(message))
}

// reason is an error with a fixed text that also matches its parents.
type reason struct {
	text    string
	parents []error
}

// Error returns the text.
func (r *reason) Error() string { return r.text }

// Unwrap returns the parents.
func (r *reason) Unwrap() []error { return r.parents }

// DeadlockError reports a request that was refused because its wait would close a cycle of owners waiting
// for each other. It matches ErrDeadlock.
type DeadlockError struct {
	// Cycle starts with the refused request. Each step waits for a lock that the next step holds, or waits
	// for ahead of it; the last step waits for the first. A step
	// whose lock the caller may not read is empty.
	Cycle []DeadlockStep
	// Message is the cluster's message.
	Message string
}

// DeadlockStep is one owner in a cycle.
type DeadlockStep struct {
	SessionID uint64
	// Owner is the owner key within the session; 0 means the session itself.
	Owner uint64
	// ClientName is the session's name; it may be empty.
	ClientName string
	// Lock is the name of the lock that the owner waits for.
	Lock string
}

// Error describes the cycle.
func (e *DeadlockError) Error() string {
	var b strings.Builder
	b.WriteString("quorumlock: deadlock")
	if len(e.Cycle) == 0 && e.Message != "" {
		b.WriteString(": " + wire.PrintableLine(e.Message))
	}
	for i, step := range e.Cycle {
		b.WriteString([2]string{": ", ", "}[min(i, 1)])
		fmt.Fprintf(&b, "%s waits for %s", step.who(), cmp.Or(wire.Printable(step.Lock), "a lock that may not be read"))
		fmt.Fprintf(&b, " of %s", e.Cycle[(i+1)%len(e.Cycle)].who())
	}
	return b.String()
}

// who describes a step by its session, the session's name and its owner.
func (d DeadlockStep) who() string {
	if d.SessionID == 0 {
		return "an owner that is not shown"
	}
	text := fmt.Sprintf("session %d", d.SessionID)
	if d.ClientName != "" {
		text += fmt.Sprintf(" (%s)", wire.Printable(d.ClientName))
	}
	if d.Owner != 0 {
		text += fmt.Sprintf(" owner %d", d.Owner)
	}
	return text
}

// Is reports whether target is ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return errors.Is(ErrDeadlock, target) }

// CompactedError reports that a watch cannot start at the requested position. Read the state and watch from
// its revision. It matches ErrCompacted.
type CompactedError struct {
	// Oldest is the oldest revision after which a watch can start; 0 if unknown.
	Oldest uint64
	// Lineage is the current lineage.
	Lineage string
	// Message is the cluster's message.
	Message string
}

// Error reports where a watch can start.
func (e *CompactedError) Error() string {
	text := fmt.Sprintf("quorumlock: events compacted: a watch may begin after revision %d", e.Oldest)
	if e.Message != "" {
		text += ": " + wire.PrintableLine(e.Message)
	}
	return text
}

// Is reports whether target is ErrCompacted.
func (e *CompactedError) Is(target error) bool { return errors.Is(ErrCompacted, target) }

// sentinel returns the sentinel error for a status.
func sentinel(status Status) *StatusError { return &StatusError{Status: status} }

// statusError converts an unsuccessful result to an error.
func statusError(result *wire.Result) error {
	if result.GetStatus() != wire.Status_DEADLOCK {
		return &StatusError{Status: statusOf(result), Message: result.GetMessage()}
	}
	err := &DeadlockError{Message: result.GetMessage()}
	for _, step := range result.GetCycle() {
		err.Cycle = append(err.Cycle, DeadlockStep{step.GetSessionId(), step.GetOwner(), step.GetClientName(), step.GetLock()})
	}
	return err
}

// maybe reports whether the request that failed with err may have been executed.
func maybe(err error) bool { return errors.Is(err, ErrUncertain) }

// stopped returns the error for a caller whose ctx ended first. It matches ctx's error, its cause if
// different, and known, which is what the client knows about the request.
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

// Error lists the causes.
func (e *stoppedError) Error() string {
	text := "quorumlock: stopped waiting"
	for _, cause := range e.causes {
		text += ": " + strings.TrimPrefix(cause.Error(), "quorumlock: ")
	}
	return text
}

// Unwrap returns all causes.
func (e *stoppedError) Unwrap() []error { return e.causes }

// lostReason returns the reason given by a push.
func lostReason(r wire.SessionLost_Reason) error {
	switch r {
	case wire.SessionLost_CLOSED:
		return ErrClosed
	case wire.SessionLost_SUPERSEDED:
		return ErrSuperseded
	case wire.SessionLost_FORCED:
		return errSessionForced
	case wire.SessionLost_RESTORED:
		return ErrRestored
	}
	return ErrExpired
}

// lostAnswer returns the reason given by an answer that the session no longer exists.
func lostAnswer(resp *wire.Response) error {
	switch {
	case resp.GetResult().GetRestored():
		return ErrRestored
	case resp.GetRolledBack():
		return ErrRolledBack
	}
	return ErrExpired
}
