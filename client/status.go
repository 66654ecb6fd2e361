package client

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Status is the outcome of a request that did not succeed. The numbers are those of the protocol and are
// never reused.
type Status int32

// The statuses. Each has a sentinel error of the same name.
const (
	StatusNotAcquired        Status = 10
	StatusTimeout            Status = 11
	StatusCancelled          Status = 12
	StatusNotHeld            Status = 13
	StatusAlreadyHeld        Status = 14
	StatusAlreadyQueued      Status = 15
	StatusUpgradeConflict    Status = 16
	StatusDeadlock           Status = 17
	StatusMismatch           Status = 18
	StatusSessionLost        Status = 20
	StatusPermissionDenied   Status = 21
	StatusUnauthenticated    Status = 23
	StatusStale              Status = 30
	StatusResourceExhausted  Status = 31
	StatusInvalidArgument    Status = 32
	StatusNotFound           Status = 33
	StatusFailedPrecondition Status = 34
	StatusUnsupported        Status = 35
	StatusCompacted          Status = 36
	StatusNotLeader          Status = 40
	StatusUnavailable        Status = 41
	StatusUncertain          Status = 42
	StatusInternal           Status = 43
)

// statuses are the names and texts of the statuses.
var statuses = map[Status]struct{ name, text string }{
	StatusNotAcquired:        {"NOT_ACQUIRED", "lock not acquired"},
	StatusTimeout:            {"TIMEOUT", "timed out waiting for the lock"},
	StatusCancelled:          {"CANCELLED", "wait cancelled"},
	StatusNotHeld:            {"NOT_HELD", "lock not held"},
	StatusAlreadyHeld:        {"ALREADY_HELD", "lock already held by this owner"},
	StatusAlreadyQueued:      {"ALREADY_QUEUED", "this owner waits for the lock already"},
	StatusUpgradeConflict:    {"UPGRADE_CONFLICT", "another holder waits to upgrade this lock"},
	StatusDeadlock:           {"DEADLOCK", "deadlock"},
	StatusMismatch:           {"MISMATCH", "the lock exists with another order, kind or limit"},
	StatusSessionLost:        {"SESSION_LOST", "session lost"},
	StatusPermissionDenied:   {"PERMISSION_DENIED", "permission denied"},
	StatusUnauthenticated:    {"UNAUTHENTICATED", "no valid certificate or token"},
	StatusStale:              {"STALE", "request was acknowledged before"},
	StatusResourceExhausted:  {"RESOURCE_EXHAUSTED", "limit reached"},
	StatusInvalidArgument:    {"INVALID_ARGUMENT", "invalid argument"},
	StatusNotFound:           {"NOT_FOUND", "not found"},
	StatusFailedPrecondition: {"FAILED_PRECONDITION", "failed precondition"},
	StatusUnsupported:        {"UNSUPPORTED", "not supported by the cluster yet"},
	StatusCompacted:          {"COMPACTED", "events compacted"},
	StatusNotLeader:          {"NOT_LEADER", "no leader found"},
	StatusUnavailable:        {"UNAVAILABLE", "cluster unavailable"},
	StatusUncertain:          {"UNCERTAIN", "outcome unknown"},
	StatusInternal:           {"INTERNAL", "internal error of the cluster"},
}

// String returns the name of the status as in the protocol, such as NOT_HELD.
func (s Status) String() string {
	if known, ok := statuses[s]; ok {
		return known.name
	}
	return fmt.Sprintf("Status(%d)", int32(s))
}

// text describes the status for people.
func (s Status) text() string {
	if known, ok := statuses[s]; ok {
		return known.text
	}
	return s.String()
}

// statusOf returns the status of a result.
func statusOf(result *wire.Result) Status { return Status(result.GetStatus()) }
