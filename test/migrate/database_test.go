package migrate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "github.com/mattn/go-sqlite3"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/fence"
)

func refundRow(ctx context.Context, session *client.Session, db *sql.DB) error {
	// begin
	orders := fence.Table{Dialect: fence.SQLite, Name: "orders"}
	err := session.Do(ctx, "orders/42", func(ctx context.Context, token uint64) error {
		// Show the token before reading: from here on nobody older can write.
		query, args, err := orders.Update(token, fence.Row{"id": 42}, nil)
		if err != nil {
			return err
		}
		if err := fence.Applied(db.ExecContext(ctx, query, args...)); err != nil {
			return err
		}
		var state string
		if err := db.QueryRowContext(ctx, "SELECT state FROM orders WHERE id = ?", 42).Scan(&state); err != nil {
			return err
		}
		if state == "refunded" {
			return nil
		}
		query, args, err = orders.Update(token, fence.Row{"id": 42}, fence.Row{"state": "refunded"})
		if err != nil {
			return err
		}
		return fence.Applied(db.ExecContext(ctx, query, args...)) // fence.ErrStaleToken: we are late
	})
	// end
	return err
}

func nightly(ctx context.Context) error { return ctx.Err() }

func runNightly(ctx context.Context, session *client.Session) error {
	// begin
	hold, err := session.Lock(ctx, "jobs/nightly", client.WithTry())
	if errors.Is(err, client.ErrNotAcquired) {
		return nil // it runs elsewhere
	}
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	return nightly(hold.Context())
	// end
}

// A late write of an earlier holder is rejected by the row itself.
func Example_database() {
	ctx := context.Background()
	db, err := sql.Open("sqlite3", "file:orders?mode=memory&cache=shared")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, fence BIGINT NOT NULL DEFAULT 0);
		INSERT INTO orders (id, state) VALUES (42, 'paid')`)
	if err != nil {
		fmt.Println(err)
		return
	}
	late, next := start(ctx, "late"), start(ctx, "next")
	defer next.stop(ctx)

	held, err := late.session.Lock(ctx, "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	late.crash() // or stopped for longer than its TTL
	fmt.Println("refunded:", refundRow(ctx, next.session, db))

	orders := fence.Table{Dialect: fence.SQLite, Name: "orders"}
	query, args, err := orders.Update(held.Token(), fence.Row{"id": 42}, fence.Row{"state": "shipped"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = fence.Applied(db.ExecContext(ctx, query, args...))
	fmt.Println("the late one:", errors.Is(err, fence.ErrStaleToken))
	fmt.Println(runNightly(ctx, next.session))
	// Output:
	// refunded: <nil>
	// the late one: true
	// <nil>
}
