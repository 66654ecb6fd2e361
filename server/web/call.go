package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// call is one request on its way through the port. Only the goroutine that serves the
// request touches it.
type call struct {
	// elsewhere: the handler left the answer to the leader; nothing was written.
	elsewhere bool
	// doubt: some attempt may have changed something. It stays.
	doubt bool
	// outcome is what became of it, for the metrics.
	outcome string
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// observe notes on the call how its handler ended.
func observe(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		elsewhere := errors.Is(err, errElsewhere) || errors.Is(err, errInDoubt)
		if elsewhere && ctx.Err() != nil {
			elsewhere, err = false, gaveUp(ctx.Err())
		}
		if c := callOf(ctx); c != nil {
			c.elsewhere = elsewhere
			c.doubt = c.doubt || errors.Is(err, errInDoubt)
			c.outcome = outcomeOf(resp, err)
		}
		return resp, err
	}
}

// outcomeOf names the status of an answer, or connect's code where it has none.
func outcomeOf(resp connect.AnyResponse, err error) string {
	if err != nil {
		if status := statusOf(err); status != wire.Status_UNSPECIFIED {
			return status.String()
		}
		return connect.CodeOf(err).String()
	}
	if m, ok := resp.Any().(interface{ GetStatus() wire.Status_Code }); ok {
		return m.GetStatus().String()
	}
	return wire.Status_OK.String()
}

// statusOf is the status in an error's detail.
func statusOf(err error) wire.Status_Code {
	cerr, ok := err.(*connect.Error) //nolint:errorlint // made by failure, never wrapped
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

// answer is the way back to the caller. It gives each piece of the answer its own
// time, since an acquire may rightly take for ever before its first one, and drops
// what a handler writes after it left the answer to the leader.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	call    *call
	status  int
}

func newAnswer(w http.ResponseWriter, timeout time.Duration, c *call) *answer {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout, call: c}
	// The connection may still carry the deadline of its last answer.
	_ = a.control.SetWriteDeadline(time.Time{})
	return a
}

// Unwrap leads http.ResponseController to what is beneath.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	if a.call.elsewhere {
		return
	}
	if a.status == 0 {
		a.status = status
	}
	a.extend()
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.call.elsewhere {
		return len(p), nil
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.extend()
	return a.ResponseWriter.Write(p)
}

// Flush sends what was written.
func (a *answer) Flush() {
	if a.call.elsewhere {
		return
	}
	a.extend()
	_ = a.control.Flush()
}

func (a *answer) extend() {
	_ = a.control.SetWriteDeadline(time.Now().Add(a.timeout))
}
