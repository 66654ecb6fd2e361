package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/budget"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// call is the state of one request on the port. Only the goroutine that serves the request may use it, except
// for hurry.
type call struct {
	// elsewhere is set if the handler left the answer to the leader; nothing was written.
	elsewhere bool
	// doubt is set if some attempt may have changed something. It is never reset.
	doubt bool
	// outcome is the outcome for the metrics.
	outcome string
	// answer is the response writer.
	answer *answer
	// exhausted is set if the node had no memory for the answer; nothing was written.
	exhausted error
	// leaveTurn ends the caller's turn in a queue; nil if it has none.
	leaveTurn func()
}

// endTurn lets the next caller read. It is called when this answer is encoded or there is none.
func (c *call) endTurn() {
	if c.leaveTurn != nil {
		c.leaveTurn()
		c.leaveTurn = nil
	}
}

// hurry shortens the time that the caller has to read each piece, because the node is stopping. Any goroutine
// may call it.
func (c *call) hurry() {
	c.answer.timeout.Store(int64(farewellTimeout))
	c.answer.extend()
}

// farewellTimeout is the time a caller has to read the final message of a stopping node.
const farewellTimeout = time.Second

type callKey struct{}

// callOf returns the call in a request's context, where the gate has put it.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// observer records on the call how its handler ended. It is a connect.Interceptor.
type observer struct{}

// WrapUnary observes unary handlers.
func (observer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		if err == nil {
			callOf(ctx).outcome = outcomeOf(resp)
		}
		return resp, note(ctx, err)
	}
}

// WrapStreamingHandler observes streaming handlers.
func (observer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return note(ctx, next(ctx, conn))
	}
}

// WrapStreamingClient implements connect.Interceptor. The port has no streaming clients.
func (observer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// note records an error on the call and converts the end of the caller's context.
func note(ctx context.Context, err error) error {
	elsewhere := errors.Is(err, errElsewhere) || errors.Is(err, errInDoubt)
	if elsewhere && ctx.Err() != nil {
		elsewhere, err = false, gaveUp(ctx.Err())
	}
	c := callOf(ctx)
	c.elsewhere = elsewhere
	c.doubt = c.doubt || errors.Is(err, errInDoubt)
	switch {
	case elsewhere:
		c.outcome = ""
	case err != nil:
		c.outcome = outcomeOfError(err)
	case c.outcome == "":
		c.outcome = wire.Status_OK.String()
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
	if status := statusOf(err); status != wire.Status_UNSPECIFIED {
		return status.String()
	}
	return connect.CodeOf(err).String()
}

// statusOf returns the status in an error's detail.
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

// answer is the response writer of a request. It sets a write deadline for each piece of the response, since
// an acquire may take arbitrarily long before its first piece. It drops what a handler writes after leaving
// the answer to the leader.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout atomic.Int64
	call    *call
	status  int
	memory  *budget.Account // the connection's account
	held    int             // the bytes of memory held for this answer
}

func newAnswer(w http.ResponseWriter, timeout time.Duration, c *call) *answer {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w), call: c}
	a.timeout.Store(int64(timeout))
	c.answer = a
	// The connection may still carry the deadline of its last answer.
	_ = a.control.SetWriteDeadline(time.Time{})
	return a
}

// Unwrap returns the underlying writer for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// hold reserves memory for an answer of the given size, beyond what is already held.
func (a *answer) hold(bytes int) error {
	more := bodyFactor*bytes - a.held
	if more <= 0 {
		return nil
	}
	if err := a.memory.Reserve(more); err != nil {
		return err
	}
	a.held += more
	return nil
}

const (
	// modest is the most that a connection may hold for prepare to assume a small answer, in bytes.
	modest = 128 << 10
	// leastAnswer is the approximate size of most answers, in bytes.
	leastAnswer = 4 << 10
)

// prepare reserves memory for an answer of unknown size, which most bounds. If the budget has no room for
// that, a connection that holds little gets a reservation for a small answer: the actual size is known once
// the answer is encoded.
func (a *answer) prepare(most int) error {
	err := a.hold(most)
	if err != nil && a.memory.Held() <= modest {
		err = a.hold(min(most, leastAnswer))
	}
	return err
}

// keep releases what is held beyond an answer of the given size.
func (a *answer) keep(bytes int) {
	if less := a.held - bodyFactor*bytes; less > 0 {
		a.memory.Release(less)
		a.held -= less
	}
}

// prefixBytes is the size of the prefix of each message in a stream. The prefix is a write of its own, so a
// write of that size must not release the memory held for the message.
const prefixBytes = 5

// dropped reports whether the handler's further writes are discarded.
func (a *answer) dropped() bool { return a.call.elsewhere || a.call.exhausted != nil }

// WriteHeader starts the response.
func (a *answer) WriteHeader(status int) {
	if a.dropped() {
		return
	}
	if a.status == 0 {
		a.status = status
	}
	a.call.endTurn()
	a.extend()
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.call.elsewhere {
		return len(p), nil
	}
	if a.call.exhausted != nil {
		return 0, a.call.exhausted
	}
	a.call.endTurn()
	if err := a.hold(len(p)); err != nil {
		if a.status != 0 {
			panic(http.ErrAbortHandler) // earlier messages of the stream were sent, so it is too late for an error response
		}
		a.call.exhausted = err
		return 0, err
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.extend()
	if len(p) > prefixBytes {
		a.keep(len(p))
		defer a.keep(0)
	}
	return a.ResponseWriter.Write(p)
}

// Flush sends what was written so far.
func (a *answer) Flush() {
	if a.dropped() {
		return
	}
	a.extend()
	_ = a.control.Flush()
}

func (a *answer) extend() {
	_ = a.control.SetWriteDeadline(time.Now().Add(time.Duration(a.timeout.Load())))
}
