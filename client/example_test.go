package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// In a program, cluster is client.Config{Endpoints: []string{"10.0.0.1:7400", …}}; here it is a node in
// memory.
var cluster = client.Cluster

func Example() {
	ctx := context.Background()
	c, err := client.New(cluster())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	session, err := c.NewSession(ctx, client.SessionOptions{TTL: 15 * time.Second, Name: "refunds"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	err = session.Do(ctx, "orders/42", func(ctx context.Context, token uint64) error {
		// Work with ctx, which ends before anybody else can get the lock. Pass token to whatever you write
		// to, and let it reject lower ones.
		fmt.Println("refunding with token", token)
		return nil
	})
	fmt.Println(err)
	// Output:
	// refunding with token 1
	// <nil>
}

func ExampleWithTry() {
	ctx := context.Background()
	c, _ := client.New(cluster())
	defer c.Close()
	session, _ := c.NewSession(ctx, client.SessionOptions{})

	hold, err := session.Lock(ctx, "cron/nightly", client.WithTry())
	fmt.Println(hold.Name(), err)
	_, err = session.Lock(ctx, "cron/nightly", client.WithTry())
	fmt.Println(errors.Is(err, client.ErrNotAcquired))
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// cron/nightly <nil>
	// true
	// <nil>
}

func ExampleSession_Lock() {
	ctx := context.Background()
	c, _ := client.New(cluster())
	defer c.Close()
	session, _ := c.NewSession(ctx, client.SessionOptions{})
	hold, _ := session.Lock(ctx, "terraform/prod")

	// Another owner waits as long as its ctx allows.
	impatient, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err := session.Lock(impatient, "terraform/prod")
	fmt.Println(errors.Is(err, context.DeadlineExceeded))

	// A call with the hold's context acts as the hold's owner.
	_, err = session.Lock(hold.Context(), "terraform/prod")
	fmt.Println(errors.Is(err, client.ErrAlreadyHeld))

	fmt.Println(hold.Unlock(ctx))
	fmt.Println(errors.Is(context.Cause(hold.Context()), client.ErrReleased))
	// Output:
	// true
	// true
	// <nil>
	// true
}

func ExampleWithCached() {
	ctx := context.Background()
	c, _ := client.New(cluster())
	defer c.Close()
	session, _ := c.NewSession(ctx, client.SessionOptions{})

	// Only the first of these asks the cluster.
	for range 3 {
		err := session.Do(ctx, "accounts/42", func(_ context.Context, token uint64) error {
			fmt.Println("booking with token", token)
			return nil
		}, client.WithCached(time.Minute))
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// booking with token 1
	// booking with token 2
	// booking with token 3
}

func ExampleHold_Context() {
	ctx := context.Background()
	c, _ := client.New(cluster())
	session, _ := c.NewSession(ctx, client.SessionOptions{})
	hold, _ := session.Lock(ctx, "leader/scheduler", client.WithValue([]byte("10.0.0.7:9000")))

	c.Close() // or the session expires, or an operator ends it
	<-hold.Context().Done()
	reason := context.Cause(hold.Context())
	fmt.Println(errors.Is(reason, client.ErrClosed), errors.Is(reason, client.ErrSessionLost))
	// Output: true true
}
