package migrate_test

import (
	"context"
	"fmt"

	"github.com/quorumlock/quorumlock/client"
)

func stale(ctx context.Context) bool { return ctx.Err() == nil }

func rebuild(ctx context.Context, token uint64) {
	fmt.Println("rebuilding, held:", ctx.Err() == nil, "token:", token > 0)
}

func lead(ctx context.Context, token uint64) {
	fmt.Println("leading, held:", ctx.Err() == nil, "token:", token > 0)
}

func readAndWrite(ctx context.Context, session *client.Session) error {
	// begin
	read, err := session.Lock(ctx, "catalogue", client.WithShared())
	if err != nil {
		return err
	}
	defer read.Unlock(ctx)
	if stale(read.Context()) {
		// Ahead of everybody who waits; nobody writes between the reading and this.
		if err := read.Upgrade(ctx); err != nil {
			return err // client.ErrUpgradeConflict: another reader asked first; unlock and lock again
		}
		rebuild(read.Context(), read.Token())
	}
	// end
	return nil
}

func lockBoth(ctx context.Context, session *client.Session) (*client.Hold, error) {
	// begin
	hold, err := session.LockAll(ctx, []client.LockSpec{
		{Name: "accounts/7"},
		{Name: "accounts/9"},
		{Name: "rates", Mode: client.Shared},
	})
	// end
	return hold, err
}

func leadAWhile(ctx context.Context, session *client.Session) error {
	// begin
	election := session.Election("scheduler")
	leadership, err := election.Campaign(ctx, client.WithValue([]byte("10.0.0.7:8080")))
	if err != nil {
		return err
	}
	lead(leadership.Context(), leadership.Token())
	return leadership.Resign(ctx)
	// end
}

func Example_zookeeper() {
	ctx := context.Background()
	p := start(ctx, "worker")
	defer p.stop(ctx)

	fmt.Println(readAndWrite(ctx, p.session))
	hold, err := lockBoth(ctx, p.session)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hold.Names(), "under one token:", hold.Token() > 0)
	fmt.Println(hold.Unlock(ctx))
	fmt.Println(leadAWhile(ctx, p.session))
	// Output:
	// rebuilding, held: true token: true
	// <nil>
	// [accounts/7 accounts/9 rates] under one token: true
	// <nil>
	// leading, held: true token: true
	// <nil>
}
