package client

import (
	"context"
	"errors"
	"fmt"
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
	return "quorumlock: " + text + ": " + wire.PrintableLine(e.Message)
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
	// ErrUpgradeConflict is returned when another holder waits to upgrade the same lock:
	// both would wait for ever. Release the hold and acquire anew.
	ErrUpgradeConflict error = sentinel(wire.Status_UPGRADE_CONFLICT)
	// ErrDeadlock is returned when waiting would close a cycle of owners that wait for
	// each other; errors.As finds a *DeadlockError that names it.
	ErrDeadlock error = sentinel(wire.Status_DEADLOCK)
	// ErrMismatch is returned when the lock exists with another order, kind or limit.
	ErrMismatch error = sentinel(wire.Status_MISMATCH)
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
	// ErrCompacted is returned when the events asked for are not in memory any more;
	// errors.As finds a *CompactedError that says what is.
	ErrCompacted error = sentinel(wire.Status_COMPACTED)
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

// Reasons for which a session is lost; each is then also ErrSessionLost.
var (
	// ErrExpired is the reason when no heartbeat was acknowledged in time.
	ErrExpired error = &reason{"quorumlock: session expired", []error{ErrSessionLost}}
	// ErrClosed is the reason when the session or its client was closed.
	ErrClosed error = &reason{"quorumlock: session closed", []error{ErrSessionLost}}
	// ErrClientClosed is the reason when the client was closed; it is also ErrClosed.
	// Whatever is asked of a closed client returns it.
	ErrClientClosed error = &reason{"quorumlock: client closed", []error{ErrClosed}}
	// ErrSuperseded is the reason when another connection attached the session.
	ErrSuperseded error = &reason{"quorumlock: session taken over by another connection", []error{ErrSessionLost}}
	// ErrRestored is the reason when a backup was restored, or the cluster was begun anew:
	// the session is not part of the state that the cluster has now.
	ErrRestored error = &reason{"quorumlock: session ended because a backup was restored", []error{ErrSessionLost}}
	// errSessionForced is the reason when an operator ended the session.
	errSessionForced error = &reason{"quorumlock: session ended by an operator", []error{ErrForced, ErrSessionLost}}
)

// Reasons for which a hold ends while its session lives. They are the causes of its
// context.
var (
	// ErrReleased is the cause once Unlock has begun.
	ErrReleased = errors.New("quorumlock: hold released")
	// ErrHoldExpired is the cause when the hold's own bound, its max_hold, has passed.
	ErrHoldExpired = errors.New("quorumlock: hold expired: its max_hold has passed")
	// ErrForced is the cause when an operator took the hold away, or a revocation's grace
	// has passed. It is also the reason when an operator ended the whole session: that
	// error is ErrSessionLost as well.
	ErrForced = errors.New("quorumlock: taken away by an operator")
)

// errMissing is the cause when the cluster does not name the hold after a break: an
// operator took it meanwhile, or somebody else with the session's secret.
var errMissing error = &reason{"quorumlock: hold taken away while the connection was down", []error{ErrForced, ErrNotHeld}}

// forced is ErrForced with the operator's reason.
func forced(message string) error {
	if message == "" {
		return ErrForced
	}
	return fmt.Errorf("%w: %s", ErrForced, wire.Printable(message))
}

// reason is why a session was lost.
type reason struct {
	text    string
	parents []error
}

// Error says the reason.
func (r *reason) Error() string { return r.text }

// Unwrap makes every reason match ErrSessionLost.
func (r *reason) Unwrap() []error { return r.parents }

// DeadlockError is the refusal of a request whose wait would close a cycle of owners
// that wait for each other. It is ErrDeadlock.
type DeadlockError struct {
	// Cycle begins with the request that was refused. Each step waits for what the next
	// one, and the last for what the first, holds or waits for ahead of it.
	Cycle []*wire.DeadlockStep
	// Message is the cluster's.
	Message string
}

// Error prints the cycle.
func (e *DeadlockError) Error() string {
	var b strings.Builder
	b.WriteString("quorumlock: deadlock")
	if len(e.Cycle) == 0 && e.Message != "" {
		b.WriteString(": " + wire.PrintableLine(e.Message))
	}
	for i, step := range e.Cycle {
		b.WriteString([2]string{": ", ", "}[min(i, 1)])
		fmt.Fprintf(&b, "%s waits for %s", stepName(step), wire.Printable(step.GetLock()))
		fmt.Fprintf(&b, " of %s", stepName(e.Cycle[(i+1)%len(e.Cycle)]))
	}
	return b.String()
}

// stepName says who a step is: the session, its name, and which of its owners.
func stepName(step *wire.DeadlockStep) string {
	text := fmt.Sprintf("session %d", step.GetSessionId())
	if step.GetClientName() != "" {
		text += fmt.Sprintf(" (%s)", wire.Printable(step.GetClientName()))
	}
	if step.GetOwner() != 0 {
		text += fmt.Sprintf(" owner %d", step.GetOwner())
	}
	return text
}

// Is makes it match ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return errors.Is(ErrDeadlock, target) }

// CompactedError says that a watch cannot begin where it was asked to. Read the state
// and watch from its revision. It is ErrCompacted.
type CompactedError struct {
	// Oldest is the oldest revision after which a watch may begin; 0 if that is unknown.
	Oldest uint64
	// Lineage is that of the revisions there are now.
	Lineage string
	// Message is the cluster's.
	Message string
}

// Error says what is left.
func (e *CompactedError) Error() string {
	text := fmt.Sprintf("quorumlock: events compacted: a watch may begin after revision %d", e.Oldest)
	if e.Message != "" {
		text += ": " + wire.PrintableLine(e.Message)
	}
	return text
}

// Is makes it match ErrCompacted.
func (e *CompactedError) Is(target error) bool { return errors.Is(ErrCompacted, target) }

// sentinel returns the error that stands for one status.
func sentinel(code wire.Status_Code) *StatusError { return &StatusError{Status: code} }

var statusTexts = map[wire.Status_Code]string{
	wire.Status_NOT_ACQUIRED:        "lock not acquired",
	wire.Status_TIMEOUT:             "timed out waiting for the lock",
	wire.Status_CANCELLED:           "wait cancelled",
	wire.Status_NOT_HELD:            "lock not held",
	wire.Status_ALREADY_HELD:        "lock already held by this owner",
	wire.Status_ALREADY_QUEUED:      "this owner waits for the lock already",
	wire.Status_UPGRADE_CONFLICT:    "another holder waits to upgrade this lock",
	wire.Status_DEADLOCK:            "deadlock",
	wire.Status_MISMATCH:            "the lock exists with another order, kind or limit",
	wire.Status_COMPACTED:           "events compacted",
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
	if result.GetStatus() == wire.Status_DEADLOCK {
		return &DeadlockError{Cycle: result.GetCycle(), Message: result.GetMessage()}
	}
	return &StatusError{Status: result.GetStatus(), Message: result.GetMessage()}
}

// isStatus reports whether err is that answer of the cluster.
func isStatus(err error, code wire.Status_Code) bool { return errors.Is(err, sentinel(code)) }

// maybe reports whether what failed with err may have happened.
func maybe(err error) bool { return errors.Is(err, ErrUncertain) }

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

// lostReason is the reason that a push gives.
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

// lostAnswer is the reason that an answer with SESSION_LOST gives.
func lostAnswer(result *wire.Result) error {
	if result.GetRestored() {
		return ErrRestored
	}
	return ErrExpired
}
