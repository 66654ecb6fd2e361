package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// codes maps each status to a code of connect and gRPC, for clients that know only these. It includes
// statuses with a response of their own, for the calls that do not expect them. The error's detail carries
// the status itself.
//
// To add a status, add a line here and in docs/HTTP.md. Tests compare the schema, this table and the manual
// (TestEveryStatusHasACode, TestManualHasTheSameTable).
var codes = map[wire.Status_Code]connect.Code{
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

// sayings are the messages of results for which the state machine provides none.
var sayings = map[wire.Status_Code]string{
	wire.Status_SESSION_LOST:      "no such session: it expired, was closed or never was; open a new one",
	wire.Status_PERMISSION_DENIED: "the secret is not that of the session",
	wire.Status_ALREADY_HELD:      "this owner holds the lock already",
	wire.Status_ALREADY_QUEUED:    "this owner waits for the lock already, under another seq",
	wire.Status_STALE:             "seq is below acked_below, so it is never executed again; take a fresh one",
	wire.Status_NOT_LEADER:        "this node does not lead; ask another one, or again",
	wire.Status_UNAVAILABLE:       "nothing was done; send the request again",
	wire.Status_UNCERTAIN:         "it is not known whether this was done; send it again with the same seq",
	wire.Status_INTERNAL:          "the command failed and changed nothing; the node's log says more",
}

var (
	// errElsewhere is returned by a handler if only the leader can answer. Nothing was changed.
	errElsewhere = errors.New("the leader answers this")
	// errInDoubt is like errElsewhere, but the request may have been executed or may wait in a queue. Sending
	// it again continues with that, but "nothing was done" is no longer a valid answer.
	errInDoubt = errors.New("the leader goes on with this")
)

// failure returns the error for a status that its call does not expect.
func failure(status wire.Status_Code, message string) error {
	return failureOf(&wire.Result{Status: status, Message: message})
}

func failureOf(r *wire.Result) error {
	status, message := r.GetStatus(), r.GetMessage()
	if message == "" {
		message = sayings[status]
	}
	if message == "" {
		message = strings.ToLower(status.String())
	}
	code, known := codes[status]
	if !known {
		code = connect.CodeInternal
	}
	err := connect.NewError(code, errors.New(message))
	if detail, derr := connect.NewErrorDetail(&wire.ErrorDetail{Status: status, Restored: r.GetRestored()}); derr == nil {
		err.AddDetail(detail)
	}
	return err
}

// refusal converts an unexpected result to an error. If another node can answer, the error is errElsewhere or
// errInDoubt. UNCERTAIN is retried only if the request is repeatable, which means that a second execution
// returns the outcome of the first.
func (s *Server) refusal(r *wire.Result, repeatable bool) error {
	status := r.GetStatus()
	switch {
	case status == wire.Status_NOT_LEADER:
		return errElsewhere
	case status == wire.Status_UNAVAILABLE && !s.replica.Serving():
		return errElsewhere
	case status == wire.Status_UNCERTAIN && repeatable:
		return errInDoubt
	}
	return failureOf(r)
}

// refusalOfSeq is refusal for a session's numbered request. The sequence number may be that of a request of
// another kind, whose result does not answer this one.
func (s *Server) refusalOfSeq(r *wire.Result) error {
	switch r.GetStatus() {
	case wire.Status_OK, wire.Status_GRANTED, wire.Status_QUEUED:
		return failure(wire.Status_INVALID_ARGUMENT, "this seq is that of another kind of request of the session: give each new request a fresh one")
	}
	return s.refusal(r, true)
}

// refusalOf is refusal for errors of the replica.
func (s *Server) refusalOf(err error) error {
	if errors.Is(err, context.Canceled) {
		return connect.NewError(connect.CodeCanceled, err)
	}
	return s.refusal(&wire.Result{Status: replica.Code(err), Message: err.Error()}, false)
}

// problem is an error of the port itself, in connect's error format.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Procedures lists the existing procedures if the requested one does not exist.
	Procedures []string `json:"procedures,omitempty"`
}

// say answers a request that does not reach a handler. gRPC clients read only trailers, so they get the error
// there.
func (s *Server) say(w http.ResponseWriter, r *http.Request, status int, code connect.Code, p problem) {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		_ = s.errors.Write(w, r, connect.NewError(code, errors.New(p.Message)))
		return
	}
	p.Code = code.String()
	writeJSON(w, status, p)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"code":"internal","message":"cannot write JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}
