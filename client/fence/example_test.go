package fence_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/quorumlock/quorumlock/client/fence"
)

// A service that guards its own files, such as those of a printer or a ledger.
func ExampleGuard() {
	var guard fence.Guard
	var balance int
	set := func(token uint64, amount int) error {
		return guard.Do("accounts/7", token, func() error {
			balance = amount
			return nil
		})
	}

	fmt.Println(set(33, 100)) // the first holder
	fmt.Println(set(34, 50))  // the next holder
	err := set(33, 90)        // the first holder again, which had been stopped
	fmt.Println(errors.Is(err, fence.ErrStaleToken), err)
	fmt.Println("balance:", balance)
	// Output:
	// <nil>
	// <nil>
	// true quorumlock: stale fencing token: 33 for accounts/7, which has seen 34
	// balance: 50
}

func ExampleTable_Update() {
	accounts := fence.Table{Dialect: fence.PostgreSQL, Name: "accounts"}
	query, args, err := accounts.Update(34, fence.Row{"id": 7}, fence.Row{"balance": 50})
	fmt.Println(query)
	fmt.Println(args, err)
	// err = fence.Applied(db.ExecContext(ctx, query, args...))

	// Output:
	// UPDATE "accounts" SET "balance" = $1, "fence" = $2 WHERE "id" = $3 AND "fence" <= $4
	// [50 34 7 34] <nil>
}

// store stands for an object store. An object has an ETag that changes with it, and a write can require the
// ETag that it expects.
type store struct {
	mu       sync.Mutex // guards the fields below
	etag     int
	body     string
	metadata map[string]string
}

var errPreconditionFailed = errors.New("412 Precondition Failed")

func (s *store) get() (etag int, metadata map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.etag, s.metadata
}

func (s *store) putIfMatch(etag int, body string, metadata map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if etag != s.etag {
		return errPreconditionFailed
	}
	s.etag, s.body, s.metadata = s.etag+1, body, metadata
	return nil
}

// put writes unless a later holder has written. It checks the token in the metadata, and makes the write
// conditional on no other write since then.
func put(s *store, token uint64, body string) error {
	for {
		etag, metadata := s.get()
		if seen, _ := strconv.ParseUint(metadata["fence"], 10, 64); token < seen {
			return fence.ErrStaleToken
		}
		err := s.putIfMatch(etag, body, map[string]string{"fence": strconv.FormatUint(token, 10)})
		if !errors.Is(err, errPreconditionFailed) {
			return err
		}
	}
}

func Example_objectStore() {
	s := &store{}
	fmt.Println(put(s, 33, "serial 1"))
	fmt.Println(put(s, 34, "serial 2"))
	fmt.Println(put(s, 33, "serial 1, late"))
	fmt.Println(s.body)
	// Output:
	// <nil>
	// <nil>
	// quorumlock: stale fencing token
	// serial 2
}
