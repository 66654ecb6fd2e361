package httpapi

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/callers"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// observer records on the response writer how its handler ended. It is a connect.Interceptor.
type observer struct{}

// WrapUnary observes unary handlers.
func (observer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		if err == nil {
			response.Of(ctx).Outcome = outcomeOf(resp)
		}
		return resp, record(ctx, err)
	}
}

// WrapStreamingHandler observes streaming handlers.
func (observer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return record(ctx, next(ctx, conn))
	}
}

// WrapStreamingClient implements connect.Interceptor. The port has no streaming clients.
func (observer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// record records an error on the response writer and converts the end of the caller's context.
func record(ctx context.Context, err error) error {
	w := response.Of(ctx)
	if gone := callers.Dismissal(ctx); gone != nil && err != nil {
		err = gone
		w.ChargeNothing()
	}
	forward := errors.Is(err, errNotLeader) || errors.Is(err, errUncertain)
	if forward && ctx.Err() != nil {
		forward, err = false, contextError(ctx.Err())
	}
	w.Forward = forward
	w.Uncertain = w.Uncertain || errors.Is(err, errUncertain)
	switch {
	case forward:
		w.Outcome = ""
	case err != nil:
		w.Outcome = outcomeOfError(err)
	case w.Outcome == "":
		w.Outcome = wire.Status_OK.String()
	}
	return err
}

// outcomeOf returns the name of a response's status.
func outcomeOf(resp connect.AnyResponse) string {
	if m, ok := resp.Any().(interface{ GetStatus() wire.Status_Code }); ok {
		return m.GetStatus().String()
	}
	return wire.Status_OK.String()
}

// outcomeOfError returns the name of an error's status, or of connect's code if it has none.
func outcomeOfError(err error) string {
	if status := apierror.Status(err); status != wire.Status_UNSPECIFIED {
		return status.String()
	}
	return connect.CodeOf(err).String()
}
