package examples_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A client and a session are made once; both are shared by all goroutines. Lock waits for
// as long as its ctx allows.
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

// TryLock does not wait: what somebody else does already need not be done twice.
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
		hold, err := p.TryLock(ctx, "cron/nightly")
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

// LockTimeout gives up after a time that the leader counts. A ctx with a deadline is
// the other way; it counts here, and includes the way to the cluster.
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

	_, err = second.LockTimeout(ctx, "printer", 20*time.Millisecond)
	fmt.Println("waited in vain:", errors.Is(err, client.ErrTimeout))

	fmt.Println(hold.Unlock(ctx))
	hold, err = second.LockTimeout(ctx, "printer", time.Minute)
	fmt.Println(hold.Name(), err)
	// Output:
	// waited in vain: true
	// <nil>
	// printer <nil>
}

// Do is lock, work, unlock. The ctx of the work ends before anybody else can get the lock,
// and carries its owner: to lock the same again within is an error, not a standstill.
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

	// It was released all the same.
	err = p.Do(ctx, "orders/42", func(context.Context, uint64) error { return nil })
	fmt.Println(err)
	// Output:
	// within: true
	// the customer has no account
	// <nil>
}

// A hold is lost with its session: here it is closed under the worker; it is the same when
// it expires because no node was reached in time.
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
		<-hold.Lost() // or <-hold.Context().Done(), which ends with Unlock as well
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
	// true lost
	// the next one leads: true
}

// Why am I waiting? A read shows who holds a lock, with what value, and who waits for it,
// in order.
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
	for lock.GetQueueLength() == 0 { // until the other's request has arrived
		if lock, err = first.client.GetLock(ctx, &wire.GetLockRequest{Name: "build/main"}); err != nil {
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
