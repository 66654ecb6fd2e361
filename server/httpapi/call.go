package httpapi

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/server/internal/fairqueue"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// call waits for the result of an asynchronous call to the replica.
func (s *Server) call(ctx context.Context, begin func(done func(*wire.Result))) *wire.Result {
	answered := make(chan *wire.Result, 1)
	begin(func(r *wire.Result) { answered <- r })
	select {
	case r := <-answered:
		return r
	case <-ctx.Done():
		return &wire.Result{Status: wire.Status_UNCERTAIN, Message: "the caller stopped waiting for the response"}
	}
}

func (s *Server) propose(ctx context.Context, cmd *wire.Command) *wire.Result {
	if !s.replica.Serving() {
		return &wire.Result{Status: wire.Status_NOT_LEADER}
	}
	if cmd.GetSessionId() == 0 && cmd.GetCaller() == nil {
		cmd.Caller = identity.FromContext(ctx)
	}
	return s.call(ctx, func(done func(*wire.Result)) { s.replica.ProposeFrom(sender(ctx), cmd, done) })
}

// sender returns where a request comes from.
func sender(ctx context.Context) identity.Sender {
	return identity.Sender{Identity: identity.FromContext(ctx).GetIdentity(), Connection: listener.Of(ctx)}
}

// awaitRead returns when a read may look at the applied state, its connection has its turn, and memory for an
// answer of the given size is reserved.
func (s *Server) awaitRead(ctx context.Context, stale bool, bytes int) error {
	if !stale {
		if !s.replica.Serving() {
			return errNotLeader
		}
		if res := s.reader.Prove(ctx); res != nil {
			return s.refusal(res, true)
		}
	}
	return s.turn(ctx, s.queues.Reads, bytes)
}

// turn waits for the turn of the caller's connection, which lasts until the answer is encoded, and reserves
// memory for an answer of the given size. What the answer does not need is released when it is encoded.
func (s *Server) turn(ctx context.Context, queue *fairqueue.Queue, bytes int) error {
	w := response.Of(ctx)
	w.EndTurn() // from an earlier attempt to serve the same request here
	leave, err := s.enter(ctx, queue)
	if err != nil {
		return err
	}
	w.BeginTurn(leave)
	if err := w.Prepare(bytes); err != nil {
		w.EndTurn()
		return apierror.New(wire.Status_RESOURCE_EXHAUSTED, err.Error())
	}
	return nil
}

// enter waits for the turn of the caller's connection, which lasts until leave is called.
func (s *Server) enter(ctx context.Context, queue *fairqueue.Queue) (leave func(), err error) {
	leave, err = queue.Enter(ctx, sender(ctx))
	switch {
	case errors.Is(err, fairqueue.ErrFull):
		return nil, apierror.New(wire.Status_RESOURCE_EXHAUSTED, "too many reads or operator requests of this connection are waiting: wait for their responses")
	case err != nil:
		return nil, contextError(err)
	}
	return leave, nil
}

// pollEvery is the polling interval for conditions without a notification, all of which concern the election
// of a leader.
const pollEvery = 20 * time.Millisecond

// poll waits until ready returns true, at most LeaderWait. It returns false if it gave up.
func (s *Server) poll(ctx context.Context, ready func() bool) bool {
	deadline := time.NewTimer(s.cfg.Limits.LeaderWait)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		case <-ctx.Done():
			return false
		case <-s.life.Done():
			return false
		}
	}
	return true
}

// contextError converts the end of the caller's context to an error for the caller. Other errors pass unchanged.
func contextError(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return apierror.New(wire.Status_UNCERTAIN, "the request's deadline passed; send it again soon with the same seq to keep its place in the queue")
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	}
	return err
}
