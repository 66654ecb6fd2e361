package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

func ship(ctx context.Context, _ string, _ uint64) error { return ctx.Err() }

func tryToShip(ctx context.Context, session *client.Session) (string, error) {
	// begin
	hold, err := session.Lock(ctx, "order:42", client.WithTry())
	if errors.Is(err, client.ErrNotAcquired) {
		return "somebody else is at it", nil
	}
	if err != nil {
		return "", err
	}
	defer hold.Unlock(ctx) // compare-and-delete: by hold id and token, never a later holder's
	return "shipped", ship(hold.Context(), "42", hold.Token())
	// end
}

func waitToShip(ctx context.Context, session *client.Session) (*client.Hold, error) {
	// begin
	hold, err := session.Lock(ctx, "order:42", client.WithWait(2*time.Second))
	// end
	return hold, err
}

func leaseToShip(ctx context.Context, c *client.Client) error {
	// begin
	order := []client.LockSpec{{Name: "order:42"}}
	lease, err := c.AcquireLease(ctx, order, client.WithTTL(30*time.Second))
	if err != nil {
		return err
	}
	fmt.Println("for another process:", len(lease.Secret()), "bytes of secret")
	if err := lease.Extend(ctx, 30*time.Second); err != nil { // PEXPIRE, if it is still ours
		return err
	}
	return lease.Release(ctx) // the Lua script
	// end
}

// A crashed holder blocks the others for its TTL and no longer, and no client polls.
func Example_redis() {
	ctx := context.Background()
	first, second := start(ctx, "first"), start(ctx, "second")
	defer second.stop(ctx)

	held, err := first.session.Lock(ctx, "order:42")
	fmt.Println("first has it:", err == nil)
	fmt.Println(tryToShip(ctx, second.session))
	first.crash()
	hold, err := waitToShip(ctx, second.session)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("second has it, with a greater token:", hold.Token() > held.Token())
	fmt.Println(hold.Unlock(ctx))
	fmt.Println(tryToShip(ctx, second.session))
	fmt.Println(leaseToShip(ctx, second.client))
	// Output:
	// first has it: true
	// somebody else is at it <nil>
	// second has it, with a greater token: true
	// <nil>
	// shipped <nil>
	// for another process: 32 bytes of secret
	// <nil>
}
