package replica

import (
	"context"
	"errors"

	"github.com/quorumlock/quorumlock/server/replica/segment"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var (
	// ErrReplaced is returned when the cluster knows this node's id with another data
	// directory. It has lost its memory and takes no part; the message holds the
	// commands that replace it.
	ErrReplaced = errors.New("this node is known to its cluster with another data directory")
	// ErrOtherNode is returned when the data directory belongs to another id.
	ErrOtherNode = errors.New("the data directory belongs to another node")
	// ErrOtherCluster is returned when the node, its certificate and its peers do not
	// belong to one cluster.
	ErrOtherCluster = errors.New("another cluster")
	// ErrInUse is returned when another process has the data directory open.
	ErrInUse = errors.New("the data directory is in use by another process")
	// ErrStore is what Halt gets when a write to the disk failed.
	ErrStore = errors.New("a write to the data directory failed")
	// ErrDiverged is what Halt gets when most of the voters are in another state than this
	// node, and what Open returns from then on; the message holds the commands that
	// replace the node.
	ErrDiverged = errors.New("this node's state is not that of the majority")
	// ErrRolledBack is what Halt gets when this node's disk lacks what the node has vouched for, and
	// what Open returns from then on; the message holds the commands that replace the node.
	ErrRolledBack = errors.New("the data directory went back in time")
	// ErrForked is what Halt gets when most of the voters went on from an earlier point of the log
	// than this node, and what Open returns from then on; the message holds the commands that replace
	// the node.
	ErrForked = errors.New("the cluster's log has two courses")
	// ErrDiskHangs is what Halt gets when a write to the disk has not returned within
	// Config.DiskTimeout.
	ErrDiskHangs = errors.New("the disk hangs")
	// ErrDamaged is returned, or Halt gets it, when part of the data directory is missing
	// or not what was written. The message holds the commands that replace the node.
	ErrDamaged = segment.ErrDamaged
	// ErrIdentityFile is returned when the identity file is not what the node wrote, and all
	// else in the data directory is sound. The message holds the command that mends it.
	ErrIdentityFile = errors.New("the identity file is damaged")
	// ErrNotPrivate is returned when other users have access to the data directory and this
	// one may not change that. The message says what to do.
	ErrNotPrivate = errors.New("other users have access to the data directory")
	// ErrLogMoved is returned when Config.LogStore is bolt and the log is in segments. The
	// message says what to do.
	ErrLogMoved = errors.New("the log was moved to segments, and does not come back")

	// ErrNotLeader is returned when only the leader can do this; Leader names it.
	ErrNotLeader = errors.New("this node does not lead")
	// ErrUnavailable is returned when nothing was done: no majority, no answer from
	// the node in question, or this node is closing.
	ErrUnavailable = errors.New("unavailable")
	// ErrUncertain is returned when it is not known whether the change was made.
	ErrUncertain = errors.New("it is not known whether this was done")
	// ErrInvalid is returned when the request is malformed.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound is returned when there is no such member.
	ErrNotFound = errors.New("no such member")
	// ErrTooMany is returned when a bound of this node's memory is reached.
	ErrTooMany = errors.New("too many")
	// ErrPrecondition is returned when the cluster's state does not allow the change.
	ErrPrecondition = errors.New("not possible now")
)

// Code is the wire status that stands for an error of this package. Anything
// unknown is INTERNAL.
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
	case errors.Is(err, ErrPrecondition), errors.Is(err, ErrReplaced), errors.Is(err, ErrOtherCluster):
		return wire.Status_FAILED_PRECONDITION
	}
	return wire.Status_INTERNAL
}

// asError turns a result that is not OK into an error of this package.
func asError(r *wire.Result) error {
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
	}
	return &statusError{errors.New(r.GetStatus().String()), r}
}

// statusError keeps the machine's own words beside the sentinel.
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

// refused makes the result of something that was not executed.
func refused(code wire.Status_Code, message string) *wire.Result {
	return &wire.Result{Status: code, Message: message}
}
