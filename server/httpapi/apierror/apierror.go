package apierror

import (
	"errors"
	"strings"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Codes maps each status to a code of connect and gRPC, for clients that know only these. It includes
// statuses with a response of their own, for the calls that do not expect them. The error's detail carries
// the status itself.
//
// To add a status, add a line here and in docs/HTTP.md. Tests compare the schema, this table and the manual
// (TestEveryStatusHasACode, TestManualHasTheSameTable).
var Codes = map[wire.Status_Code]connect.Code{
	wire.Status_NOT_ACQUIRED:        connect.CodeAborted,
	wire.Status_TIMEOUT:             connect.CodeAborted,
	wire.Status_CANCELLED:           connect.CodeAborted,
	wire.Status_NOT_HELD:            connect.CodeFailedPrecondition,
	wire.Status_ALREADY_HELD:        connect.CodeAlreadyExists,
	wire.Status_ALREADY_QUEUED:      connect.CodeAlreadyExists,
	wire.Status_UPGRADE_CONFLICT:    connect.CodeAborted,
	wire.Status_DEADLOCK:            connect.CodeAborted,
	wire.Status_MISMATCH:            connect.CodeFailedPrecondition,
	wire.Status_SESSION_LOST:        connect.CodeNotFound,
	wire.Status_PERMISSION_DENIED:   connect.CodePermissionDenied,
	wire.Status_UNAUTHENTICATED:     connect.CodeUnauthenticated,
	wire.Status_NOT_ATTACHED:        connect.CodeFailedPrecondition,
	wire.Status_STALE:               connect.CodeOutOfRange,
	wire.Status_RESOURCE_EXHAUSTED:  connect.CodeResourceExhausted,
	wire.Status_INVALID_ARGUMENT:    connect.CodeInvalidArgument,
	wire.Status_NOT_FOUND:           connect.CodeNotFound,
	wire.Status_FAILED_PRECONDITION: connect.CodeFailedPrecondition,
	wire.Status_UNSUPPORTED:         connect.CodeUnimplemented,
	wire.Status_COMPACTED:           connect.CodeOutOfRange,
	wire.Status_NOT_LEADER:          connect.CodeUnavailable,
	wire.Status_UNAVAILABLE:         connect.CodeUnavailable,
	// As for a deadline that passed, the request may or may not have been executed.
	wire.Status_UNCERTAIN: connect.CodeDeadlineExceeded,
	wire.Status_INTERNAL:  connect.CodeInternal,
}

// messages are the messages of results for which the state machine provides none.
var messages = map[wire.Status_Code]string{
	wire.Status_SESSION_LOST:      "no such session: it expired, was closed or never existed; open a new one",
	wire.Status_PERMISSION_DENIED: "the policy does not allow this any more",
	wire.Status_ALREADY_HELD:      "this owner already holds the lock",
	wire.Status_ALREADY_QUEUED:    "this owner already waits for the lock, under another seq",
	wire.Status_STALE:             "seq is below acked_below, so it is not executed again; use a new one",
	wire.Status_NOT_LEADER:        "this node is not the leader: try again, or another node",
	wire.Status_UNAVAILABLE:       "nothing was done; send the request again",
	wire.Status_UNCERTAIN:         "the outcome is unknown; send it again with the same seq",
	wire.Status_INTERNAL:          "the command failed and changed nothing: see the node's log",
}

// New returns the error for a status. If message is empty, it is the status's usual one.
func New(status wire.Status_Code, message string) error {
	return FromResult(&wire.Result{Status: status, Message: message})
}

// FromResult returns the error for a result with a status that the call does not expect.
func FromResult(r *wire.Result) error {
	status, message := r.GetStatus(), r.GetMessage()
	if message == "" {
		message = messages[status]
	}
	if message == "" {
		message = strings.ToLower(status.String())
	}
	code, known := Codes[status]
	if !known {
		code = connect.CodeInternal
	}
	err := connect.NewError(code, errors.New(message))
	if detail, derr := connect.NewErrorDetail(&wire.ErrorDetail{Status: status, Restored: r.GetRestored()}); derr == nil {
		err.AddDetail(detail)
	}
	return err
}

// Status returns the status in an error's detail, UNSPECIFIED if it has none.
func Status(err error) wire.Status_Code {
	cerr, ok := err.(*connect.Error) //nolint:errorlint // made by FromResult, never wrapped
	if !ok {
		return wire.Status_UNSPECIFIED
	}
	for _, detail := range cerr.Details() {
		if v, derr := detail.Value(); derr == nil {
			if d, ok := v.(*wire.ErrorDetail); ok {
				return d.GetStatus()
			}
		}
	}
	return wire.Status_UNSPECIFIED
}

// Name returns the name of an error's status, or of connect's code if it has none.
func Name(err error) string {
	if status := Status(err); status != wire.Status_UNSPECIFIED {
		return status.String()
	}
	return connect.CodeOf(err).String()
}

// Message returns the message of an error without its code.
func Message(err error) string {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return e.Message()
	}
	return err.Error()
}
