package examples_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A client and a session are created once and shared by all goroutines. Lock waits as long as its ctx allows.
func Example_lock() {
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	session, err := c.NewSession(ctx, client.SessionOptions{TTL: 15 * time.Second, Name: "deployer"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	hold, err := session.Lock(ctx, "terraform/prod")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("holding", hold.Name(), "with a token:", hold.Token() > 0)
	fmt.Println("time left:", hold.Remaining() > 10*time.Second)
	fmt.Println("unlocked:", hold.Unlock(ctx))
	fmt.Println("unlocked once more:", hold.Unlock(ctx))
	fmt.Println(context.Cause(hold.Context()))
	// Output:
	// holding terraform/prod with a token: true
	// time left: true
	// unlocked: <nil>
	// unlocked once more: <nil>
	// quorumlock: hold released
}

// TryLock does not wait: a job that runs elsewhere need not run twice.
func Example_tryLock() {
	ctx := context.Background()
	first, second, err := startTwo(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.close(ctx)
	defer second.close(ctx)

	for _, p := range []*process{first, second} {
		hold, err := p.Lock(ctx, "cron/nightly", client.WithTry())
		if errors.Is(err, client.ErrNotAcquired) {
			fmt.Println("somebody else is at it")
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		defer hold.Unlock(ctx)
		fmt.Println("running the nightly job")
	}
	// Output:
	// running the nightly job
	// somebody else is at it
}

// LockTimeout gives up after a time that the leader measures. The alternative is a ctx with a deadline, which
// is measured here and includes the round trip to the cluster.
func Example_lockTimeout() {
	ctx := context.Background()
	first, second, err := startTwo(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.close(ctx)
	defer second.close(ctx)
	hold, err := first.Lock(ctx, "printer")
	if err != nil {
		fmt.Println(err)
		return
	}

	_, err = second.Lock(ctx, "printer", client.WithWait(20*time.Millisecond))
	fmt.Println("waited in vain:", errors.Is(err, client.ErrTimeout))

	fmt.Println(hold.Unlock(ctx))
	hold, err = second.Lock(ctx, "printer", client.WithWait(time.Minute))
	fmt.Println(hold.Name(), err)
	// Output:
	// waited in vain: true
	// <nil>
	// printer <nil>
}

// Do locks, works and unlocks. The ctx of the work ends before the lock can be granted to another client, and
// carries its owner: to lock the same lock again with it is an error, not a deadlock.
func Example_do() {
	ctx := context.Background()
	p, err := start(ctx, "refunds")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.close(ctx)

	errBroke := errors.New("the customer has no account")
	err = p.Do(ctx, "orders/42", func(ctx context.Context, token uint64) error {
		err := p.Do(ctx, "orders/42", func(context.Context, uint64) error { return nil })
		fmt.Println("within:", errors.Is(err, client.ErrAlreadyHeld))
		return errBroke
	})
	fmt.Println(err)

	// It was released anyway.
	err = p.Do(ctx, "orders/42", func(context.Context, uint64) error { return nil })
	fmt.Println(err)
	// Output:
	// within: true
	// the customer has no account
	// <nil>
}

// A hold is lost with its session. Here the session is closed while the worker holds the lock; the effect is
// the same when it expires because no node could be reached in time.
func Example_lost() {
	ctx := context.Background()
	first, second, err := startTwo(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.close(ctx)
	defer second.close(ctx)
	hold, err := first.Lock(ctx, "leader/scheduler")
	if err != nil {
		fmt.Println(err)
		return
	}

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-hold.Lost() // or <-hold.Context().Done(), which also ends with Unlock
		reason := context.Cause(hold.Context())
		fmt.Println("stop:", reason, errors.Is(reason, client.ErrSessionLost))
	}()
	fmt.Println(first.Session.Close(ctx))
	<-stopped
	fmt.Println(errors.Is(hold.Unlock(ctx), client.ErrClosed), first.State())

	next, err := second.Lock(ctx, "leader/scheduler")
	fmt.Println("the next one leads:", err == nil && next.Token() > hold.Token())
	// Unordered output:
	// stop: quorumlock: session closed true
	// <nil>
	// true closed
	// the next one leads: true
}

// To find out why a request waits, a read shows who holds a lock, with what value, and who waits for it, in
// order.
func Example_queue() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	first, second, err := startTwo(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.close(ctx)
	defer second.close(ctx)
	hold, err := first.Lock(ctx, "build/main", client.WithValue([]byte("revision 1a2b3c")))
	if err != nil {
		fmt.Println(err)
		return
	}
	granted := make(chan error, 1)
	go func() {
		_, err := second.Lock(ctx, "build/main")
		granted <- err
	}()

	lock := &wire.GetLockResponse{}
	for lock.GetQueueLength() == 0 { // until the other request has arrived
		if lock, err = wirecall.Of(first.client).GetLock(ctx, &wire.GetLockRequest{Name: "build/main"}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, h := range lock.GetHolders() {
		fmt.Printf("%s holds it: %s\n", h.GetClient().GetName(), h.GetValue())
	}
	for _, w := range lock.GetQueue() {
		fmt.Printf("%d. %s waits\n", w.GetPosition(), w.GetClient().GetName())
	}
	fmt.Println(hold.Unlock(ctx))
	fmt.Println(<-granted)
	// Output:
	// first holds it: revision 1a2b3c
	// 1. second waits
	// <nil>
	// <nil>
}
