package examples_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// account is a resource that a lock protects. It remembers the highest token presented so far and rejects
// lower ones: one comparison, atomic with the write. In SQL that is UPDATE … SET balance = $1, fence = $2
// WHERE id = $3 AND fence <= $2.
type account struct {
	mu      sync.Mutex // guards the fields below
	fence   uint64
	balance int
}

var errFenced = errors.New("a later holder has written already")

func (a *account) set(token uint64, balance int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.fence {
		return errFenced
	}
	a.fence, a.balance = token, balance
	return nil
}

// A process that is stopped between its last check of the ctx and its write can be late, and no lock can
// prevent that. The token does: it is greater than that of every earlier grant, so the resource can tell
// which write is late.
func Example_fencing() {
	ctx := context.Background()
	slow, quick, err := startTwo(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer slow.close(ctx)
	defer quick.close(ctx)
	checking := &account{balance: 100}

	late, err := slow.Lock(ctx, "accounts/7")
	if err != nil {
		fmt.Println(err)
		return
	}
	// Here the slow process is stopped until the cluster has expired its session.
	if err := slow.Session.Close(ctx); err != nil {
		fmt.Println(err)
		return
	}
	err = quick.Do(ctx, "accounts/7", func(_ context.Context, token uint64) error {
		return checking.set(token, 50)
	})
	fmt.Println("the next holder:", err)

	// It resumes and writes its outdated result.
	fmt.Println("the late one:", checking.set(late.Token(), 90))
	fmt.Println("balance:", checking.balance)
	// Output:
	// the next holder: <nil>
	// the late one: a later holder has written already
	// balance: 50
}
