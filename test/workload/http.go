package workload

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

const (
	// httpTimeout bounds one call. It is shorter than a lease's TTL, so that a wait is renewed before it is
	// given up.
	httpTimeout = 2 * time.Second
	// httpMargin is how much earlier than the cluster's a lease's own deadline is.
	httpMargin = 20 * time.Millisecond
)

// unanswered are the error codes of calls that are worth a retry.
var unanswered = []connect.Code{connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeUnknown}

// httpLessee takes a lease over HTTP, as curl would. Each call is retried, on random nodes, until it is
// answered.
type httpLessee struct {
	actor  *actor
	secret []byte
	ttlMs  uint32
	name   string
	hold   uint64
	until  time.Duration // on the log's clock
	tries  int           // of the last call
}

func newHTTPLessee(a *actor, name string) *httpLessee {
	secret := make([]byte, 16)
	_, _ = rand.Read(secret)
	return &httpLessee{actor: a, secret: secret, ttlMs: uint32(a.opts.FrailTTL.Milliseconds()), name: name}
}

func (l *httpLessee) now() time.Duration       { return l.actor.env.Log.Now() }
func (l *httpLessee) remaining() time.Duration { return max(0, l.until-l.now()) }

// repeat retries a call until it is answered, and returns when the answered attempt was sent.
func (l *httpLessee) repeat(ctx context.Context, call func(context.Context, wireconnect.LeaseServiceClient) error) (time.Duration, error) {
	for l.tries = 1; ; l.tries++ {
		sent := l.now()
		once, cancel := context.WithTimeout(ctx, httpTimeout)
		err := call(once, l.service())
		cancel()
		if err == nil || !slices.Contains(unanswered, connect.CodeOf(err)) {
			return sent, err
		}
		if ctx.Err() != nil {
			return sent, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		l.actor.pause(l.actor.some(2), ctx.Done())
	}
}

// service returns a random node's service.
func (l *httpLessee) service() wireconnect.LeaseServiceClient {
	a := l.actor
	base := a.env.Bases[a.rand.IntN(len(a.env.Bases))]
	return wireconnect.NewLeaseServiceClient(a.env.HTTP, base, connect.WithInterceptors(a.env.Log.TapHTTP(a.client)))
}

func (l *httpLessee) acquire(ctx context.Context) (history.Hold, error) {
	var answer *wire.AcquireResponse
	sent, err := l.repeat(ctx, func(ctx context.Context, service wireconnect.LeaseServiceClient) error {
		got, err := service.Acquire(ctx, connect.NewRequest(&wire.AcquireLeaseRequest{
			Secret: l.secret, TtlMs: l.ttlMs, Client: &wire.ClientInfo{Name: Prefix + leases},
			Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: l.name}}, WaitForever: true},
		}))
		if err == nil {
			answer = got.Msg
		}
		return err
	})
	if err != nil {
		return history.Hold{}, err
	}
	if answer.Status != wire.Status_GRANTED {
		return history.Hold{}, &client.StatusError{Status: client.Status(answer.Status), Message: answer.Message}
	}
	l.hold = answer.HoldId
	l.until = sent + time.Duration(answer.RemainingTtlMs)*time.Millisecond - httpMargin
	return history.Hold{Session: answer.SessionId, ID: answer.HoldId, Token: answer.Token, Revision: answer.Revision}, nil
}

func (l *httpLessee) extend(ctx context.Context) error {
	var status wire.Status_Code
	sent, err := l.repeat(ctx, func(ctx context.Context, service wireconnect.LeaseServiceClient) error {
		got, err := service.Extend(ctx, connect.NewRequest(&wire.ExtendLeaseRequest{Secret: l.secret, HoldId: l.hold}))
		if err == nil {
			status = got.Msg.Status
		}
		return err
	})
	if err == nil && status == wire.Status_OK {
		l.until = sent + time.Duration(l.ttlMs)*time.Millisecond - httpMargin
	}
	return l.answered(status, err)
}

// release releases the lease. After a retry, NOT_HELD may mean that an earlier attempt succeeded.
func (l *httpLessee) release(ctx context.Context) error {
	var status wire.Status_Code
	_, err := l.repeat(ctx, func(ctx context.Context, service wireconnect.LeaseServiceClient) error {
		got, err := service.Release(ctx, connect.NewRequest(&wire.ReleaseLeaseRequest{Secret: l.secret, HoldId: l.hold}))
		if err == nil {
			status = got.Msg.Status
		}
		return err
	})
	if l.tries > 1 && status == wire.Status_NOT_HELD {
		return nil
	}
	return l.answered(status, err)
}

func (l *httpLessee) answered(status wire.Status_Code, err error) error {
	if err == nil && status != wire.Status_OK {
		return &client.StatusError{Status: client.Status(status)}
	}
	return err
}
