package examples_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// Readers share a lock, a writer has it alone. A reader becomes a writer without releasing the lock, and vice
// versa.
func Example_shared() {
	ctx := context.Background()
	first, second, err := startTwo(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.close(ctx)
	defer second.close(ctx)

	reader, err := first.Lock(ctx, "catalogue", client.WithShared())
	if err != nil {
		fmt.Println(err)
		return
	}
	other, err := second.Lock(ctx, "catalogue", client.WithShared())
	fmt.Println("two readers:", reader.Mode(), other.Mode(), err)
	_, err = second.Lock(ctx, "catalogue", client.WithTry())
	fmt.Println("a writer beside them:", err)
	fmt.Println(other.Unlock(ctx))

	before := reader.Token()
	fmt.Println(reader.Upgrade(ctx))
	fmt.Println(reader.Mode(), "with a new token:", reader.Token() > before)
	fmt.Println(reader.Downgrade(ctx))
	_, err = second.Lock(ctx, "catalogue", client.WithShared(), client.WithTry())
	fmt.Println("a reader again:", reader.Mode(), err)
	// Output:
	// two readers: shared shared <nil>
	// a writer beside them: quorumlock: lock not acquired
	// <nil>
	// <nil>
	// exclusive with a new token: true
	// <nil>
	// a reader again: shared <nil>
}

// A semaphore limits concurrency across all machines.
func Example_semaphore() {
	ctx := context.Background()
	first, second, err := startTwo(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.close(ctx)
	defer second.close(ctx)

	hold, err := first.Semaphore("converters", 3).Acquire(ctx, 2)
	fmt.Println("two of three:", err)
	_, err = second.Semaphore("converters", 3).Acquire(ctx, 2, client.WithTry())
	fmt.Println("two more:", errors.Is(err, client.ErrNotAcquired))
	_, err = second.Semaphore("converters", 4).Acquire(ctx, 1, client.WithTry())
	fmt.Println("another idea of how many there are:", errors.Is(err, client.ErrMismatch))
	_, err = second.Semaphore("converters", 3).Acquire(ctx, 1, client.WithTry())
	fmt.Println("the third:", err)
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// two of three: <nil>
	// two more: true
	// another idea of how many there are: true
	// the third: <nil>
	// <nil>
}

// A transfer locks both accounts, in whatever order they are named. Two transfers that took one lock after
// the other could wait for each other forever.
func Example_several() {
	ctx := context.Background()
	first, second, err := startTwo(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.close(ctx)
	defer second.close(ctx)

	var wg sync.WaitGroup
	balance := map[string]int{"a": 100, "b": 100} // guarded by the two locks
	transfer := func(p *process, from, to string) {
		hold, err := p.LockAll(ctx, client.Names("accounts/"+from, "accounts/"+to))
		if err != nil {
			fmt.Println(err)
			return
		}
		balance[from]--
		balance[to]++
		if err := hold.Unlock(ctx); err != nil {
			fmt.Println(err)
		}
	}
	for range 10 {
		wg.Go(func() { transfer(first, "a", "b") })
		wg.Go(func() { transfer(second, "b", "a") })
	}
	wg.Wait()
	fmt.Println(balance)
	// Output: map[a:100 b:100]
}

// A sync.Locker is for code that supports nothing else. Unlock does not return if the lock was lost.
func Example_locker() {
	ctx := context.Background()
	p, err := start(ctx, "till")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.close(ctx)
	lost := make(chan error, 1)
	till := p.Locker(ctx, "till/3", func(reason error) { lost <- reason }) // or log.Fatal

	work := func(l sync.Locker, f func()) {
		l.Lock()
		defer l.Unlock()
		f()
	}
	work(till, func() { fmt.Println("counting the money:", till.Err()) })

	func() {
		defer func() { fmt.Println("panic:", recover()) }()
		work(till, func() {
			fmt.Println("closed:", p.Session.Close(ctx)) // or it expires
			fmt.Println("told:", <-lost)
		})
	}()
	// Output:
	// counting the money: <nil>
	// closed: <nil>
	// told: quorumlock: session closed
	// panic: quorumlock: locker till/3: quorumlock: session closed
}

// Cron starts the job on every machine at about the same time. One runs it; the others wait in case it fails,
// and learn when it is done.
func Example_once() {
	ctx := context.Background()
	day := time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)
	// Every machine starts it within a minute of the first.
	job := func(p *process) *client.Once { return p.Once("cron/billing/"+day.Format(time.DateOnly), time.Minute) }

	var wg sync.WaitGroup
	ran, failures := make(chan string, 10), make(chan error, 10)
	for i := range 10 {
		wg.Go(func() {
			p, err := start(ctx, fmt.Sprint("machine ", i))
			if err != nil {
				failures <- err
				return
			}
			defer p.close(ctx)
			if _, err := job(p).Do(ctx, func(_ context.Context, token uint64) error {
				ran <- fmt.Sprint("a machine has sent the bills, with a token: ", token > 0)
				return nil
			}); err != nil {
				failures <- err
			}
		})
	}
	wg.Wait()
	fmt.Println(<-ran)
	fmt.Println("other runs:", len(ran), "failures:", len(failures))

	late, err := start(ctx, "late")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer late.close(ctx)
	fmt.Println(job(late).Done(ctx))
	fmt.Println(job(late).Do(ctx, func(context.Context, uint64) error { return errors.New("the bills are sent twice") }))
	_, err = late.Once("cron/backup", 1_000*time.Hour).Do(ctx, nil)
	fmt.Println("longer than the cluster can keep it:", errors.Is(err, client.ErrInvalidArgument))
	// Output:
	// a machine has sent the bills, with a token: true
	// other runs: 0 failures: 0
	// true <nil>
	// false <nil>
	// longer than the cluster can keep it: true
}

// One leads, the others stand by, and every client can find the leader.
func Example_election() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, second, err := startTwo(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.close(context.Background())
	defer second.close(context.Background())

	observed := first.client.Observe(ctx, "scheduler") // needs no session
	next := func() {
		if l := <-observed; l.Token == 0 {
			fmt.Println("nobody leads")
		} else {
			fmt.Printf("%s leads\n", l.Value)
		}
	}
	next()
	leadership, err := first.Election("scheduler").Campaign(ctx, client.WithValue([]byte("10.0.0.1:9000")))
	if err != nil {
		fmt.Println(err)
		return
	}
	next()
	fmt.Println(leadership.SetValue(ctx, []byte("10.0.0.1:9000 and ready")))
	next()

	elected := make(chan *client.Leadership, 1)
	go func() {
		l, err := second.Election("scheduler").Campaign(ctx, client.WithValue([]byte("10.0.0.2:9000")))
		if err != nil {
			fmt.Println(err)
		}
		elected <- l
	}()
	fmt.Println(leadership.Resign(ctx))
	fmt.Println("tokens rise:", (<-elected).Token() > leadership.Token())
	for l := range observed { // in between there may have been no leader
		if l.Token != 0 {
			fmt.Printf("%s leads\n", l.Value)
			break
		}
	}
	// Output:
	// nobody leads
	// 10.0.0.1:9000 leads
	// <nil>
	// 10.0.0.1:9000 and ready leads
	// <nil>
	// tokens rise: true
	// 10.0.0.2:9000 leads
}
