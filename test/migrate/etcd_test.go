package migrate_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/client"
)

func refund(ctx context.Context, order string, token uint64) error {
	fmt.Println("refunding", order, "held:", ctx.Err() == nil, "token:", token > 0)
	return nil
}

func refundUnderLock(ctx context.Context, session *client.Session) error {
	// begin
	err := session.Do(ctx, "orders/42", func(ctx context.Context, token uint64) error {
		return refund(ctx, "42", token)
	})
	// end
	return err
}

func electAndFollow(ctx context.Context, session *client.Session) error {
	// begin
	election := session.Election("scheduler")
	leadership, err := election.Campaign(ctx, client.WithValue([]byte("10.0.0.7:8080")))
	if err != nil {
		return err
	}
	for leader := range election.Observe(leadership.Context()) {
		fmt.Printf("%s leads\n", leader.Value)
		break
	}
	return leadership.Resign(ctx)
	// end
}

// Locking twice is refused, not ignored: otherwise the first unlock would free the lock.
func Example_etcd() {
	ctx := context.Background()
	p := start(ctx, "worker")
	defer p.stop(ctx)

	fmt.Println(refundUnderLock(ctx, p.session))
	hold, err := p.session.Lock(ctx, "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = p.session.Lock(hold.Context(), "orders/42")
	fmt.Println("twice:", errors.Is(err, client.ErrAlreadyHeld))
	fmt.Println(hold.Unlock(ctx))
	fmt.Println(electAndFollow(ctx, p.session))
	// Output:
	// refunding 42 held: true token: true
	// <nil>
	// twice: true
	// <nil>
	// 10.0.0.7:8080 leads
	// <nil>
}
