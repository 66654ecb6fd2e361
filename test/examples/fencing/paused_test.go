package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/fence"
)

// accounts is the table of a bank that is protected against late writes.
var accounts = fence.Table{Dialect: fence.SQLite, Name: "accounts"}

// teller is one process of the bank, on its own machine.
type teller struct {
	*client.Session
	client *client.Client
	db     *sql.DB
	*machine
}

func hire(ctx context.Context, name string, ttl time.Duration) (*teller, error) {
	t := &teller{machine: &machine{booted: time.Now().Add(-time.Hour)}}
	var err error
	if t.db, err = open(bank); err != nil {
		return nil, err
	}
	t.client, err = client.New(client.Config{Endpoints: []string{endpoint}, Dial: t.dial, Clock: t.machine})
	if err != nil {
		return nil, err
	}
	t.Session, err = t.client.NewSession(ctx, client.SessionOptions{Name: name, TTL: ttl})
	return t, err
}

func (t *teller) leave(ctx context.Context) {
	_ = t.Session.Close(ctx)
	_ = t.client.Close()
	_ = t.db.Close()
}

// read presents the token and then reads the balance, in this order, so that no holder of a lower token can
// change it afterwards.
func (t *teller) read(ctx context.Context, token uint64) (balance int, err error) {
	query, args, err := accounts.Update(token, fence.Row{"id": 7}, nil)
	if err != nil {
		return 0, err
	}
	if err := fence.Applied(t.db.ExecContext(ctx, query, args...)); err != nil {
		return 0, err
	}
	err = t.db.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance)
	return balance, err
}

// write sets the balance unless a later holder has presented its token.
func (t *teller) write(ctx context.Context, token uint64, balance int) error {
	query, args, err := accounts.Update(token, fence.Row{"id": 7}, fence.Row{"balance": balance})
	if err != nil {
		return err
	}
	return fence.Applied(t.db.ExecContext(ctx, query, args...))
}

// writeTrusting sets it in a table that accepts every write.
func (t *teller) writeTrusting(ctx context.Context, balance int) error {
	_, err := t.db.ExecContext(ctx, "UPDATE trusting SET balance = ? WHERE id = 7", balance)
	return err
}

const schema = `
	DROP TABLE IF EXISTS accounts;
	DROP TABLE IF EXISTS trusting;
	CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
	CREATE TABLE trusting (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
	INSERT INTO accounts (id, balance) VALUES (7, 100);
	INSERT INTO trusting (id, balance) VALUES (7, 100);`

// Two tellers withdraw money from one account, under a lock. The first is stopped between its last check of
// the hold and its write.
func Example_pausedProcess() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	first, err := hire(ctx, "first", shortest)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.leave(ctx)
	second, err := hire(ctx, "second", 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.leave(ctx)
	if _, err := second.db.ExecContext(ctx, schema); err != nil {
		fmt.Println(err)
		return
	}

	// The first teller reads 100 and is about to write 90.
	hold, err := first.Lock(ctx, "accounts/7")
	if err != nil {
		fmt.Println(err)
		return
	}
	balance, err := first.read(ctx, hold.Token())
	fmt.Println("first reads", balance, err)
	fmt.Println("first still holds the lock:", hold.Context().Err() == nil)
	first.stop()

	// Its session expires, and the lock is granted to the second teller, who withdraws 50.
	err = second.Do(ctx, "accounts/7", func(ctx context.Context, token uint64) error {
		balance, err := second.read(ctx, token)
		if err != nil {
			return err
		}
		fmt.Println("second reads", balance, "and takes 50")
		return errors.Join(second.write(ctx, token, balance-50), second.writeTrusting(ctx, balance-50))
	})
	if err != nil {
		fmt.Println(err)
	}

	// The first teller continues where it was stopped.
	first.resume()
	err = first.write(ctx, hold.Token(), balance-10)
	fmt.Println("first is refused:", errors.Is(err, fence.ErrStaleToken))
	fmt.Println("first is not refused where nobody compares:", first.writeTrusting(ctx, balance-10))
	fmt.Println("first knows by now:", errors.Is(hold.Unlock(ctx), client.ErrExpired))

	for _, table := range []string{"accounts", "trusting"} {
		if err := second.db.QueryRowContext(ctx, "SELECT balance FROM "+table+" WHERE id = 7").Scan(&balance); err != nil {
			fmt.Println(err)
		}
		fmt.Println(table+":", balance)
	}
	// Output:
	// first reads 100 <nil>
	// first still holds the lock: true
	// second reads 100 and takes 50
	// first is refused: true
	// first is not refused where nobody compares: <nil>
	// first knows by now: true
	// accounts: 50
	// trusting: 90
}
