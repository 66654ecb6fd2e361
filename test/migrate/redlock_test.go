package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

func send(ctx context.Context, _ uint64) error { return ctx.Err() }

func sendInvoices(ctx context.Context, session *client.Session) (string, error) {
	// begin
	hold, err := session.Lock(ctx, "invoices/2026-11", client.WithWait(10*time.Second))
	if errors.Is(err, client.ErrTimeout) {
		return "busy", nil
	}
	if err != nil {
		return "", err
	}
	defer hold.Unlock(ctx)

	// The validity time, at any moment.
	if hold.Remaining() < 100*time.Millisecond {
		return "", context.Cause(hold.Context())
	}
	// Better than looking at it: work that ends with it.
	return "sent", send(hold.Context(), hold.Token())
	// end
}

// A holder that the cluster does not hear from any more knows that its hold is over before the next one is
// granted.
func Example_redlock() {
	ctx := context.Background()
	first, second := start(ctx, "first"), start(ctx, "second")
	defer second.stop(ctx)

	held, err := first.session.Lock(ctx, "invoices/2026-11")
	fmt.Println("first has it:", err == nil, held.Remaining() > 0)
	first.crash()
	done, err := sendInvoices(ctx, second.session)
	fmt.Println("first knows:", held.Remaining() == 0, held.Context().Err() != nil)
	fmt.Println("second:", done, err)
	// Output:
	// first has it: true true
	// first knows: true true
	// second: sent <nil>
}
