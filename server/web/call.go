package web

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

// call is one request on its way through the port. Only the goroutine that serves the
// request touches it, but for hurry.
type call struct {
	// elsewhere: the handler left the answer to the leader; nothing was written.
	elsewhere bool
	// doubt: some attempt may have changed something. It stays.
	doubt bool
	// outcome is what became of it, for the metrics.
	outcome string
	// answer is the way back.
	answer *answer
	// exhausted: the node had no memory for the answer, of which nothing was written.
	exhausted error
	// leaveTurn ends the caller's turn in a queue; nil if it has none.
	leaveTurn func()
}

// endTurn lets the next caller gather its answer: this one is encoded, or there is none.
func (c *call) endTurn() {
	if c.leaveTurn != nil {
		c.leaveTurn()
		c.leaveTurn = nil
	}
}

// hurry shortens the time that the caller has to read each piece: the node is stopping.
// Any goroutine may call it.
func (c *call) hurry() {
	c.answer.timeout.Store(int64(farewellTimeout))
	c.answer.extend()
}

// farewellTimeout is how long a caller may take for the last word of a node that stops.
const farewellTimeout = time.Second

type callKey struct{}

// callOf returns the call of a request's context: the gate has put it there.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// observer notes on the call how its handler ended. It is a connect.Interceptor.
type observer struct{}

// WrapUnary observes handlers that answer once.
func (observer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		if err == nil {
			callOf(ctx).outcome = outcomeOf(resp)
		}
		return resp, note(ctx, err)
	}
}

// WrapStreamingHandler observes handlers that answer more than once.
func (observer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return note(ctx, next(ctx, conn))
	}
}

// WrapStreamingClient is for clients, of which there are none here.
func (observer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// note notes an error on the call and words the caller's own going away.
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

// outcomeOf names the status of an answer.
func outcomeOf(resp connect.AnyResponse) string {
	if m, ok := resp.Any().(interface{ GetStatus() wire.Status_Code }); ok {
		return m.GetStatus().String()
	}
	return wire.Status_OK.String()
}

// outcomeOfError names the status of an error, or connect's code where it has none.
func outcomeOfError(err error) string {
	if status := statusOf(err); status != wire.Status_UNSPECIFIED {
		return status.String()
	}
	return connect.CodeOf(err).String()
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
	timeout atomic.Int64
	call    *call
	status  int
	memory  *budget.Account // of the connection
	held    int             // what of that is the answer's
}

func newAnswer(w http.ResponseWriter, timeout time.Duration, c *call) *answer {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w), call: c}
	a.timeout.Store(int64(timeout))
	c.answer = a
	// The connection may still carry the deadline of its last answer.
	_ = a.control.SetWriteDeadline(time.Time{})
	return a
}

// Unwrap leads http.ResponseController to what is beneath.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// hold takes memory for an answer of so many bytes, in addition to what is held already.
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
	// modest is what a connection holds at most to be given the benefit of the doubt.
	modest = 128 << 10
	// leastAnswer is about what most answers take.
	leastAnswer = 4 << 10
)

// prepare takes memory for an answer of which no more is known than that it has so many bytes
// at most. If there is not that much, a connection that holds little is taken to want little:
// what its answer takes is known once it is encoded.
func (a *answer) prepare(most int) error {
	err := a.hold(most)
	if err != nil && a.memory.Held() <= modest {
		err = a.hold(min(most, leastAnswer))
	}
	return err
}

// keep gives back what is held beyond an answer of so many bytes.
func (a *answer) keep(bytes int) {
	if less := a.held - bodyFactor*bytes; less > 0 {
		a.memory.Release(less)
		a.held -= less
	}
}

// prefixBytes is what comes before each message of a stream, in a write of its own. The
// memory that is held is for the message.
const prefixBytes = 5

// dropped reports whether nothing that the handler writes reaches the caller any more.
func (a *answer) dropped() bool { return a.call.elsewhere || a.call.exhausted != nil }

// WriteHeader begins the answer.
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
			panic(http.ErrAbortHandler) // nobody takes the answers that came before it
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

// Flush sends what was written.
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
