package history

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// landlord answers lease calls, each a second after it was sent.
type landlord struct {
	wireconnect.UnimplementedLeaseServiceHandler
	now *time.Duration
}

func (l landlord) Acquire(context.Context, *connect.Request[wire.AcquireLeaseRequest]) (*connect.Response[wire.AcquireResponse], error) {
	*l.now += time.Second
	return connect.NewResponse(&wire.AcquireResponse{Status: wire.Status_GRANTED, Revision: 7, HoldId: 6, Token: 1 << 60, Count: 1, SessionId: 3}), nil
}

func (l landlord) Extend(context.Context, *connect.Request[wire.ExtendLeaseRequest]) (*connect.Response[wire.ExtendLeaseResponse], error) {
	*l.now += time.Second
	return connect.NewResponse(&wire.ExtendLeaseResponse{Status: wire.Status_NOT_HELD, Revision: 8}), nil
}

func (l landlord) Release(context.Context, *connect.Request[wire.ReleaseLeaseRequest]) (*connect.Response[wire.ReleaseResponse], error) {
	return nil, connect.NewError(connect.CodeUnavailable, errors.New("elsewhere"))
}

// TestTapBooksCallsOverHTTP verifies that calls are recorded, with their answers if there are any.
func TestTapBooksCallsOverHTTP(t *testing.T) {
	now := time.Second
	log := New(func() time.Duration { return now })
	mux := http.NewServeMux()
	mux.Handle(wireconnect.NewLeaseServiceHandler(landlord{now: &now}))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	service := wireconnect.NewLeaseServiceClient(srv.Client(), srv.URL, connect.WithInterceptors(log.TapHTTP("curl")))
	secret := []byte("sixteen bytes or more")
	_, acquired := service.Acquire(t.Context(), connect.NewRequest(&wire.AcquireLeaseRequest{Secret: secret, TtlMs: 5_000}))
	_, extended := service.Extend(t.Context(), connect.NewRequest(&wire.ExtendLeaseRequest{Secret: secret, HoldId: 6}))
	_, released := service.Release(t.Context(), connect.NewRequest(&wire.ReleaseLeaseRequest{Secret: secret, HoldId: 6}))
	if acquired != nil || extended != nil || connect.CodeOf(released) != connect.CodeUnavailable {
		t.Fatal(acquired, extended, released)
	}
	ops := log.History().Ops()
	want := []Op{
		{Kind: "acquire_lease", Call: time.Second, Return: 2 * time.Second, Outcome: OK, Response: &wire.Response{Result: &wire.Result{
			Status: wire.Status_GRANTED, Revision: 7, HoldId: 6, Token: 1 << 60, Count: 1, SessionId: 3,
		}}},
		{Kind: "extend_lease", Call: 2 * time.Second, Return: 3 * time.Second, Outcome: OK, Response: &wire.Response{Result: &wire.Result{
			Status: wire.Status_NOT_HELD, Revision: 8,
		}}},
		{Kind: "release_lease", Call: 3 * time.Second, Return: Never, Outcome: Unknown},
	}
	if len(ops) != len(want) {
		t.Fatalf("%d operations", len(ops))
	}
	for i, op := range ops {
		w := want[i]
		w.Client, w.HTTP, w.Request = "curl", true, op.Request
		if KindOf(op.Request) != w.Kind || !same(Record{Op: op}, Record{Op: &w}) {
			t.Errorf("%+v, want %+v", op, w)
		}
	}
}
