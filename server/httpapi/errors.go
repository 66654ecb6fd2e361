package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var (
	// errNotLeader is returned by a handler if only the leader can answer. Nothing was changed.
	errNotLeader = errors.New("only the leader can answer")
	// errUncertain is like errNotLeader, but the request may have been executed or may wait in a queue. Sending
	// it again continues with that, but "nothing was done" is no longer a valid answer.
	errUncertain = errors.New("the leader continues this request")
)

// refusal converts an unexpected result to an error. If another node can answer, the error is errNotLeader or
// errUncertain. UNCERTAIN is retried only if the request is repeatable, which means that a second execution
// returns the outcome of the first.
func (s *Server) refusal(r *wire.Result, repeatable bool) error {
	status := r.GetStatus()
	switch {
	case status == wire.Status_NOT_LEADER:
		return errNotLeader
	case status == wire.Status_UNAVAILABLE && !s.replica.Serving():
		return errNotLeader
	case status == wire.Status_UNCERTAIN && repeatable:
		return errUncertain
	}
	return apierror.FromResult(r)
}

// refusalOfSeq is refusal for a session's numbered request. The sequence number may be that of a request of
// another kind, whose result does not answer this one.
func (s *Server) refusalOfSeq(r *wire.Result) error {
	switch r.GetStatus() {
	case wire.Status_OK, wire.Status_GRANTED, wire.Status_QUEUED:
		return apierror.New(wire.Status_INVALID_ARGUMENT, "this seq belongs to another kind of request of the session: give each new request a new seq")
	}
	return s.refusal(r, true)
}

// refusalOf is refusal for errors of the replica.
func (s *Server) refusalOf(err error) error {
	if errors.Is(err, context.Canceled) {
		return connect.NewError(connect.CodeCanceled, err)
	}
	return s.refusal(&wire.Result{Status: status.Code(err), Message: err.Error()}, false)
}

// problem is an error of the port itself, in connect's error format.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Procedures lists the existing procedures if the requested one does not exist.
	Procedures []string `json:"procedures,omitempty"`
}

// respond answers a request that does not reach a handler, after the request has arrived. gRPC clients read only
// trailers, so they get the error there.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, status int, code connect.Code, p problem) {
	s.drains.Drain(w, r)
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
