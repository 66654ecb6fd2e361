package status

import (
	"context"
	"errors"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

var (
	// ErrReplaced is returned when the cluster knows this node's id with another data directory. The node has
	// lost its data and does not take part. The message contains the commands that replace it.
	ErrReplaced = errors.New("this node is known to its cluster with another data directory")
	// ErrOtherCluster is returned when the node, its certificate and its peers do not all belong to the same
	// cluster.
	ErrOtherCluster = errors.New("another cluster")
	// ErrDiverged is passed to Halt when most of the voters are in another state than this node, and returned
	// at every later start. The message contains the commands that replace the node.
	ErrDiverged = errors.New("this node's state is not that of the majority")
	// ErrRolledBack is passed to Halt when this node's disk lacks something that the node has acknowledged,
	// and returned at every later start. The message contains the commands that replace the node.
	ErrRolledBack = errors.New("the data directory was rolled back")
	// ErrForked is passed to Halt when the logs of most voters continue differently from an earlier point of
	// this node's log, and returned at every later start. The message contains the commands that replace the
	// node.
	ErrForked = errors.New("the cluster's log has forked")

	// ErrNotLeader is returned when only the leader can do this.
	ErrNotLeader = errors.New("this node does not lead")
	// ErrUnavailable is returned when nothing was done: there is no majority, the node in question does not
	// answer, or this node is closing.
	ErrUnavailable = errors.New("unavailable")
	// ErrUncertain is returned when it is unknown whether the change was made.
	ErrUncertain = errors.New("the outcome is unknown")
	// ErrInvalid is returned when the request is malformed.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound is returned when there is no such member.
	ErrNotFound = errors.New("no such member")
	// ErrTooMany is returned when a bound of this node's memory is reached.
	ErrTooMany = errors.New("too many")
	// ErrPrecondition is returned when the state of the cluster does not allow the change.
	ErrPrecondition = errors.New("not possible now")
	// ErrDenied is returned when the policy does not allow this to the caller.
	ErrDenied = errors.New("not allowed")
)

// Code returns the wire status for an error of this package. It is INTERNAL for unknown errors.
func Code(err error) wire.Status_Code {
	switch {
	case err == nil:
		return wire.Status_OK
	case errors.Is(err, ErrNotLeader):
		return wire.Status_NOT_LEADER
	case errors.Is(err, ErrUncertain):
		return wire.Status_UNCERTAIN
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return wire.Status_UNAVAILABLE
	case errors.Is(err, ErrInvalid):
		return wire.Status_INVALID_ARGUMENT
	case errors.Is(err, ErrNotFound):
		return wire.Status_NOT_FOUND
	case errors.Is(err, ErrTooMany):
		return wire.Status_RESOURCE_EXHAUSTED
	case errors.Is(err, ErrDenied):
		return wire.Status_PERMISSION_DENIED
	case errors.Is(err, ErrPrecondition), errors.Is(err, ErrReplaced), errors.Is(err, ErrOtherCluster):
		return wire.Status_FAILED_PRECONDITION
	}
	return wire.Status_INTERNAL
}

// Err returns nil for OK and an error of this package for all other results.
func Err(r *wire.Result) error {
	switch r.GetStatus() {
	case wire.Status_OK:
		return nil
	case wire.Status_NOT_LEADER:
		return ErrNotLeader
	case wire.Status_UNCERTAIN:
		return ErrUncertain
	case wire.Status_UNAVAILABLE:
		return &statusError{ErrUnavailable, r}
	case wire.Status_INVALID_ARGUMENT:
		return &statusError{ErrInvalid, r}
	case wire.Status_NOT_FOUND:
		return &statusError{ErrNotFound, r}
	case wire.Status_RESOURCE_EXHAUSTED:
		return &statusError{ErrTooMany, r}
	case wire.Status_FAILED_PRECONDITION:
		return &statusError{ErrPrecondition, r}
	case wire.Status_PERMISSION_DENIED:
		return &statusError{ErrDenied, r}
	}
	return &statusError{errors.New(r.GetStatus().String()), r}
}

// ResultOf returns the result that carries an error of this package to another node, where Err returns an equal one.
func ResultOf(err error) *wire.Result {
	result := Result(Code(err), "")
	if err != nil {
		result.Message = strings.TrimPrefix(strings.TrimPrefix(err.Error(), Err(result).Error()), ": ") // Err adds it again
	}
	return result
}

// statusError combines a sentinel with the message of the state machine.
type statusError struct {
	kind   error
	result *wire.Result
}

func (e *statusError) Error() string {
	if e.result.GetMessage() == "" {
		return e.kind.Error()
	}
	return e.kind.Error() + ": " + e.result.GetMessage()
}

func (e *statusError) Unwrap() error { return e.kind }

// Result returns a result with that status. The message is for people.
func Result(code wire.Status_Code, message string) *wire.Result {
	return &wire.Result{Status: code, Message: message}
}
