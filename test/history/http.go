package history

import (
	"context"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TapHTTP is Tap for a client's calls over HTTP: an interceptor that records calls of the LeaseService. They
// are recorded as the frames that correspond to them; parts of a result that HTTP does not return are
// missing. A failed call is unknown, whatever its error.
func (l *Log) TapHTTP(client string) connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			asked := requestOf(req.Any())
			if asked == nil {
				return next(ctx, req)
			}
			op := &Op{Client: client, HTTP: true, Kind: KindOf(asked), Call: l.now(), Return: Never, Request: asked}
			l.add(Record{Op: op})
			resp, err := next(ctx, req)
			if err == nil {
				l.answered(op, resultOf(resp.Any()))
			}
			return resp, err
		}
	})
}

// answered records an answer that has arrived.
func (l *Log) answered(op *Op, result *wire.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	op.Return, op.Response, op.Outcome = l.now(), &wire.Response{Result: result}, OutcomeOf(result.GetStatus())
}

// requestOf returns the body of the corresponding request frame; nil if calls of that kind are not recorded.
func requestOf(message any) *wire.Request {
	switch m := message.(type) {
	case *wire.AcquireLeaseRequest:
		return &wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: m}}
	case *wire.ExtendLeaseRequest:
		return &wire.Request{Body: &wire.Request_ExtendLease{ExtendLease: m}}
	case *wire.ReleaseLeaseRequest:
		return &wire.Request{Body: &wire.Request_ReleaseLease{ReleaseLease: m}}
	}
	return nil
}

// resultOf returns what a response says about a result; nil if it has none.
func resultOf(message any) *wire.Result {
	switch m := message.(type) {
	case *wire.AcquireResponse:
		return &wire.Result{
			Status: m.Status, Message: m.Message, Revision: m.Revision, HoldId: m.HoldId, Token: m.Token,
			Holders: m.Holders, Count: m.Count, Cycle: m.Cycle, SessionId: m.SessionId, Digest: m.Digest, Name: m.Name,
		}
	case *wire.ExtendLeaseResponse:
		return &wire.Result{Status: m.Status, Revision: m.Revision}
	case *wire.ReleaseResponse:
		return &wire.Result{Status: m.Status, Revision: m.Revision, Count: m.Count}
	}
	return nil
}
